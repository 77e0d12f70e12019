package testsuite_test

import (
	"context"
	"errors"
	"testing"
	"time"

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

// maxRatio bounds a proof of five statements beside one run: it has 12 runs, each with a
// reset, and waits for nothing.
const maxRatio = 60

// BenchmarkProveFenced takes the time of a proof of five statements, and of one plain
// run with its reset and look at the state in between, and fails if their ratio is
// beyond the bound.
func BenchmarkProveFenced(b *testing.B) {
	s, p := newFive(b)
	var plain, proof time.Duration
	var r testsuite.Report
	run := func(ctx context.Context) error {
		_, failed := p.State(ctx)
		return errors.Join(p.Reset(ctx), s.kit.Execute(p.Activity, p.Input).Err(), failed)
	}
	require.NoError(b, run(b.Context())) // connections are made once
	for b.Loop() {
		began := time.Now()
		require.NoError(b, run(b.Context()))
		plain += time.Since(began)
		began = time.Now()
		r = testsuite.ProveFenced(b, s.kit, p)
		proof += time.Since(began)
	}
	ratio := float64(proof) / float64(plain)
	b.ReportMetric(float64(r.Runs), "runs/proof")
	b.ReportMetric(ratio, "proof/plain-run")
	b.ReportMetric(float64(proof.Milliseconds())/float64(b.N), "ms/proof")
	require.Less(b, ratio, float64(maxRatio))
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
