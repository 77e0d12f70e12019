package primitives

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// waiting is one call of Acquire that stands in the queue.
type waiting struct {
	got    chan *Lease
	failed chan error
	cancel context.CancelCauseFunc
}

// wait has s join the queue of a resource, and returns when it stands there.
func (e *env) wait(s *Store, resource string, opts LeaseOptions) *waiting {
	e.Helper()
	before := e.waiters(resource)
	ctx, cancel := context.WithCancelCause(e.ctx())
	w := &waiting{make(chan *Lease, 1), make(chan error, 1), cancel}
	go func() {
		l, err := s.Acquire(ctx, resource, opts)
		if err != nil {
			w.failed <- err
			return
		}
		w.got <- l
	}()
	eventually(e, "somebody joins the queue", func() bool { return e.waiters(resource) > before })
	return w
}

func (w *waiting) lease(t testing.TB) *Lease {
	t.Helper()
	select {
	case l := <-w.got:
		return l
	case err := <-w.failed:
		require.NoError(t, err)
	case <-time.After(2 * patience):
		require.Fail(t, "it still waits")
	}
	return nil
}

func (w *waiting) err(t testing.TB) error {
	t.Helper()
	select {
	case <-w.got:
		require.Fail(t, "it got the lease")
	case err := <-w.failed:
		return err
	case <-time.After(2 * patience):
		require.Fail(t, "it still waits")
	}
	return nil
}

// unhurried gives waiters a minute to say that they have heard of their turn: one that a
// stalled machine keeps from it would be passed over, and served out of turn.
func (e *env) unhurried() {
	e.Helper()
	e.rewrite("lua/lib/queue.lua", "local CLAIM = 1000", "local CLAIM = 60000")
}

// A release hands the lease on directly, first come first served, over processes; each
// handed lease has its waiter's holder and TTL.
func TestWaitersAreServedInOrder(t *testing.T) {
	behaviour(t, func(e *env) {
		const many = 6
		e.unhurried()
		stores := []*Store{e.store, e.other()}
		holder := e.hold("r")
		var queue []*waiting
		for i := range many {
			opts := LeaseOptions{TTL: 10 * time.Minute, Holder: fmt.Sprintf("waiter %d \x00\n\"é", i)}
			queue = append(queue, e.wait(stores[i%2], "r", opts))
		}
		for i, w := range queue {
			require.NoError(e, holder.Release(e.ctx()))
			next := w.lease(e)
			require.Greater(e, next.Token().Value, holder.Token().Value)
			info, err := e.store.Inspect(e.ctx(), "r")
			require.NoError(e, err)
			require.Equal(e, fmt.Sprintf("waiter %d \x00\n\"é", i), info.Holder)
			require.Equal(e, next.Token().Value, info.Token)
			require.Greater(e, info.Remaining, 2*time.Minute, "it has only the claim's time")
			require.Equal(e, many-1-i, info.Waiters)
			holder = next
		}
	})
}

// Nobody passes those who wait: not when the lease is handed on, and not when it has
// ended by itself and nobody has noticed yet.
func TestTryAcquireDoesNotPassTheQueue(t *testing.T) {
	behaviour(t, func(e *env) {
		e.hold("r")
		first := e.wait(e.store, "r", LeaseOptions{Holder: "first"})
		e.expire("r")
		_, err := e.other().TryAcquire(e.ctx(), "r", LeaseOptions{})
		var busy *BusyError
		require.ErrorAs(e, err, &busy)
		require.Equal(e, "first", busy.Holder)
		require.NoError(e, first.lease(e).Release(e.ctx()))
		e.hold("r")
	})
}

// A guard whose lease is free stands behind those who wait for it, too.
func TestBeginDoesNotPassTheQueue(t *testing.T) {
	behaviour(t, func(e *env) {
		e.hold("r")
		first := e.wait(e.store, "r", LeaseOptions{Holder: "first"})
		e.expire("r")
		_, err := e.guard(GuardOptions{}).Begin(e.ctx(), Op{Key: e.key(), Resource: "r"})
		require.ErrorIs(e, err, ErrBusy)
		first.lease(e)
	})
}

// The end of the holder's lease wakes the first waiter although nobody says so.
func TestAWaiterFollowsAHolderThatCrashed(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	l, err := e.store.TryAcquire(e.ctx(), "r", LeaseOptions{TTL: 8 * time.Second})
	require.NoError(e, err)
	next := e.wait(e.other(), "r", LeaseOptions{}).lease(e)
	require.Greater(e, next.Token().Value, l.Token().Value)
}

// deafen makes the waiters of s miss what is published from now on.
func deafen(s *Store) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	clear(s.hub.waiters)
	clear(s.hub.records)
}

// A hand-on that nobody hears costs the claim's time or the recheck, not for ever.
func TestALostNotificationDelaysOnly(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	deaf := e.other()
	holder := e.hold("r")
	w := e.wait(deaf, "r", LeaseOptions{})
	deafen(deaf)
	require.NoError(e, holder.Release(e.ctx()))
	require.Greater(e, w.lease(e).Token().Value, holder.Token().Value)
}

// dead leaves a waiter in the queue whose process is gone.
func (e *env) dead(resource string) *Lease {
	e.Helper()
	opts := LeaseOptions{TTL: time.Minute, Holder: "dead"}
	l := e.store.newLease(resource, opts)
	p := place{channel: e.store.names.wake(newNonce())}
	require.ErrorIs(e, l.try(e.ctx(), opts, &p), ErrBusy)
	require.NotEmpty(e, p.ticket)
	return l
}

// A waiter that has died holds up the queue for its claim only: those behind do not
// wait for the TTL that it asked for.
func TestDeadWaitersAreSkipped(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	holder := e.hold("r")
	e.dead("r")
	e.dead("r")
	start := time.Now()
	w := e.wait(e.other(), "r", LeaseOptions{TTL: time.Minute})
	require.NoError(e, holder.Release(e.ctx()))
	w.lease(e)
	require.Less(e, time.Since(start), 50*time.Second, "it waited for the dead ones' TTL")
}

// listen is what a process of its own would hear.
func (e *env) listen() (heard *redis.PubSub, channel string) {
	e.Helper()
	channel = e.store.names.wake(newNonce())
	heard = e.rdb.Subscribe(e.ctx(), channel)
	e.Cleanup(func() { _ = heard.Close() })
	_, err := heard.Receive(e.ctx())
	require.NoError(e, err)
	return heard, channel
}

// Who stands behind a waiter that is handed the lease is told to look when its claim
// ends: it may be dead.
func TestWhoStandsBehindAHandOnLooksWhenTheClaimEnds(t *testing.T) {
	behaviour(t, func(e *env) {
		holder := e.hold("r")
		e.dead("r")
		heard, channel := e.listen()
		opts := LeaseOptions{TTL: time.Minute}
		behind := e.store.newLease("r", opts)
		require.ErrorIs(e, behind.try(e.ctx(), opts, &place{channel: channel}), ErrBusy)
		require.NoError(e, holder.Release(e.ctx()))
		message, err := heard.ReceiveMessage(e.ctx())
		require.NoError(e, err)
		require.Equal(e, "check "+behind.nonce+" 1000", message.Payload)
	})
}

// A waiter that was handed the lease and came too late stands in its old place again.
func TestAClaimThatLapsedKeepsItsPlace(t *testing.T) {
	behaviour(t, func(e *env) {
		holder := e.hold("r")
		opts := LeaseOptions{TTL: time.Minute, Holder: "slow"}
		slow, p := e.store.newLease("r", opts), place{channel: e.store.names.wake(newNonce())}
		require.ErrorIs(e, slow.try(e.ctx(), opts, &p), ErrBusy)
		e.dead("r")
		e.dead("r")
		require.NoError(e, holder.Release(e.ctx())) // to the slow one
		e.expire("r")
		require.ErrorIs(e, slow.try(e.ctx(), opts, &p), ErrBusy) // to the first dead one
		require.Zero(e, p.ahead)
		e.expire("r")
		require.NoError(e, slow.try(e.ctx(), opts, &p))
		require.Greater(e, slow.Token().Value, holder.Token().Value)
		require.Equal(e, 1, e.waiters("r"))
	})
}

// A waiter whose context ends leaves the queue; its error says why and who was busy.
func TestAWaiterWhoseContextEndsLeaves(t *testing.T) {
	behaviour(t, func(e *env) {
		holder := e.hold("r")
		w := e.wait(e.other(), "r", LeaseOptions{})
		own := errors.New("own")
		w.cancel(own)
		err := w.err(e)
		require.ErrorIs(e, err, own)
		require.ErrorIs(e, err, ErrBusy)
		require.Zero(e, e.waiters("r"))
		require.NoError(e, holder.Release(e.ctx()))
		e.hold("r")
	})
}

// The same holds when the context ends while the waiter is asking Redis.
func TestAWaiterWhoseContextEndsWhileItAsks(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	own := errors.New("own")
	ctx, cancel := context.WithCancelCause(e.ctx())
	opts := LeaseOptions{TTL: time.Minute}
	e.hold("r")
	l, looks := e.store.newLease("r", opts), 0
	err := e.store.inLine(ctx, forever, l.nonce, "", l.giveUp, func(ctx context.Context, p *place) error {
		looks++
		if looks == 2 {
			cancel(own)
		}
		return l.try(ctx, opts, p)
	})
	require.ErrorIs(t, err, own)
	require.ErrorIs(t, err, ErrBusy)
	require.Zero(t, e.waiters("r"))
}

// A waiter that was handed the lease just when its context ended passes it on at once.
func TestALeaseHandedToSomebodyWhoLeavesIsPassedOn(t *testing.T) {
	behaviour(t, func(e *env) {
		holder := e.hold("r")
		deaf := e.other()
		leaves := e.wait(deaf, "r", LeaseOptions{TTL: time.Minute})
		deafen(deaf)
		next := e.wait(e.store, "r", LeaseOptions{TTL: time.Minute})
		require.NoError(e, holder.Release(e.ctx())) // handed to the one that does not hear it
		leaves.cancel(nil)
		select {
		case l := <-leaves.got: // it looked by itself, before it saw that its context had ended
			require.NoError(e, l.Release(e.ctx()))
		case err := <-leaves.failed:
			require.ErrorIs(e, err, context.Canceled)
		}
		require.Greater(e, next.lease(e).Token().Value, holder.Token().Value)
	})
}

// The bound of a wait returns who was busy, and leaves nothing in the queue.
func TestTheBoundOfAWait(t *testing.T) {
	behaviour(t, func(e *env) {
		holder := e.hold("r")
		_, err := e.store.Acquire(e.ctx(), "r", LeaseOptions{Wait: 50 * time.Millisecond})
		var busy *BusyError
		require.ErrorAs(e, err, &busy)
		require.Equal(e, holder.Token().Value, busy.Token)
		_, err = e.guard(GuardOptions{Wait: 50 * time.Millisecond}).Begin(e.ctx(), Op{Key: e.key(), Resource: "r"})
		require.ErrorAs(e, err, &busy)
		require.Zero(e, e.waiters("r"))
	})
}

// The queue of a resource is kept up by those who stand in it: without them it expires.
func TestQueueEntriesExpire(t *testing.T) {
	behaviour(t, func(e *env) {
		e.hold("r")
		e.dead("r")
		n := e.store.names.resource("r")
		for _, name := range []string{n.queue(), n.waiters()} {
			left := e.rdb.PTTL(e.ctx(), name).Val()
			require.Positive(e, left)
			require.LessOrEqual(e, left, queueLife)
		}
		require.Greater(e, queueLife, 2*recheck, "a live waiter may miss one look")
	})
}

// edit changes one field of a waiter's entry.
func (e *env) edit(waiters, nonce, field string, value any) {
	e.Helper()
	var entry map[string]any
	require.NoError(e, json.Unmarshal([]byte(e.rdb.HGet(e.ctx(), waiters, nonce).Val()), &entry))
	require.Contains(e, entry, field)
	entry[field] = value
	text, err := json.Marshal(entry)
	require.NoError(e, err)
	require.NoError(e, e.rdb.HSet(e.ctx(), waiters, nonce, text).Err())
}

// A waiter that has stopped looking is passed over, although others keep the queue's
// keys alive.
func TestAnEntryThatIsNotKeptUpIsPassedOver(t *testing.T) {
	behaviour(t, func(e *env) {
		e.unhurried()
		holder := e.hold("r")
		dead := e.dead("r")
		n := e.store.names.resource("r")
		e.edit(n.waiters(), dead.nonce, "alive", "1")
		w := e.wait(e.store, "r", LeaseOptions{Holder: "live"})
		require.NoError(e, holder.Release(e.ctx()))
		info, err := e.store.Inspect(e.ctx(), "r")
		require.NoError(e, err)
		require.Equal(e, "live", info.Holder)
		w.lease(e)
	})
}
