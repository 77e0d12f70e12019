package testsuite_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/testsuite"
)

// fiveStatements is an activity that sends three statements; the guard's two make five.
func fiveStatements(s *shop) body {
	return func(ctx context.Context, o order) error {
		for _, status := range []string{"checked", "paid", "settled"} {
			if err := accounts.Update(ctx, s.pool, set(o, pgxfence.Values{"status": status})); err != nil {
				return err
			}
		}
		return nil
	}
}

func newFive(b testing.TB) (*shop, testsuite.Proof) {
	s := newShop(b, database(b))
	s.kit.Guard(interceptor.For("settle", policy()))
	s.kit.Register(fiveStatements(s), registerAs("settle"))
	return s, testsuite.Proof{Activity: "settle", Input: order{Account: 1}, Reset: s.reset, State: s.state}
}

// BenchmarkProveFenced is the cost of a proof of five statements, beside that of one
// plain run with the same reset and look at the state.
func BenchmarkProveFenced(b *testing.B) {
	b.Run("plain run", func(b *testing.B) {
		s, p := newFive(b)
		for b.Loop() {
			if err := p.Reset(b.Context()); err != nil {
				b.Fatal(err)
			}
			if err := s.kit.Execute(p.Activity, p.Input).Err(); err != nil {
				b.Fatal(err)
			}
			if _, err := p.State(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("proof", func(b *testing.B) {
		s, p := newFive(b)
		var r testsuite.Report
		for b.Loop() {
			r = testsuite.ProveFenced(b, s.kit, p)
		}
		b.ReportMetric(float64(r.Runs), "runs/op")
	})
}

// The number of runs is what bounds the time of a proof, on any machine.
func TestCostOfAProof(t *testing.T) {
	t.Parallel()
	s, p := newFive(t)
	require.Equal(t, testsuite.Report{Steps: 5, Runs: 12}, testsuite.ProveFenced(t, s.kit, p))
	require.Equal(t, testsuite.Report{Steps: 5, Runs: 14}, testsuite.ProveIdempotent(t, s.kit, p))
	p.Limit = 4
	requireFails(t, tried(func(f *fakeT) { testsuite.ProveFenced(f, s.kit, p) }), "5 steps", "Limit is 4")
}
