package primitives

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// isOver waits for a context of Keep to end as a lease's does.
func isOver(e *env, held context.Context) {
	e.Helper()
	<-held.Done()
	require.ErrorIs(e, context.Cause(held), fence.ErrLeaseLost)
}

// Whatever call learns that the lease is over ends the contexts that keep it, at once
// and not at the next renewal; and there is nothing to keep after that.
func TestAKeptContextEndsWithTheLease(t *testing.T) {
	ends := map[string]func(*env, *Lease){
		"release": func(e *env, l *Lease) { require.NoError(e, l.Release(e.ctx())) },
		"a lost extension": func(e *env, l *Lease) {
			e.expire("r")
			require.ErrorIs(e, l.Extend(e.ctx(), 0), fence.ErrLeaseLost)
		},
		"a lost release": func(e *env, l *Lease) {
			e.expire("r")
			require.ErrorIs(e, l.Release(e.ctx()), fence.ErrLeaseLost)
		},
	}
	behaviour(t, func(e *env) {
		for _, end := range ends {
			l, err := e.store.TryAcquire(e.ctx(), "r", LeaseOptions{TTL: 24 * time.Hour})
			require.NoError(e, err)
			held, stop := l.Keep(e.ctx())
			end(e, l)
			isOver(e, held)
			again, stopAgain := l.Keep(e.ctx())
			isOver(e, again)
			require.Empty(e, e.store.keeper.all, "nothing is renewed any more")
			stop()
			stopAgain()
		}
	})
}

// A lease whose deadline has passed is not kept by keeping it late.
func TestKeepAfterTheDeadlineKeepsNothing(t *testing.T) {
	behaviour(t, func(e *env) {
		l := e.hold("r")
		l.mu.Lock()
		l.deadline = time.Now().Add(-time.Second)
		l.mu.Unlock()
		held, stop := l.Keep(e.ctx())
		defer stop()
		isOver(e, held)
		eventually(e, "it is not renewed", func() bool {
			e.store.keeper.mu.Lock()
			defer e.store.keeper.mu.Unlock()
			return len(e.store.keeper.all) == 0
		})
	})
}

// B01: an attempt of a begin or an acquire that arrives after its caller has given up
// takes nothing.
func TestAnAttemptThatComesAfterGivingUpTakesNothing(t *testing.T) {
	behaviour(t, func(e *env) {
		opts, err := LeaseOptions{}.withDefaults()
		require.NoError(e, err)
		l := e.store.newLease("r", opts)
		require.NoError(e, l.try(e.ctx(), opts, &place{}))
		l.giveUp(e.ctx())
		require.ErrorIs(e, l.try(e.ctx(), opts, &place{}), fence.ErrLeaseLost)
		require.False(e, e.inspect("r").Held)

		l = e.store.newLease("r", opts)
		l.giveUp(e.ctx()) // before any attempt has arrived
		require.ErrorIs(e, l.try(e.ctx(), opts, &place{}), fence.ErrLeaseLost)
		require.False(e, e.inspect("r").Held)

		op := e.op()
		c := e.guard(GuardOptions{}).claim(op)
		c.giveUp(e.ctx())
		_, err = c.try(e.ctx(), op, &place{})
		require.ErrorIs(e, err, fence.ErrLeaseLost)
		require.False(e, e.inspect(op.resource()).Held)
		require.Equal(e, Absent, e.status(op).State)
	})
}

// An attempt of a waiter that arrives after the waiter has left does not stand in line
// again: nobody would answer when its turn comes.
func TestAnAttemptThatComesAfterLeavingTheQueueDoesNotJoin(t *testing.T) {
	behaviour(t, func(e *env) {
		opts, err := LeaseOptions{}.withDefaults()
		require.NoError(e, err)
		e.hold("r")
		op := Op{Key: e.key(), Resource: "r"}
		p := place{channel: e.store.names.wake(newNonce())}

		l, at := e.store.newLease("r", opts), p
		require.ErrorIs(e, l.try(e.ctx(), opts, &at), ErrBusy)
		l.giveUp(e.ctx())
		require.Zero(e, e.waiters("r"))
		for _, late := range []place{p, at} {
			require.ErrorIs(e, l.try(e.ctx(), opts, &late), fence.ErrLeaseLost)
		}

		c, at := e.guard(GuardOptions{}).claim(op), p
		_, err = c.try(e.ctx(), op, &at)
		require.ErrorIs(e, err, ErrBusy)
		c.giveUp(e.ctx())
		for _, late := range []place{p, at} {
			_, err = c.try(e.ctx(), op, &late)
			require.ErrorIs(e, err, fence.ErrLeaseLost)
		}
		require.Zero(e, e.waiters("r"))
	})
}

// What was aborted, forgotten, or has no record and no token any more stores no result.
func TestAnEndedClaimStoresNothing(t *testing.T) {
	behaviour(t, func(e *env) {
		g, op := e.guard(GuardOptions{}), e.op()
		c := e.claim(g, op)
		require.NoError(e, c.Abort(e.ctx()))
		require.ErrorIs(e, c.Complete(e.ctx(), []byte("zombie")), ErrSuperseded)

		c = e.claim(g, op)
		e.expire(op.resource())
		require.NoError(e, e.store.Forget(e.ctx(), e.status(op)))
		require.ErrorIs(e, c.Complete(e.ctx(), []byte("zombie")), ErrSuperseded)

		plain := e.begin(op, RecordOptions{}).Claim
		require.NoError(e, e.rdb.Del(e.ctx(), e.record(op)).Err()) // it has expired
		other := e.begin(op, RecordOptions{}).Claim
		require.NoError(e, other.Abort(e.ctx()))
		require.ErrorIs(e, plain.Complete(e.ctx(), []byte("zombie")), ErrSuperseded)
		require.Equal(e, Absent, e.status(op).State)
	})
}

// Hold tells of a loss that only its release has found.
func TestHoldTellsWhatItsReleaseFinds(t *testing.T) {
	behaviour(t, func(e *env) {
		err := e.store.Hold(e.ctx(), "r", LeaseOptions{TTL: time.Hour}, func(context.Context) error {
			_, err := e.store.Free(e.ctx(), e.inspect("r"))
			require.NoError(e, err)
			e.hold("r")
			return nil
		})
		require.ErrorIs(e, err, fence.ErrLeaseLost)
		require.True(e, e.inspect("r").Held, "the successor's lease is left alone")
	})
}

// While a lease is renewed, the last token is not forgotten, however long that is.
func TestTheTokenIsRememberedWhileTheLeaseIsRenewed(t *testing.T) {
	behaviour(t, func(e *env) {
		l, token := e.hold("r"), e.store.names.resource("r").token()
		require.NoError(e, e.rdb.PExpire(e.ctx(), token, time.Minute).Err())
		require.NoError(e, l.Extend(e.ctx(), 0))
		require.Greater(e, e.ttl(token), time.Minute)
	})
}

// A floor holds for a caller that had to wait, too.
func TestAFloorHoldsForAWaiter(t *testing.T) {
	behaviour(t, func(e *env) {
		holder := e.hold("r")
		floor := holder.Token().Value + fence.Value(time.Hour/time.Microsecond)
		w := e.wait(e.store, "r", LeaseOptions{Floor: floor})
		require.NoError(e, holder.Release(e.ctx()))
		require.Greater(e, w.lease(e).Token().Value, floor)
	})
}

// A store that has seen nonsense does not lock the resource: there must be a token above
// any floor.
func TestAFloorThatLeavesNoRoomIsRefused(t *testing.T) {
	behaviour(t, func(e *env) {
		_, err := e.store.Raise(e.ctx(), "r", math.MaxInt64)
		require.ErrorIs(e, err, ErrInvalid)
		_, err = e.store.TryAcquire(e.ctx(), "r", LeaseOptions{Floor: math.MaxInt64})
		require.ErrorIs(e, err, ErrInvalid)
		g, op := e.guard(GuardOptions{}), e.op()
		stale := &fence.StaleError{Resource: op.resource(), Current: math.MaxInt64}
		_, err = g.Do(e.ctx(), op, func(context.Context) ([]byte, error) { return nil, stale })
		require.Same(e, stale, err)
		_, err = g.Do(e.ctx(), op, (&counted{}).body)
		require.NoError(e, err)
	})
}

// C08: other input is a mismatch for those who only ask, too.
func TestOtherInputIsAMismatchForResultAndClear(t *testing.T) {
	behaviour(t, func(e *env) {
		op := e.op()
		var err error
		op.Fingerprint, err = NewFingerprint(100)
		require.NoError(e, err)
		require.NoError(e, e.claim(e.guard(GuardOptions{}), op).Complete(e.ctx(), []byte("100")))
		other := op
		other.Fingerprint, err = NewFingerprint(200)
		require.NoError(e, err)
		_, err = e.store.Result(e.ctx(), other)
		require.ErrorIs(e, err, ErrMismatch)
		require.ErrorIs(e, e.store.Clear(e.ctx(), other), ErrMismatch)
		require.Equal(e, Done, e.status(op).State)
	})
}

// G09: a cluster client that is wrapped is a cluster all the same; a client that may hide
// one is refused, never listed in part.
func TestListingsSeeThroughAWrappedCluster(t *testing.T) {
	t.Parallel()
	cluster := newEnv(t, started(t, sharedCluster).Client(func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true }), true)
	for i := range 30 {
		cluster.hold(string(rune('a' + i)))
	}
	for wrapped, want := range map[Client]int{
		struct{ *redis.ClusterClient }{cluster.rdb.(*redis.ClusterClient)}: 30,
		struct{ Client }{cluster.store.client}:                             0,
	} {
		store, err := New(wrapped, cluster.store.opts)
		require.NoError(t, err)
		seen := 0
		for l, err := range store.Leases(t.Context()) {
			if want == 0 {
				require.ErrorIs(t, err, ErrInvalid)
				continue
			}
			require.NoError(t, err)
			require.True(t, l.Held)
			seen++
		}
		require.Equal(t, want, seen)
	}
}
