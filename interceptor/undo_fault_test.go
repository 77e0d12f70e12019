package interceptor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
)

// N15: a compensation that fails, or panics, has undone nothing when its next attempt
// begins, and what that notes counts.
func TestN15ACompensationThatFailsUndoesNothing(t *testing.T) {
	t.Parallel()
	u := newUndoing(t, shared(oncePerNamespace), shared(interceptor.Policy{}))
	states := make(chan primitives.State, 9)
	inner := u.undo
	u.undo = func(ctx context.Context, arg string) (interceptor.Undone, error) {
		undone, err := inner(ctx, arg)
		if err != nil {
			return undone, err
		}
		r, err := u.store().Status(ctx, primitives.Op{Key: undone.Key, Resource: "shared"})
		states <- r.State
		switch n := activity.GetInfo(ctx).Attempt; {
		case err != nil:
		case n == 1:
			err = errors.New("it fails")
		case n == 2:
			panic("it dies")
		}
		return undone, err
	}
	u.start()
	undo := call("undo", "x").attempts(3)
	_, got := u.steps(call("work", "x"), undo, call("work", "x"), call("work", "x"))
	require.Equal(t, []any{1.0, "undone", 2.0, 2.0}, got)
	for range 3 {
		require.Equal(t, primitives.Done, <-states)
	}
}

// N15: a compensation that was given up by Temporal thaws when its next attempt has undone
// the call and that was made again. Its end undoes nothing.
func TestN15AZombieUndoesNothing(t *testing.T) {
	t.Parallel()
	u := newUndoing(t, shared(oncePerNamespace), shared(interceptor.Policy{LeaseTTL: forever}))
	seen, thaw := u.watch(), make(chan struct{})
	inner := u.undo
	u.undo = func(ctx context.Context, arg string) (interceptor.Undone, error) {
		undone, err := inner(ctx, arg)
		if activity.GetInfo(ctx).Attempt == 1 {
			<-thaw
		}
		return undone, err
	}
	u.start()
	undo := staged("undo", "x", 2*time.Second)
	_, got := u.steps(call("work", "x"), undo, call("work", "x"))
	require.Equal(t, []any{1.0, "undone", 2.0}, got)
	close(thaw)
	eventually(t, "the end of the zombie", func() bool { return len(seen.kind(primitives.EventLost)) > 0 })
	_, got = u.steps(call("work", "x"))
	require.Equal(t, []any{2.0}, got)
}

// N15: every reply of the step that completes the compensation and undoes is lost. The
// attempt fails, and its next one is replayed, because it was done; the call runs anew.
func TestN15EveryReplyToAnUndoIsLost(t *testing.T) {
	t.Parallel()
	u := newUndoing(t, shared(oncePerNamespace), shared(interceptor.Policy{LeaseTTL: forever}))
	proxy := devstack.ProxyForTest(t, u.rdb.Options().Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true, ReadTimeout: 100 * time.Millisecond, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	u.opts.Redis, u.opts.Store.Timeout = rdb, 3*time.Second
	seen := u.watch()
	var losing atomic.Bool
	script := devstack.Named("EVALSHA")
	proxy.Add(devstack.Rule{Match: func(c devstack.Command) bool { return losing.Load() && script(c) }, Fault: devstack.DropReply()})
	inner := u.undo
	u.undo = func(ctx context.Context, arg string) (interceptor.Undone, error) {
		undone, err := inner(ctx, arg)
		losing.Store(true)
		return undone, err
	}
	u.start()
	_, got := u.steps(call("work", "x"))
	require.Equal(t, []any{1.0}, got)
	run := u.env.start(staged("undo", "x", time.Minute))
	eventually(t, "the memo to be given up", func() bool { return len(seen.kind(primitives.EventMemoFailed)) == 1 })
	losing.Store(false)
	var out string
	require.NoError(t, run.Get(u.ctx(), &out))
	require.Equal(t, "undone", out)
	require.Len(t, u.seen, 1, "its body ran once")
	_, got = u.steps(call("work", "x"))
	require.Equal(t, []any{2.0}, got)
}

// N15: the result of a compensation comes from elsewhere. What it undoes travels with it,
// so it is noted before.
func TestN15AnUndoWhoseResultComesFromElsewhere(t *testing.T) {
	t.Parallel()
	u := newUndoing(t, shared(oncePerNamespace), shared(interceptor.Policy{LeaseTTL: forever}))
	texts, late := make(chan []byte, 1), make(chan error, 1)
	kit := u.interceptor()
	u.workerWith(kit, and(named("work", u.work), named("undo", func(ctx context.Context, arg string) (string, error) {
		if _, err := interceptor.Undo(ctx, "work", arg); err != nil {
			return "", err
		}
		text, err := interceptor.Pending(ctx)
		if err != nil {
			return "", err
		}
		_, err = interceptor.Undo(ctx, "work", "another")
		late <- err
		texts <- text
		return "", activity.ErrResultPending
	})))
	u.steps(call("work", "x"))
	run := u.env.start(call("undo", "x"))
	require.ErrorContains(t, await(t, late, "the second undo"), "was written as text")
	text := await(t, texts, "the first")
	u.suspended(kit)
	require.NoError(t, kit.Complete(u.ctx(), u.client, text, "undone", nil))
	require.NoError(t, run.Get(u.ctx(), nil))
	_, got := u.steps(call("work", "x"))
	require.Equal(t, []any{2.0}, got)
}

// N15: a ledger's answer may be that of a run that was undone. It does not count while
// Redis cannot say.
func TestN15ALedgerWithoutRedis(t *testing.T) {
	t.Parallel()
	ledger := func(context.Context, string) (any, bool, error) { return "undone long ago", true, nil }
	e := newEnv(t, interceptor.For("work", interceptor.Policy{Scope: interceptor.ScopeNamespace, Ledger: ledger}))
	own := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	e.opts.Redis, e.opts.Store.Timeout = own.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }), time.Second
	require.NoError(t, own.Kill())
	e.worker(named("work", func(context.Context, string) error { t.Error("it ran"); return nil }))
	_, err := e.run(call("work", "x").once())
	require.Equal(t, interceptor.TypeUnavailable, failure(t, err).Type())
}

// N15: a compensation that no workflow has started undoes by a business key, and nothing
// that belongs to a workflow.
func TestN15AStandaloneCompensation(t *testing.T) {
	t.Parallel()
	u := newUndoing(t, shared(oncePerNamespace), shared(interceptor.Policy{}))
	u.opts.Guards = append(u.opts.Guards, interceptor.For("of a run", shared(interceptor.Policy{Scope: interceptor.ScopeRun})))
	kit, results := u.interceptor(), []any{}
	standalone := func(name, arg string, fn any) (out any, err error) {
		var suite testsuite.WorkflowTestSuite
		suite.SetLogger(u.logs)
		a := suite.NewTestActivityEnvironment().SetExecuteActivitiesInWorkflow(false)
		a.SetWorkerOptions(worker.Options{Interceptors: []interceptorOf{kit}})
		a.RegisterActivityWithOptions(fn, registerAs(name))
		v, err := a.ExecuteActivity(name, arg)
		if err == nil && v.HasValue() {
			err = v.Get(&out)
		}
		return out, err
	}
	undo := func(ctx context.Context, arg string) (string, error) {
		_, err := interceptor.Undo(ctx, "of a run", arg)
		if want := "Policy.Scope: of of a run is run, and the compensation is part of no workflow"; err == nil || err.Error() != "fencekit: "+want {
			return "", errors.Join(errors.New("it was not refused"), err)
		}
		_, err = interceptor.Undo(ctx, "work", arg)
		return "undone", err
	}
	for _, c := range []struct {
		name string
		fn   any
	}{{"work", u.work}, {"work", u.work}, {"undo", undo}, {"work", u.work}} {
		out, err := standalone(c.name, "x", c.fn)
		require.NoError(t, err)
		results = append(results, out)
	}
	require.Equal(t, []any{1.0, 1.0, "undone", 2.0}, results)
}
