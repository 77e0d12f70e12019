package primitives

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// without is a client on which some scripts fail, at once and for good.
type without struct {
	Client
	broken []*script
}

func (c without) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	for _, s := range c.broken {
		if s.sha == sha {
			cmd := redis.NewCmd(ctx)
			cmd.SetErr(redis.ErrClosed)
			return cmd
		}
	}
	return c.Client.EvalSha(ctx, sha, keys, args...)
}

// broken is a guard for which some scripts fail.
func (e *env) broken(opts GuardOptions, scripts ...*script) *Guard {
	e.Helper()
	store, err := New(without{e.store.client, scripts}, e.store.opts)
	require.NoError(e, err)
	g, err := NewGuard(store, opts)
	require.NoError(e, err)
	return g
}

// events remembers what it is told.
type events struct{ list []Event }

func (o *events) Observe(_ context.Context, e Event) { o.list = append(o.list, e) }

func (o *events) kinds() (kinds []EventKind) {
	for _, e := range o.list {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// C18: the effect has happened and its memo cannot be stored: failing would have the
// effect repeated, so the call succeeds, and says so once.
func TestDoSucceedsWithoutItsMemo(t *testing.T) {
	behaviour(t, func(e *env) {
		seen, op := &events{}, e.op()
		g := e.broken(GuardOptions{Observer: seen}, &e.store.scripts.complete)
		body := &counted{memo: "memo"}
		r, err := g.Do(e.ctx(), op, body.body)
		require.NoError(e, err)
		require.Equal(e, "memo", string(r.Memo))
		require.False(e, r.MemoStored)
		require.Equal(e, []EventKind{EventBegan, EventMemoFailed}, seen.kinds())
		require.ErrorIs(e, seen.list[1].Err, ErrUnavailable)
		require.Equal(e, 4, seen.list[1].Bytes)
		require.Equal(e, Running, e.status(op).State)

		v, err := Do(e.ctx(), g, e.op(), func(context.Context) (int, error) { return 7, nil })
		require.NoError(e, err)
		require.Equal(e, 7, v)
	})
}

func TestStrictMemoFailsWithoutItsMemo(t *testing.T) {
	behaviour(t, func(e *env) {
		seen := &events{}
		g := e.broken(GuardOptions{StrictMemo: true, Observer: seen}, &e.store.scripts.complete)
		r, err := g.Do(e.ctx(), e.op(), (&counted{memo: "memo"}).body)
		require.ErrorIs(e, err, ErrUnavailable)
		require.Equal(e, "memo", string(r.Memo))
		require.Equal(e, []EventKind{EventBegan, EventMemoFailed}, seen.kinds())
	})
}

// The lease is gone, and Redis cannot say whether somebody came: that is no success.
func TestDoWithALostLeaseAndNoAnswerIsLost(t *testing.T) {
	behaviour(t, func(e *env) {
		g := e.broken(GuardOptions{RenewEvery: 10 * time.Millisecond}, &e.store.scripts.complete)
		op := e.op()
		_, err := g.Do(e.ctx(), op, func(ctx context.Context) ([]byte, error) {
			e.expire(op.resource())
			<-ctx.Done()
			return []byte("m"), nil
		})
		require.ErrorIs(e, err, fence.ErrLeaseLost)
	})
}

// C19: without Redis the body does not run.
func TestDoFailsClosed(t *testing.T) {
	behaviour(t, func(e *env) {
		seen, body := &events{}, &counted{}
		g := e.broken(GuardOptions{Observer: seen}, &e.store.scripts.begin)
		_, err := g.Do(e.ctx(), e.op(), body.body)
		require.ErrorIs(e, err, ErrUnavailable)
		require.ErrorIs(e, err, redis.ErrClosed)
		require.Zero(e, body.runs.Load())
		require.Equal(e, []EventKind{EventRefused}, seen.kinds())
		require.Equal(e, err, seen.list[0].Err)
	})
}

// C19, E26: FailOpen runs the body without any token, also inside another guard.
func TestFailOpenRunsWithoutAToken(t *testing.T) {
	behaviour(t, func(e *env) {
		seen := &events{}
		open := e.broken(GuardOptions{FailOpen: true, Observer: seen}, &e.store.scripts.begin)
		inner := e.op()
		unguarded := func(ctx context.Context) ([]byte, error) {
			_, err := fence.FromContext(ctx)
			require.ErrorIs(e, err, fence.ErrNoToken)
			for _, resource := range []string{"outer", inner.resource()} {
				_, err = fence.ForResource(ctx, resource)
				require.ErrorIs(e, err, fence.ErrNoToken)
			}
			a, ok := AttemptFromContext(ctx)
			require.True(e, ok)
			require.Equal(e, Attempt{Key: inner.Key, Outcome: Unguarded}, a, "not that of the guard outside")
			return []byte("m"), nil
		}
		want := Result{Outcome: Unguarded, Memo: []byte("m")}
		r, err := open.Do(e.ctx(), inner, unguarded)
		require.NoError(e, err)
		require.Equal(e, want, r)
		require.Equal(e, []EventKind{EventUnguarded}, seen.kinds())

		outer := e.op()
		outer.Resource = "outer"
		_, err = e.guard(GuardOptions{}).Do(e.ctx(), outer, func(ctx context.Context) ([]byte, error) {
			r, err := open.Do(ctx, inner, unguarded)
			require.NoError(e, err)
			require.Equal(e, want, r)
			_, err = fence.ForResource(ctx, "outer")
			require.NoError(e, err)
			return nil, nil
		})
		require.NoError(e, err)
		_, err = open.Do(e.ctx(), inner, func(context.Context) ([]byte, error) { return nil, errStop })
		require.Same(e, errStop, err)
	})
}

// FailOpen is for a Redis that is away, not for an answer that says no.
func TestFailOpenHeedsEveryRefusal(t *testing.T) {
	behaviour(t, func(e *env) {
		g, body := e.guard(GuardOptions{FailOpen: true}), &counted{}
		busy, bad := e.op(), e.op()
		e.claim(g, busy)
		require.NoError(e, e.rdb.Set(e.ctx(), e.record(bad), "x", time.Minute).Err())
		for op, want := range map[Op]error{busy: ErrBusy, bad: ErrCorrupt, {}: ErrInvalid} {
			_, err := g.Do(e.ctx(), op, body.body)
			require.ErrorIs(e, err, want)
		}
		require.Zero(e, body.runs.Load())
	})
}

// A caller whose own deadline ends while Redis hangs is told that, and is not let in
// by FailOpen.
func TestDeadlineWhileRedisHangs(t *testing.T) {
	t.Parallel()
	for _, direct := range []bool{true, false} {
		t.Run(fmt.Sprintf("context timeouts %t", direct), func(t *testing.T) {
			t.Parallel()
			proxy := devstack.ProxyForTest(t, redisAddr(t))
			proxy.Freeze()
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: direct, MaxRetries: -1})
			t.Cleanup(func() { _ = rdb.Close() })
			e := newEnv(t, rdb, true)
			e.store.opts.Timeout = 200 * time.Millisecond // it is spent on cleaning up
			g, body := e.guard(GuardOptions{FailOpen: true}), &counted{}
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				_, err := g.Do(ctx, e.op(), body.body)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, ErrUnavailable)
				cancel()
			}
			require.Zero(t, body.runs.Load())
		})
	}
}

// Cleaning up can fail too: the error of the body comes first.
func TestDoReturnsTheErrorOfTheBodyThoughCleaningUpFails(t *testing.T) {
	behaviour(t, func(e *env) {
		seen := &events{}
		g := e.broken(GuardOptions{Observer: seen}, &e.store.scripts.abort)
		_, err := g.Do(e.ctx(), e.op(), func(context.Context) ([]byte, error) { return nil, errStop })
		require.Same(e, errStop, err)
		require.Equal(e, []EventKind{EventBegan, EventFailed, EventAbortFailed}, seen.kinds())
		require.PanicsWithError(e, errStop.Error(), func() {
			_, _ = g.Do(e.ctx(), e.op(), func(context.Context) ([]byte, error) { panic(errStop) })
		})
	})
}

// A closed client is no reason to wait for the budget.
func TestDoOnAClosedClient(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	require.NoError(t, rdb.Close())
	store, err := New(rdb, Options{Timeout: time.Hour})
	require.NoError(t, err)
	g, err := NewGuard(store, GuardOptions{})
	require.NoError(t, err)
	key, err := NewKey("test", "x")
	require.NoError(t, err)
	body := &counted{}
	_, err = g.Do(t.Context(), Op{Key: key}, body.body)
	require.ErrorIs(t, err, ErrUnavailable)
	require.True(t, errors.Is(err, redis.ErrClosed))
	require.Zero(t, body.runs.Load())
}
