package interceptor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// The Seal hook takes the token to the database before the new body's first statement.
// Without it, the database cannot know yet that the old one is stale.
func TestSealHookFencesBeforeTheFirstStatement(t *testing.T) {
	t.Parallel()
	for _, sealed := range []bool{true, false} {
		t.Run(map[bool]string{true: "sealed", false: "control"}[sealed], func(t *testing.T) {
			t.Parallel()
			policy := interceptor.Policy{LeaseTTL: forever}
			e := newEnv(t)
			db, s := e.bank(), newStage(e, "sign")
			if sealed {
				policy.Seal = pgxfence.Sealer(db.Pool)
			}
			e.opts.Guards = []interceptor.Guard{interceptor.For("sign", policy)}
			e.worker(s.register)
			run := e.start(staged("sign", "x", 2*time.Second))
			first, second := s.next(), s.next() // the second has not written anything
			err := db.signInTx(first.zombie(), "first")
			if sealed {
				require.ErrorIs(t, err, fence.ErrStale)
			} else {
				require.NoError(t, err)
			}
			first.give("")
			newest := s.applies(second, func(ctx context.Context) error { return db.signInTx(ctx, "second") })
			newest.give("done")
			s.giveAll() // it is a zombie itself, if this took too long
			require.NoError(t, run.Get(e.ctx(), nil))
		})
	}
}

// applies has the newest run write. One that is stale was too late: its next attempt
// has begun, and the write is that one's.
func (s *stage) applies(r *entrance, write func(context.Context) error) *entrance {
	s.e.Helper()
	for range 20 {
		err := write(r.zombie())
		if err == nil {
			return r
		}
		require.ErrorIs(s.e, err, fence.ErrStale)
		r.give("")
		r = s.next()
	}
	s.e.Fatal("every write is stale")
	return nil
}

// giveAll lets every further run return.
func (s *stage) giveAll() {
	done := s.e.Context().Done()
	go func() {
		for {
			select {
			case r := <-s.runs:
				r.give("further")
			case <-done:
				return
			}
		}
	}()
}

// An error of the Seal hook fails the attempt before its body runs.
func TestSealHookFails(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	db, s := e.bank(), newStage(e, "sign")
	calls := 0
	seal := func(ctx context.Context) error {
		calls++
		if calls == 1 {
			return context.DeadlineExceeded
		}
		return pgxfence.Seal(ctx, db.Pool)
	}
	e.opts.Guards = []interceptor.Guard{interceptor.For("sign", interceptor.Policy{LeaseTTL: forever, Seal: seal})}
	e.worker(s.register)
	run := e.start(staged("sign", "x", forever))
	r := s.next()
	require.Greater(t, r.info.Attempt, int32(1))
	require.Greater(t, calls, 1)
	r.give("done")
	require.NoError(t, run.Get(e.ctx(), nil))
}

// ownRedis has e use a Redis that the test may flush.
func (e *env) ownRedis() *redis.Client {
	own := devstack.RedisForTest(e, devstack.RedisConfig{Own: true})
	rdb := own.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	e.opts.Redis = rdb
	return rdb
}

// depositing is a body whose effect is in the ledger.
func depositing(db *bank, runs chan<- primitives.Attempt) func(context.Context, string) (string, error) {
	return func(ctx context.Context, _ string) (string, error) {
		a, _ := interceptor.Attempt(ctx)
		runs <- a
		return db.deposit(ctx, a.Key.String())
	}
}

// The Ledger hook: what the database knows to have happened does not happen again, even
// if Redis has forgotten everything.
func TestLedgerAnswersAfterRedisWasFlushed(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	db, rdb, seen := e.bank(), e.ownRedis(), e.watch()
	runs := make(chan primitives.Attempt, 9)
	e.opts.Guards = []interceptor.Guard{interceptor.For("deposit", interceptor.Policy{
		Scope: interceptor.ScopeNamespace, Ledger: pgxfence.Ledger[string](db.Pool, "deposit")})}
	e.worker(named("deposit", depositing(db, runs)))
	for i := range 2 {
		out, err := e.run(call("deposit", "x"))
		require.NoError(t, err)
		require.Equal(t, "deposited", out)
		if i == 0 {
			require.NoError(t, rdb.FlushAll(e.ctx()).Err())
		}
	}
	require.Len(t, runs, 1)
	balance, _ := db.account()
	require.EqualValues(t, 100, balance)
	require.Zero(t, rdb.DBSize(e.ctx()).Val(), "Redis was not asked")
	began := seen.kind(primitives.EventBegan)
	require.Equal(t, primitives.Replayed, began[len(began)-1].Outcome)
}

// C13: retention that ends before Temporal stops retrying. The body runs again, with a
// higher token, and the ledger keeps its effect from happening twice. The kit has warned.
func TestRetentionShorterThanTheRetry(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("deposit", interceptor.Policy{LeaseTTL: time.Minute, Retention: time.Minute}))
	db, seen, s := e.bank(), e.watch(), newStage(e, "deposit")
	e.worker(s.register, before(e.losingTheFirst()))
	run := e.start(staged("deposit", "x", forever))

	first := s.next()
	out, err := db.deposit(first.ctx, first.attempt.Key.String())
	require.NoError(t, err)
	first.give(out) // stored, and forgotten before attempt 2 comes
	second := s.next()
	require.Len(t, seen.kind(primitives.EventCompleted), 1)
	require.Equal(t, primitives.Begun, second.attempt.Outcome)
	require.Greater(t, second.token(), first.token())
	out, err = db.deposit(second.ctx, second.attempt.Key.String())
	require.NoError(t, err)
	second.give(out)
	require.NoError(t, run.Get(e.ctx(), nil))
	balance, _ := db.account()
	require.EqualValues(t, 100, balance)
	require.Len(t, e.logs.with("Retention of 1m0s ends before ScheduleToClose of 1h0m0s"), 1)
}

// losingTheFirst loses the report of the first success, and ends its retention: its
// record goes, as it would at the end of the time to live that it has.
func (e *env) losingTheFirst() *around {
	var lost atomic.Bool
	return &around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
		out, err := next(ctx, in)
		if err != nil || lost.Swap(true) {
			return out, err
		}
		for _, name := range e.records() {
			if left := e.rdb.PTTL(ctx, name).Val(); left <= 0 || left > time.Minute {
				e.Errorf("%s is retained for %v", name, left)
			}
			if err := e.rdb.Del(ctx, name).Err(); err != nil {
				e.Error(err)
			}
		}
		return nil, errors.New("the report was lost")
	}}
}

// A database that has seen a higher token than the newest, because Redis has lost its
// memory, refuses the body. The next attempt gets a token above it.
func TestFloorIsRaisedAfterAStaleWriteUnderTheNewestLease(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("sign", interceptor.Policy{LeaseTTL: forever}))
	db, seen, s := e.bank(), e.watch(), newStage(e, "sign")
	e.worker(s.register)
	run := e.start(staged("sign", "x", forever))
	first := s.next()
	ahead := first.token() + 1_000_000
	db.raise(ahead)
	err := db.sign(first.ctx, "first")
	require.ErrorIs(t, err, fence.ErrStale)
	first.fail(err)

	second := s.next()
	require.Greater(t, second.token(), ahead)
	require.NoError(t, db.sign(second.ctx, "second"))
	second.give("done")
	require.NoError(t, run.Get(e.ctx(), nil))
	require.Len(t, seen.kind(primitives.EventTokenRegressed), 1)
	require.Len(t, e.logs.with("WARN fencekit: a store has seen a higher token"), 1)
	s.over()
}

// A stale write of a real zombie is a lost lease, and raises nothing.
func TestNoFloorIsRaisedForAZombie(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("sign", interceptor.Policy{LeaseTTL: forever}))
	db, seen, s := e.bank(), e.watch(), newStage(e, "sign")
	e.worker(s.register)
	run := e.start(staged("sign", "x", 2*time.Second))
	first, second := s.next(), s.next()
	require.NoError(t, db.sign(second.zombie(), "second"))
	err := db.sign(first.zombie(), "first")
	require.ErrorIs(t, err, fence.ErrStale)
	first.fail(err)
	second.give("done")
	s.giveAll()
	require.NoError(t, run.Get(e.ctx(), nil))
	eventually(t, "the end of the zombie", func() bool {
		return len(seen.kind(primitives.EventLost))+len(seen.kind(primitives.EventFailed)) > 0
	})
	require.Empty(t, seen.kind(primitives.EventTokenRegressed))
}

// G10: a worker that lacks the guard works the same queue. The database refuses what it
// writes, until a guarded worker has the task.
func TestUnguardedWorkerIsRefusedByAnEnforcedTable(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("sign", interceptor.Policy{}))
	db := e.bank()
	enforced := accounts
	enforced.Enforced = true
	require.NoError(t, pgxfence.Enforce(e.ctx(), db.Pool, enforced, ""))
	refused := make(chan error, 99)
	old := worker.New(e.client, e.queue, worker.Options{})
	old.RegisterWorkflowWithOptions(runOne, workflow.RegisterOptions{Name: "run-one"})
	named("sign", func(ctx context.Context, _ string) (string, error) {
		_, err := db.Exec(ctx, `UPDATE accounts SET owner = 'old code'`)
		select {
		case refused <- err:
		default: // one is enough
		}
		return "by old code", err
	})(old)
	require.NoError(t, old.Start())
	run := e.start(staged("sign", "x", 5*time.Second)) // a task may be lost with the worker that stops
	require.ErrorContains(t, await(t, refused, "the old worker's write"), "ZF002")
	old.Stop()

	e.worker(named("sign", func(ctx context.Context, _ string) (string, error) {
		return "guarded", enforcedSign(ctx, db, enforced)
	}))
	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "guarded", out)
	_, owner := db.account()
	require.Equal(t, "guarded", owner)
}

func enforcedSign(ctx context.Context, db *bank, t pgxfence.Table) error {
	return t.Update(ctx, db.Pool, pgxfence.Change{Key: pgxfence.Values{"id": int64(1)}, Set: pgxfence.Values{"owner": "guarded"}})
}

// The Seal hook meets a database that has seen a higher token: the floor is raised before
// any body has run.
func TestFloorIsRaisedAfterAStaleSeal(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	db, seen, s := e.bank(), e.watch(), newStage(e, "sign")
	const ahead = 1 << 60
	_, err := db.Exec(e.ctx(), `INSERT INTO fencekit.fence (resource, token) VALUES ('account/1', $1)`, int64(ahead))
	require.NoError(t, err)
	e.opts.Guards = []interceptor.Guard{interceptor.For("sign", interceptor.Policy{
		LeaseTTL: forever, Resource: resource("account/1"), Seal: pgxfence.Sealer(db.Pool)})}
	e.worker(s.register)
	run := e.start(staged("sign", "x", forever))
	r := s.next()
	require.Greater(t, r.info.Attempt, int32(1))
	require.Greater(t, r.token(), fence.Value(ahead))
	require.NoError(t, db.signInTx(r.ctx, "signed"))
	r.give("done")
	require.NoError(t, run.Get(e.ctx(), nil))
	require.Len(t, seen.kind(primitives.EventTokenRegressed), 1)
}

// An error of the Ledger hook fails the attempt, as it is, before anything has run, and
// is told like every other refusal.
func TestLedgerHookFails(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	m, seen, s := e.metered(), e.watch(), newStage(e, "work")
	ledger := func(context.Context, string) (any, bool, error) {
		return nil, false, temporal.NewApplicationError("the database is down", "Down")
	}
	e.opts.Guards = []interceptor.Guard{interceptor.For("work", interceptor.Policy{LeaseTTL: forever, Ledger: ledger})}
	e.worker(s.register)
	_, err := e.run(once("work", "x"))
	require.Equal(t, "Down", failure(t, err).Type())
	s.over()
	require.Len(t, seen.kind(primitives.EventRefused), 1)
	require.Equal(t, map[string]int64{"other": 1}, m.calls())
}
