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

func TestOneHolderAtATime(t *testing.T) {
	behaviour(t, func(e *env) {
		before := time.Now()
		first, err := e.store.TryAcquire(e.ctx(), "r", LeaseOptions{TTL: time.Minute, Holder: "first"})
		require.NoError(e, err)
		require.Equal(e, "r", first.Token().Resource)
		require.True(e, first.Token().Valid())
		require.WithinRange(e, first.Deadline(), before, before.Add(time.Minute))

		_, err = e.other().TryAcquire(e.ctx(), "r", LeaseOptions{})
		var busy *BusyError
		require.ErrorAs(e, err, &busy)
		require.Equal(e, []any{"r", "first", first.Token().Value}, []any{busy.Resource, busy.Holder, busy.Token})
		require.Positive(e, busy.Remaining)
		require.LessOrEqual(e, busy.Remaining, time.Minute)
		require.WithinDuration(e, time.Now(), busy.Since, time.Hour)

		require.NoError(e, first.Release(e.ctx()))
		second, err := e.other().TryAcquire(e.ctx(), "r", LeaseOptions{})
		require.NoError(e, err)
		require.Greater(e, second.Token().Value, first.Token().Value)
		require.NotEqual(e, first.Token().Owner, second.Token().Owner)
	})
}

// B04, B05: whatever Redis has forgotten of a resource, the next token is higher.
func TestTokensIncreaseWhateverIsForgotten(t *testing.T) {
	behaviour(t, func(e *env) {
		n := e.store.names.resource("r")
		last := e.hold("r").Token().Value
		for _, forgotten := range [][]string{{n.lease()}, {n.lease(), n.token()}, {n.token(), n.lease(), n.queue(), n.waiters()}} {
			for _, name := range forgotten {
				require.NoError(e, e.rdb.Del(e.ctx(), name).Err())
			}
			token := e.hold("r").Token().Value
			require.Greater(e, token, last)
			last = token
		}
	})
}

// B04: the whole server loses everything, by FLUSHALL and by a restart.
func TestTokensIncreaseAfterFlushAndRestart(t *testing.T) {
	t.Parallel()
	server := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	e := newEnv(t, server.Client(), true)
	old := e.hold("r")
	last := old.Token().Value
	for _, lose := range []func() error{
		func() error { return e.rdb.FlushAll(e.ctx()).Err() },
		func() error { return server.Restart(e.ctx()) },
	} {
		require.NoError(t, lose())
		eventually(t, "the server answers", func() bool { return e.rdb.Ping(e.ctx()).Err() == nil })
		require.ErrorIs(t, old.Extend(e.ctx(), 0), fence.ErrLeaseLost)
		next := e.hold("r")
		require.Greater(t, next.Token().Value, last)
		require.ErrorIs(t, old.Extend(e.ctx(), 0), fence.ErrLeaseLost)
		old, last = next, next.Token().Value
	}
}

// B05: every key of a resource has expired by itself, and the next token is higher.
func TestTokensIncreaseAfterEveryKeyHasExpired(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	e.store = e.storeOn(e.rdb, Options{Prefix: e.store.opts.Prefix, Timeout: patience, TokenRetention: minTokenRetention})
	first, err := e.store.TryAcquire(e.ctx(), "r", LeaseOptions{TTL: 4 * time.Second})
	require.NoError(t, err)
	eventually(t, "all keys expire", func() bool { return len(e.stored()) == 0 })
	require.Greater(t, e.hold("r").Token().Value, first.Token().Value)
}

func TestFloorRaisesTheToken(t *testing.T) {
	behaviour(t, func(e *env) {
		floor := e.hold("other").Token().Value + 1<<45
		l, err := e.store.TryAcquire(e.ctx(), "r", LeaseOptions{Floor: floor})
		require.NoError(e, err)
		require.Greater(e, l.Token().Value, floor)
		require.NoError(e, l.Release(e.ctx()))
		require.Greater(e, e.hold("r").Token().Value, l.Token().Value, "the floor is remembered")
	})
}

// B01: a repeated acquisition, as after a lost reply, is the same grant.
func TestTheSameNonceGetsTheSameGrant(t *testing.T) {
	behaviour(t, func(e *env) {
		opts := LeaseOptions{TTL: time.Minute}
		l := e.store.newLease("r", opts)
		require.NoError(e, l.try(e.ctx(), opts, &place{}))
		token := l.Token()
		require.NoError(e, l.try(e.ctx(), opts, &place{}))
		require.Equal(e, token, l.Token())
	})
}

func TestExtendNeverRevivesAndNeverShortens(t *testing.T) {
	behaviour(t, func(e *env) {
		name := e.store.names.resource("r").lease()
		l, err := e.store.TryAcquire(e.ctx(), "r", LeaseOptions{TTL: time.Hour})
		require.NoError(e, err)
		deadline := l.Deadline()
		require.NoError(e, l.Extend(e.ctx(), minLease))
		require.Equal(e, deadline, l.Deadline())
		require.Greater(e, e.rdb.PTTL(e.ctx(), name).Val(), time.Minute)
		require.NoError(e, l.Extend(e.ctx(), 2*time.Hour))
		require.Greater(e, l.Deadline(), deadline.Add(50*time.Minute))
		require.Greater(e, e.rdb.PTTL(e.ctx(), name).Val(), time.Hour)

		e.expire("r")
		for range 2 {
			err := l.Extend(e.ctx(), 0)
			var lost *LostError
			require.ErrorAs(e, err, &lost)
			require.Equal(e, LostError{Resource: "r", Token: l.Token().Value, Step: "extend"}, *lost)
			require.Zero(e, e.rdb.Exists(e.ctx(), name).Val(), "it was revived")
		}
	})
}

// B06: a release that comes too late touches nobody else's lease.
func TestReleaseNeverDropsSomebodyElsesLease(t *testing.T) {
	behaviour(t, func(e *env) {
		late := e.hold("r")
		e.expire("r")
		next, err := e.other().TryAcquire(e.ctx(), "r", LeaseOptions{Holder: "next"})
		require.NoError(e, err)

		var lost *LostError
		require.ErrorAs(e, late.Release(e.ctx()), &lost)
		require.Equal(e, LostError{Resource: "r", Token: late.Token().Value, Step: "release", Holder: "next"}, *lost)
		info, err := e.store.Inspect(e.ctx(), "r")
		require.NoError(e, err)
		require.Equal(e, next.Token().Value, info.Token)
		require.Equal(e, next.Token().Owner, info.nonce)
		require.Positive(e, info.Remaining)
		require.NoError(e, next.Extend(e.ctx(), 0))
	})
}

// B02's kind: a release whose reply was lost is repeated, also when the next holder has
// come meanwhile.
func TestReleaseMayBeRepeated(t *testing.T) {
	behaviour(t, func(e *env) {
		l := e.hold("r")
		require.NoError(e, l.Release(e.ctx()))
		require.NoError(e, l.Release(e.ctx()))
		next := e.hold("r")
		require.NoError(e, l.Release(e.ctx()))
		require.NoError(e, next.Extend(e.ctx(), 0))
	})
}

// B16: giving up works on a context that has ended.
func TestReleaseWorksOnAnEndedContext(t *testing.T) {
	behaviour(t, func(e *env) {
		ctx, cancel := context.WithCancel(e.ctx())
		err := e.store.Hold(ctx, "r", LeaseOptions{}, func(held context.Context) error {
			cancel()
			<-held.Done()
			return context.Cause(held)
		})
		require.Equal(e, context.Canceled, err)
		require.NoError(e, e.hold("r").Release(ctx))
		e.hold("r")
	})
}

func TestHoldReturnsWhatItsFunctionReturns(t *testing.T) {
	behaviour(t, func(e *env) {
		own := errors.New("own")
		var token fence.Token
		err := e.store.Hold(e.ctx(), "r", LeaseOptions{}, func(held context.Context) (err error) {
			token, err = fence.ForResource(held, "r")
			require.NoError(e, err)
			_, err = e.store.TryAcquire(e.ctx(), "r", LeaseOptions{})
			require.ErrorIs(e, err, ErrBusy)
			return own
		})
		require.Equal(e, own, err)
		require.Panics(e, func() {
			_ = e.store.Hold(e.ctx(), "r", LeaseOptions{}, func(context.Context) error { panic("at work") })
		})
		require.Greater(e, e.hold("r").Token().Value, token.Value, "it was not released")
	})
}

func TestHoldTellsThatTheLeaseWasLost(t *testing.T) {
	behaviour(t, func(e *env) {
		opts := LeaseOptions{TTL: 600 * time.Millisecond}
		err := e.store.Hold(e.ctx(), "r", opts, func(held context.Context) error {
			e.expire("r")
			<-held.Done()
			return nil
		})
		require.ErrorIs(e, err, fence.ErrLeaseLost)
	})
}

// B19: taken, lost on renewal and lost on release are three errors, and stay so when
// they are wrapped.
func TestTakenAndLostAreDifferentErrors(t *testing.T) {
	behaviour(t, func(e *env) {
		l := e.hold("r")
		_, taken := e.store.TryAcquire(e.ctx(), "r", LeaseOptions{})
		e.expire("r")
		extend, release := l.Extend(e.ctx(), 0), l.Release(e.ctx())
		wrap := func(err error) error { return fmt.Errorf("activity: %w", err) }

		require.ErrorIs(e, wrap(taken), ErrBusy)
		require.NotErrorIs(e, wrap(taken), fence.ErrLeaseLost)
		for step, err := range map[string]error{"extend": extend, "release": release} {
			require.ErrorIs(e, wrap(err), fence.ErrLeaseLost)
			require.NotErrorIs(e, wrap(err), ErrBusy)
			var lost *LostError
			require.ErrorAs(e, wrap(err), &lost)
			require.Equal(e, step, lost.Step)
		}
	})
}

// slow delays the replies of scripts.
type slow struct{ by time.Duration }

func (s slow) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s slow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		time.Sleep(s.by)
		return err
	}
}

// C06: a grant that has run out when it arrives is none.
func TestAGrantThatComesTooLateIsNone(t *testing.T) {
	behaviour(t, func(e *env) {
		e.store.client.(interface{ AddHook(redis.Hook) }).AddHook(slow{by: minLease})
		l, err := e.store.TryAcquire(e.ctx(), "r", LeaseOptions{TTL: minLease})
		var lost *LostError
		require.ErrorAs(e, err, &lost)
		require.Equal(e, "begin", lost.Step)
		require.Nil(e, l)
		e.hold("r")
	})
}

// C06: an ended context starts nothing.
func TestAnEndedContextAcquiresNothing(t *testing.T) {
	behaviour(t, func(e *env) {
		own := errors.New("own")
		ctx, cancel := context.WithCancelCause(e.ctx())
		cancel(own)
		_, err := e.store.TryAcquire(ctx, "r", LeaseOptions{})
		require.Equal(e, own, err)
		_, err = e.guard(GuardOptions{}).Begin(ctx, e.op())
		require.Equal(e, own, err)
		_, err = e.store.TryBegin(ctx, e.op(), RecordOptions{})
		require.Equal(e, own, err)
		require.Empty(e, e.stored())
	})
}

// C06: every key has an expiry after every step, and a lease's is not above its TTL.
func TestEveryKeyAlwaysExpires(t *testing.T) {
	behaviour(t, func(e *env) {
		for _, f := range features(e, "ttl") {
			f.use()
			for _, name := range e.stored() {
				left := e.rdb.PTTL(e.ctx(), name).Val()
				require.NotEqual(e, time.Duration(-1), left, "after %s, %s never expires", f.name, name)
				require.NotZero(e, left, "after %s, %s", f.name, name)
				if kind := name[len(name)-len("lease"):]; kind == "lease" {
					require.LessOrEqual(e, left, time.Minute)
				}
			}
		}
	})
}
