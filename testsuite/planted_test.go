package testsuite_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/testsuite"
)

type body = func(ctx context.Context, o order) error

// plant is a faulty activity and its corrected twin.
type plant struct {
	name          string
	cause         string // in the message
	faulty, right func(s *shop) body

	policies [2]func(s *shop) interceptor.Policy // of the faulty one and the right one; nil: policy
	rivals   []any
	inputs   [2]any // nil: the usual one
	same     [2][]any
	guard    [2]bool // false: not guarded at all; used with unguarded
	unguard  bool    // guard is meant
	prove    func(testsuite.T, *testsuite.Kit, testsuite.Proof) testsuite.Report
}

func read(ctx context.Context, s *shop, o order) (balance int64, err error) {
	err = s.pool.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = $1", o.Account).Scan(&balance)
	return balance, err
}

func business(*shop) interceptor.Policy {
	p := policy()
	p.Scope = interceptor.ScopeNamespace
	return p
}

// clocked has a key that is another one in each period of time.
func clocked(period time.Duration) func(*shop) interceptor.Policy {
	return func(s *shop) interceptor.Policy {
		p := business(s)
		p.Key = interceptor.KeyFrom(func(o order) any { return []any{o.Account, time.Now().Truncate(period).Unix()} })
		return p
	}
}

func cents(price float64) int64 { return int64(math.Round(price * 100)) }

var tenth = 0.1 // a variable: the compiler adds constants exactly

func settled(s *shop) body {
	return func(ctx context.Context, o order) error {
		return accounts.Update(ctx, s.pool, set(o, pgxfence.Values{"status": "settled"}))
	}
}

func once(ctx context.Context, s *shop, fn func(tx pgx.Tx) error) error {
	a, _ := interceptor.Attempt(ctx)
	_, err := pgxfence.Once(ctx, s.pool, pgxfence.Effect{Key: a.Key.String(), Name: "deposit"}, func(tx pgx.Tx) (bool, error) {
		return true, fn(tx)
	})
	return err
}

func fencedExec(ctx context.Context, s *shop, o order, sql string) error {
	_, err := pgxfence.Exec(ctx, s.pool, pgxfence.Own{SQL: sql, Args: pgx.NamedArgs{"id": o.Account}})
	return err
}

// prove proves one of the two.
func (p plant) run(t *fakeT, database *pgxpool.Pool, which int) (report testsuite.Report) {
	s := newShop(t, database)
	fn := p.faulty(s)
	if which == 1 {
		fn = p.right(s)
	}
	pol := policy()
	if other := p.policies[which]; other != nil {
		pol = other(s)
	}
	name := "settle"
	if p.unguard && !p.guard[which] {
		name = "something else"
	}
	s.kit.Guard(interceptor.For(name, pol))
	s.kit.Register(fn, registerAs("settle"))
	prove := p.prove
	if prove == nil {
		prove = testsuite.ProveFenced
	}
	defer s.writer.Wait()
	defer close(s.closing)
	input := p.inputs[which]
	if input == nil {
		input = order{Account: 1, Amount: 10, ID: "a"}
	}
	return prove(t, s.kit, testsuite.Proof{
		Activity: "settle", Input: input, Reset: s.reset, State: s.state, Rivals: p.rivals, Same: p.same[which],
	})
}

func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			f := tried(func(f *fakeT) { f.real = t; p.run(f, db, 0) })
			requireFails(t, f, p.cause)
			t.Log(firstLines(f.text))
			db = database(t)
			var report testsuite.Report
			f = tried(func(f *fakeT) { f.real = t; report = p.run(f, db, 1) })
			requirePasses(t, f)
			require.Positive(t, report.Steps)
			t.Logf("its twin: %+v", report)
		})
	}
}
