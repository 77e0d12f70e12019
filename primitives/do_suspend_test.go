package primitives

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// A body that leaves its result to somebody else hands its claim over as text.
func TestABodyHandsItsClaimOver(t *testing.T) {
	behaviour(t, func(e *env) {
		later := errors.New("the result comes later")
		g := e.guard(GuardOptions{Judge: func(ctx context.Context, err error) Verdict {
			_, inside := AttemptFromContext(ctx)
			require.True(e, inside, "Judge gets the body's context")
			if errors.Is(err, later) {
				return Suspend(time.Hour)
			}
			return Abort
		}})
		op, text := e.op(), []byte(nil)
		_, err := g.Do(e.ctx(), op, func(ctx context.Context) (_ []byte, err error) {
			a, ok := AttemptFromContext(ctx)
			require.True(e, ok)
			text, err = a.ClaimText()
			require.NoError(e, err)
			return nil, later
		})
		require.Same(e, later, err)
		_, err = g.Do(e.ctx(), op, (&counted{}).body)
		require.ErrorIs(e, err, ErrBusy)

		claim, err := g.ParseClaim(text)
		require.NoError(e, err)
		require.NoError(e, claim.Complete(e.ctx(), []byte("late")))
		r, err := g.Do(e.ctx(), op, (&counted{}).body)
		require.NoError(e, err)
		require.Equal(e, "late", string(r.Memo))
	})
}

func TestAnUnguardedAttemptHasNoClaim(t *testing.T) {
	_, err := Attempt{}.ClaimText()
	require.ErrorIs(t, err, ErrInvalid)
}

// A call's own patience cuts the guard's wait short, and never makes a call wait.
func TestPatience(t *testing.T) {
	behaviour(t, func(e *env) {
		e.hold("r")
		g := e.guard(GuardOptions{Wait: time.Hour})
		_, err := g.Begin(e.ctx(), Op{Key: e.key(), Resource: "r", Patience: 30 * time.Millisecond})
		require.ErrorIs(e, err, ErrBusy)
		require.Zero(e, e.waiters("r"))
		_, err = e.guard(GuardOptions{}).Begin(e.ctx(), Op{Key: e.key(), Resource: "r", Patience: time.Hour})
		require.ErrorIs(e, err, ErrBusy)
		_, err = g.Begin(e.ctx(), Op{Key: e.key(), Patience: -1})
		var o *OptionError
		require.ErrorAs(e, err, &o)
		require.Equal(e, "Patience", o.Field)
	})
}

// panics is a hook of the client's that panics while it is armed.
type panics struct{ on func() bool }

func (panics) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p panics) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if p.on() {
			panic("hook")
		}
		return next(ctx, cmd)
	}
}

func (p panics) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if p.on() {
			panic("hook")
		}
		return next(ctx, cmds)
	}
}

// A hook of the client's that panics is an unavailable Redis: in the goroutine of the
// caller, in that which calls a client that ignores contexts, and in the one that
// renews, where it would end the process. The lease is lost at its deadline.
func TestAPanickingHook(t *testing.T) {
	t.Parallel()
	for name, direct := range map[string]bool{"direct": true, "abandonable": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := onRedis(func(o *redis.Options) { o.ContextTimeoutEnabled = direct })(t)
			e := newEnv(t, rdb, true)
			armed := make(chan struct{})
			rdb.AddHook(panics{func() bool {
				select {
				case <-armed:
					return true
				default:
					return false
				}
			}})
			lease, err := e.store.Acquire(e.ctx(), "r", LeaseOptions{TTL: 300 * time.Millisecond})
			require.NoError(t, err)
			held, stop := lease.Keep(e.ctx())
			defer stop()
			close(armed)
			<-held.Done()
			require.ErrorIs(t, context.Cause(held), fence.ErrLeaseLost)

			short := e.storeOn(rdb, Options{Timeout: 100 * time.Millisecond})
			_, err = short.TryAcquire(e.ctx(), "s", LeaseOptions{})
			require.ErrorIs(t, err, ErrUnavailable)
			require.ErrorContains(t, err, "panicked: hook")
		})
	}
}
