package testsuite_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/testsuite"
)

// deposit is an activity of several kinds of statements: a sealed transaction with a
// ledger, a batch, a row fence.
func deposit(s *shop) body {
	return func(ctx context.Context, o order) error {
		err := once(ctx, s, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("UPDATE accounts SET balance = balance + $1 WHERE id = 1", o.Amount)
			b.Queue("UPDATE accounts SET balance = balance - $1 WHERE id = 2", o.Amount)
			if err := tx.SendBatch(ctx, b).Close(); err != nil {
				return err
			}
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"marks"}, []string{"id", "v"}, pgx.CopyFromRows([][]any{{o.Amount, "deposited"}}))
			return err
		})
		if err != nil {
			return err
		}
		return accounts.Update(ctx, s.pool, set(o, pgxfence.Values{"status": "settled"}))
	}
}

func TestProofOfADeposit(t *testing.T) {
	t.Parallel()
	s := newShop(t, database(t))
	p := policy()
	p.Seal = pgxfence.Sealer(s.pool)
	s.kit.Guard(interceptor.For("deposit", p))
	s.kit.Register(deposit(s), registerAs("deposit"))
	proof := testsuite.Proof{
		Activity: "deposit", Input: order{Account: 1, Amount: 10}, Reset: s.reset, State: s.state,
		Rivals: []any{order{Account: 1, Amount: 5}},
	}
	report := testsuite.ProveFenced(t, s.kit, proof)
	t.Logf("fenced: %+v", report)
	report = testsuite.ProveIdempotent(t, s.kit, proof)
	t.Logf("idempotent: %+v", report)
}

// The proof holds for bodies that no newer attempt takes over from, too: the lease ends.
func TestProofWithoutTakeover(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]interceptor.Policy{
		"no takeover": {NoTakeover: true}, "waiting": {NoTakeover: true, Wait: time.Minute}, "at most once": {AtMostOnce: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, database(t))
			p.Resource = policy().Resource
			s.kit.Guard(interceptor.For("settle", p))
			s.kit.Register(settled(s), registerAs("settle"))
			testsuite.ProveFenced(t, s.kit, testsuite.Proof{Activity: "settle", Input: order{Account: 1}, Reset: s.reset, State: s.state})
		})
	}
}

// An at-most-once activity that dies has happened or not, and nobody knows; more than
// that it must not be.
func TestProofOfAtMostOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t, database(t))
	p := policy()
	p.AtMostOnce = true
	charge := func(ctx context.Context, _ order) error {
		key, err := interceptor.IdempotencyKey(ctx, "charge")
		if err != nil {
			return err
		}
		return s.pay(ctx, key)
	}
	halves := func(ctx context.Context, o order) error { return errors.Join(charge(ctx, o), settled(s)(ctx, o)) }
	s.kit.Guard(interceptor.For("charge", p), interceptor.For("halves", p))
	s.kit.Register(charge, registerAs("charge"))
	s.kit.Register(halves, registerAs("halves"))
	proof := testsuite.Proof{Activity: "charge", Input: order{Account: 1}, Reset: s.reset, State: s.state}
	testsuite.ProveIdempotent(t, s.kit, proof)
	proof.Activity = "halves"
	requireFails(t, tried(func(f *fakeT) { testsuite.ProveIdempotent(f, s.kit, proof) }), "the state is", "Paid:1")
}

// A fenced write to Redis.
func TestProofOfAGate(t *testing.T) {
	t.Parallel()
	kit := testsuite.New(t, testsuite.Options{})
	store, err := primitives.New(kit.Redis(), primitives.Options{Prefix: kit.Prefix()})
	require.NoError(t, err)
	gate, err := primitives.NewGate(store, primitives.GateOptions{})
	require.NoError(t, err)
	publish := func(ctx context.Context, price string) error {
		a, _ := interceptor.Attempt(ctx)
		return gate.SetIfFresh(ctx, a.Token, "price", []byte(price), 0)
	}
	kit.Guard(interceptor.For("publish", interceptor.Policy{Resource: interceptor.ResourceFrom(func(string) string { return "prices" })}))
	kit.Register(publish, registerAs("publish"))
	own, err := primitives.NewGate(kit.Store(), primitives.GateOptions{})
	require.NoError(t, err)
	report := testsuite.ProveFenced(t, kit, testsuite.Proof{Activity: "publish", Input: "12", Rivals: []any{"13"},
		State: func(ctx context.Context) (any, error) {
			v, _, err := own.Get(ctx, "prices", "price")
			return string(v), err
		}})
	require.Equal(t, 3, report.Steps)
}

// A crash in a transaction leaves nothing of it, and no lock.
func TestCrashInATransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t, database(t))
	s.kit.Guard(interceptor.For("deposit", policy()))
	s.kit.Register(deposit(s), registerAs("deposit"))
	in := order{Account: 1, Amount: 10}
	crashed := 0
	for n := 1; ; n++ {
		require.NoError(t, s.reset(t.Context()))
		dead := s.kit.Call("deposit", in).CrashAt(testsuite.AfterStep(n))
		if dead.Err() == nil {
			break
		}
		crashed++
		require.ErrorIs(t, dead.Err(), testsuite.ErrCrashed)
		require.Len(t, dead.Steps(), n, "the dead have sent something")
		require.NoError(t, dead.NextAttempt().Err())
		w, err := s.state(t.Context())
		require.NoError(t, err)
		require.Equal(t, world{Balance: [2]int64{10, -10}, Status: "settled", Mark: "first"}, w)
	}
	require.Greater(t, crashed, 5)
}

func TestCrashAfterEffect(t *testing.T) {
	t.Parallel()
	s := newShop(t, database(t))
	s.kit.Guard(interceptor.For("settle", policy()))
	s.kit.Register(fiveStatements(s), registerAs("settle"))
	dead := s.kit.Call("settle", order{Account: 1}).CrashAt(testsuite.AfterEffect(2))
	require.ErrorIs(t, dead.Err(), testsuite.ErrCrashed)
	w, err := s.state(t.Context())
	require.NoError(t, err)
	require.Equal(t, "paid", w.(world).Status)
	testsuite.RequireExecuted(t, dead.NextAttempt())
}

// What is done in a transaction is an effect when it commits: who dies after it has left
// it behind, and the next attempt finds it.
func TestCrashAfterTheCommit(t *testing.T) {
	t.Parallel()
	s := newShop(t, database(t))
	deposit := func(ctx context.Context, o order) error {
		return once(ctx, s, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + $1 WHERE id = $2", o.Amount, o.Account)
			return err
		})
	}
	s.kit.Guard(interceptor.For("deposit", policy()))
	s.kit.Register(deposit, registerAs("deposit"))
	balance := func() int64 {
		w, err := s.state(t.Context())
		require.NoError(t, err)
		return w.(world).Balance[0]
	}
	dead := s.kit.Call("deposit", order{Account: 1, Amount: 100}).CrashAt(testsuite.AfterEffect(1))
	require.ErrorIs(t, dead.Err(), testsuite.ErrCrashed)
	require.EqualValues(t, 100, balance(), "it died before the commit")
	require.NoError(t, dead.NextAttempt().Err())
	require.EqualValues(t, 100, balance())
}

// A change that is rolled back is no effect.
func TestRolledBackIsNoEffect(t *testing.T) {
	t.Parallel()
	s := newShop(t, database(t))
	hesitant := func(ctx context.Context, o order) error {
		no := errors.New("no")
		err := pgxfence.InTx(ctx, s.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE accounts SET status = 'paid' WHERE id = $1", o.Account)
			return errors.Join(err, no)
		})
		if !errors.Is(err, no) {
			return err
		}
		return settled(s)(ctx, o)
	}
	s.kit.Guard(interceptor.For("hesitant", policy()))
	s.kit.Register(hesitant, registerAs("hesitant"))
	dead := s.kit.Call("hesitant", order{Account: 1}).CrashAt(testsuite.AfterEffect(1))
	require.ErrorIs(t, dead.Err(), testsuite.ErrCrashed)
	w, err := s.state(t.Context())
	require.NoError(t, err)
	require.Equal(t, "settled", w.(world).Status)
}

// On a real Redis, given or from the environment, a kit leaves nothing behind.
func TestRealRedis(t *testing.T) {
	r := devstack.RedisForTest(t)
	t.Setenv("REDIS_URL", "redis://"+r.Addr())
	t.Setenv("DATABASE_URL", "")
	rdb := r.Client()
	for name, o := range map[string]testsuite.Options{"given": {Redis: rdb}, "environment": {FromEnvironment: true}} {
		prefix := ""
		t.Run(name, func(t *testing.T) {
			c := &counter{}
			o.Guards = []interceptor.Guard{interceptor.For(c.Count, interceptor.Policy{})}
			kit := testsuite.New(t, o)
			prefix = kit.Prefix()
			zombie := kit.Call(c.Count, "jo").FreezeAt(testsuite.BeforeComplete)
			kit.ExpireLease(zombie.Resource())
			testsuite.RequireExecuted(t, zombie.NextAttempt())
			zombie.Thaw()
			testsuite.RequireLeaseLost(t, zombie)
			testsuite.ProveIdempotent(t, kit, testsuite.Proof{Activity: c.Count, Input: "jo", Invariant: func(context.Context) error { return nil }})
			require.NotEmpty(t, rdb.Keys(t.Context(), prefix+"*").Val())
			require.True(t, tried(func(f *fakeT) { testsuite.New(f, o).AdvanceClock(1) }).skipped)
		})
		require.Empty(t, rdb.Keys(t.Context(), prefix+"*").Val())
	}
	if server != nil {
		url := server.URL(server.DatabaseForTest(t, template))
		require.NoError(t, os.Setenv("DATABASE_URL", url)) // t.Setenv above takes it back
		require.NotNil(t, testsuite.New(t, testsuite.Options{FromEnvironment: true}).Pool())
	}
}
