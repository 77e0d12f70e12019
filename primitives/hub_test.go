package primitives

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// B20: many callers of one operation, in two processes: it runs once, all have its
// result, and a caller costs a bounded number of scripts however long it waits.
func TestManyWaitersOfOneRecord(t *testing.T) {
	t.Parallel()
	server := devstack.RedisForTest(t, devstack.RedisConfig{Own: true})
	e := newEnv(t, server.Client(), true)
	const many = 300
	op, runs := e.op(), atomic.Int64{}
	op.Resource = "r"
	full := make(chan struct{})
	body := func(context.Context) ([]byte, error) {
		runs.Add(1)
		<-full
		return []byte("memo"), nil
	}
	var guards []*Guard
	for _, s := range []*Store{e.store, e.other()} {
		g, err := NewGuard(s, GuardOptions{Wait: time.Hour, LeaseTTL: time.Hour})
		require.NoError(t, err)
		guards = append(guards, g)
	}
	start := time.Now()
	scripts := e.scripts()
	results := make(chan error, many)
	for i := range many {
		go func() {
			r, err := guards[i%2].Do(e.ctx(), op, body)
			if err == nil && string(r.Memo) != "memo" {
				err = fmt.Errorf("another memo: %q", r.Memo)
			}
			results <- err
		}()
	}
	eventually(t, "all others wait", func() bool { return e.waiters("r") == many-1 })
	looks := e.scripts() // of which one for each poll above
	close(full)
	for range many {
		require.NoError(t, <-results)
	}
	require.EqualValues(t, 1, runs.Load())
	require.Zero(t, e.waiters("r"))
	// Two to get into the queue, two to be told and leave, and one for each recheck.
	each := 4 + int(time.Since(start)/recheck)
	require.Less(t, e.scripts()-looks, many*each)
	t.Logf("%.1f scripts a waiter, of which %.1f to join", float64(e.scripts()-scripts)/many, float64(looks-scripts)/many)
}

// scripts is how many scripts the server has run.
func (e *env) scripts() (n int) {
	e.Helper()
	for line := range strings.Lines(e.rdb.Info(e.ctx(), "commandstats").Val()) {
		name, rest, _ := strings.Cut(line, ":")
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
			var calls int
			_, err := fmt.Sscanf(rest, "calls=%d", &calls)
			require.NoError(e, err)
			n += calls
		}
	}
	return n
}

// Waiters of other operations on the resource are not disturbed: the next one is handed
// the lease, and those who wanted the finished record are passed over.
func TestWaitersOfAFinishedRecordAreNotHandedTheLease(t *testing.T) {
	behaviour(t, func(e *env) {
		guard := e.guard(GuardOptions{Wait: 10 * time.Minute, LeaseTTL: 10 * time.Minute})
		op, other := Op{Key: e.key(), Resource: "r"}, Op{Key: e.key(), Resource: "r", Holder: "other"}
		first, err := guard.Begin(e.ctx(), op)
		require.NoError(e, err)
		begin := func(op Op) <-chan Start {
			before, got := e.waiters("r"), make(chan Start, 1)
			go func() {
				start, _ := guard.Begin(e.ctx(), op)
				got <- start
			}()
			eventually(e, "it waits", func() bool { return e.waiters("r") > before })
			return got
		}
		same1, others, same2 := begin(op), begin(other), begin(op)
		sub := e.rdb.Subscribe(e.ctx(), e.store.hub.channel)
		defer sub.Close() //nolint:errcheck // a test's
		_, err = sub.Receive(e.ctx())
		require.NoError(e, err)
		require.NoError(e, first.Claim.Complete(e.ctx(), []byte("memo")))
		for _, same := range []<-chan Start{same1, same2} {
			start := <-same
			require.Equal(e, Replayed, start.Outcome)
			require.Equal(e, "memo", string(start.Memo))
		}
		start := <-others
		for _, want := range []string{"finished " + first.Claim.record, "granted " + start.Claim.nonce} {
			message, err := sub.ReceiveMessage(e.ctx())
			require.NoError(e, err)
			require.Equal(e, want, message.Payload)
		}
		require.Equal(e, Begun, start.Outcome)
		require.Greater(e, start.Claim.Token().Value, first.Claim.Token().Value)
	})
}

// A process has one subscription however many wait, and none when nobody does.
func TestOneSubscriptionForAllWaitersOfAProcess(t *testing.T) {
	behaviour(t, func(e *env) {
		subscriptions := func() int {
			e.store.hub.mu.Lock()
			defer e.store.hub.mu.Unlock()
			if e.store.hub.sub == nil {
				return 0
			}
			return 1
		}
		require.Zero(e, subscriptions())
		var all []*waiting
		for _, r := range []string{"a", "a", "b"} {
			if len(all) != 1 {
				e.hold(r)
			}
			all = append(all, e.wait(e.store, r, LeaseOptions{}))
		}
		require.Equal(e, 1, subscriptions())
		if e.real {
			eventually(e, "it is subscribed", func() bool { return e.subscribers()[e.store.hub.channel] > 0 })
			require.Equal(e, map[string]int64{e.store.hub.channel: 1}, e.subscribers())
		}
		for _, w := range all {
			w.cancel(nil)
			require.Error(e, w.err(e))
		}
		require.Zero(e, subscriptions())
		eventually(e, "the subscription is gone", func() bool { return e.subscribers()[e.store.hub.channel] == 0 })
	})
}

// subscribers counts those of the store's channel, on all nodes.
func (e *env) subscribers() map[string]int64 {
	e.Helper()
	sum := map[string]int64{}
	for _, rdb := range e.nodes() {
		counts, err := rdb.PubSubNumSub(e.ctx(), e.store.hub.channel).Result()
		require.NoError(e, err)
		for channel, n := range counts {
			sum[channel] += n
		}
	}
	return sum
}

// Anybody may publish: nothing that is said makes a waiter believe that it holds a
// lease, or breaks the listener.
func TestHostileMessagesAreHarmless(t *testing.T) {
	behaviour(t, func(e *env) {
		holder := e.hold("r")
		w := e.wait(e.store, "r", LeaseOptions{})
		nonce := e.rdb.ZRange(e.ctx(), e.store.names.resource("r").queue(), 0, -1).Val()[0]
		for _, message := range []string{
			"", " ", "granted", "granted ", "granted  " + nonce, "granted " + nonce, "granted " + nonce + " x",
			"check", "check " + nonce, "check " + nonce + " -1", "check " + nonce + " x", "check " + nonce + " 0",
			"check " + nonce + " 99999999999999999999", "check " + nonce + " 9223372036854775807", "check x 5",
			"finished", "finished x", "stop", "\x00\xff", strings.Repeat("x", 1<<20),
		} {
			require.NoError(e, e.rdb.Publish(e.ctx(), e.store.hub.channel, message).Err())
		}
		eventually(e, "it has looked and waits on", func() bool { return e.waiters("r") == 1 })
		select {
		case <-w.got:
			require.Fail(e, "it believed it")
		case err := <-w.failed:
			require.NoError(e, err)
		default:
		}
		require.NoError(e, holder.Release(e.ctx()))
		w.lease(e)
	})
}

// A flood of messages does not keep a waiter from looking when the lease has ended.
func TestNoMessagePutsALookOff(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	_, err := e.store.TryAcquire(e.ctx(), "r", LeaseOptions{TTL: 6 * time.Second})
	require.NoError(t, err)
	w := e.wait(e.store, "r", LeaseOptions{})
	nonce := e.rdb.ZRange(e.ctx(), e.store.names.resource("r").queue(), 0, -1).Val()[0]
	eventually(t, "it gets the lease under the flood", func() bool {
		require.NoError(t, e.rdb.Publish(e.ctx(), e.store.hub.channel, "check "+nonce+" 3000").Err())
		return len(w.got) == 1
	})
}

var foreignQueues = []plant{{"a string", text("x")}, {"a list", listed}}

// What stands in the queue's place costs order, never a lease: leases and results go on,
// and who wants to wait is told what is in the way.
func TestForeignQueueNeverStopsTheLease(t *testing.T) {
	foreign(t, foreignQueues, func(e *env, resource string, put func(string)) {
		for _, kind := range []string{"queue", "waiters"} {
			n := e.store.names.resource(resource + kind)
			name := n.root + kind
			put(name)
			l := e.hold(resource + kind)
			_, err := e.store.Acquire(e.ctx(), resource+kind, LeaseOptions{})
			corrupt(e, err, name)
			_, err = e.store.TryAcquire(e.ctx(), resource+kind, LeaseOptions{})
			require.ErrorIs(e, err, ErrBusy)
			require.NoError(e, l.Release(e.ctx()))

			guard, op := e.guard(GuardOptions{}), Op{Key: e.key(), Resource: resource + kind}
			for _, end := range []func(*Claim) error{
				func(c *Claim) error { return c.Abort(e.ctx()) },
				func(c *Claim) error { return c.Complete(e.ctx(), []byte("memo")) },
			} {
				start, err := guard.Begin(e.ctx(), op)
				require.NoError(e, err)
				require.NoError(e, end(start.Claim))
				require.Zero(e, e.rdb.Exists(e.ctx(), n.lease()).Val(), "the lease stays")
			}
			memo, err := e.store.Result(e.ctx(), op)
			require.NoError(e, err)
			require.Equal(e, "memo", string(memo))
			if kind == "queue" {
				_, err = e.store.Inspect(e.ctx(), resource+kind)
				corrupt(e, err, name)
				require.NoError(e, e.rdb.Del(e.ctx(), name).Err())
				require.Zero(e, e.rdb.Exists(e.ctx(), n.waiters()).Val())
			} else {
				require.Zero(e, e.waiters(resource+kind), "somebody was left in the queue")
			}
		}
	})
}

// An entry that is not ours is dropped, whatever it says, and the next waiter is served.
// Nothing is published where only the entry points.
func TestHostileEntriesArePassedOver(t *testing.T) {
	behaviour(t, func(e *env) {
		e.unhurried()
		for i, c := range []struct {
			field string
			value any
		}{
			{"ttl", "nan"}, {"ttl", "-5"}, {"ttl", ""}, {"ttl", nil}, {"ttl", 5}, {"ttl", "1e9"}, {"ttl", "99999999999999999999"},
			{"alive", "nan"}, {"alive", "inf"}, {"alive", []int{1}}, {"holder", nil}, {"exec", map[string]int{}}, {"order", 1}, {"op", nil},
			{"channel", nil}, {"channel", ""}, {"channel", "elsewhere"}, {"channel", 7},
		} {
			resource := fmt.Sprint("r", i)
			n := e.store.names.resource(resource)
			holder := e.hold(resource)
			bad := e.dead(resource)
			e.edit(n.waiters(), bad.nonce, c.field, c.value)
			w := e.wait(e.store, resource, LeaseOptions{Holder: "good"})
			require.NoError(e, holder.Release(e.ctx()), "%v", c)
			info, err := e.store.Inspect(e.ctx(), resource)
			require.NoError(e, err)
			require.Equal(e, "good", info.Holder, "%v", c)
			w.lease(e)
		}
	})
}

// Waiters that come and go from many goroutines leave the hub empty.
func TestTheHubIsEmptyWhenAllHaveLeft(t *testing.T) {
	behaviour(t, func(e *env) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 3 {
					_ = e.store.Hold(e.ctx(), "r", LeaseOptions{TTL: time.Minute}, func(context.Context) error { return nil })
				}
			})
		}
		wg.Wait()
		require.Zero(e, e.waiters("r"))
		h := e.store.hub
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Empty(e, h.waiters)
		require.Empty(e, h.records)
		require.Nil(e, h.sub)
	})
}
