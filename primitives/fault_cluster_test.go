package primitives

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// clusterEnv is an env on a cluster of its own.
func clusterEnv(t *testing.T, edit func(*redis.ClusterOptions)) (*devstack.Cluster, *env) {
	t.Helper()
	c := devstack.ClusterForTest(t)
	require.NoError(t, tolerate(t.Context(), c, time.Minute))
	return c, newEnv(t, c.Client(func(o *redis.ClusterOptions) {
		o.ContextTimeoutEnabled = true
		if edit != nil {
			edit(o)
		}
	}), true)
}

// slotOf is the slot of a resource's keys, and the primary that serves it.
func slotOf(e *env, c *devstack.Cluster, resource string) (slot int, primary *devstack.Redis) {
	e.Helper()
	name := e.store.names.resource(resource).lease()
	slot, err := c.Slot(e.ctx(), name)
	require.NoError(e, err)
	primary, err = c.PrimaryOfSlot(e.ctx(), slot)
	require.NoError(e, err)
	return slot, primary
}

// Everything works on a cluster, without a word of slots, on keys that spread over
// all primaries: F04, A14. State is read on the primary although the client prefers
// replicas and one of them is frozen: F13.
func TestEverythingWorksOnAClusterThatReadsFromReplicas(t *testing.T) {
	t.Parallel()
	c, e := clusterEnv(t, func(o *redis.ClusterOptions) { o.ReadOnly, o.RouteRandomly = true, true })
	op := Op{Key: e.key(), Resource: "account"}
	_, primary := slotOf(e, c, op.Resource)
	replica, err := c.ReplicaOf(e.ctx(), primary)
	require.NoError(t, err)
	// A client that prefers replicas asks any node which commands only read, before
	// its first command.
	require.NoError(t, e.rdb.Ping(e.ctx()).Err())
	e.grant(op.Resource)
	require.NoError(t, replica.Freeze())
	defer func() { require.NoError(t, replica.Thaw()) }()

	g, body := e.guard(GuardOptions{}), &counted{memo: "m"}
	for i := range 10 {
		res, err := g.Do(e.ctx(), op, body.body)
		require.NoError(t, err)
		require.Equal(t, i > 0, res.Outcome == Replayed)
	}
	require.EqualValues(t, 1, body.runs.Load())
	for i := range 100 {
		_, err := g.Do(e.ctx(), Op{Key: e.key(), Resource: fmt.Sprintf("{%d}a}b{c\x00\r\n", i)}, body.body)
		require.NoError(t, err)
	}
	names, perPrimary := map[string]bool{}, map[*devstack.Redis]int{}
	for record, err := range e.store.Records(e.ctx()) {
		require.NoError(t, err)
		names[record.Name()] = true
		owner, err := c.PrimaryOfKey(e.ctx(), record.Name())
		require.NoError(t, err)
		perPrimary[owner]++
	}
	require.Len(t, names, 101)
	require.Len(t, perPrimary, 3, "keys spread over the cluster")
	handOver(e)
}

// handOver passes a lease along a queue, and its token through a gate.
func handOver(e *env) {
	e.Helper()
	var waiters sync.WaitGroup
	var last atomic.Int64
	for range 5 {
		waiters.Go(func() {
			err := e.store.Hold(e.ctx(), "queue", LeaseOptions{}, func(ctx context.Context) error {
				token, err := fence.FromContext(ctx)
				if before := last.Swap(int64(token.Value)); before >= int64(token.Value) {
					return fmt.Errorf("%d came after %d", token.Value, before)
				}
				if err != nil {
					return err
				}
				return e.gate().Advance(ctx, token)
			})
			if err != nil {
				e.Errorf("hold: %v", err)
			}
		})
	}
	waiters.Wait()
}

// The slot of running work moves back and forth between primaries: nothing is lost,
// and nothing is run twice (F17).
func TestASlotThatMovesLosesNothing(t *testing.T) {
	t.Parallel()
	c, e := clusterEnv(t, nil)
	op := Op{Key: e.key(), Resource: "account"}
	slot, home := slotOf(e, c, op.Resource)
	away := c.Nodes()[0]
	if away == home {
		away = c.Nodes()[1]
	}
	g := e.guard(GuardOptions{LeaseTTL: 2 * time.Minute, RenewEvery: 20 * time.Millisecond, Wait: 4 * patience})
	first, others := &counted{memo: "first"}, &counted{memo: "other"}
	var work sync.WaitGroup
	_, err := g.Do(e.ctx(), op, func(ctx context.Context) ([]byte, error) {
		for range 4 { // some for the same operation, some for another on the same resource
			work.Go(func() {
				res, err := g.Do(e.ctx(), op, first.body)
				if err != nil || res.Outcome != Replayed {
					e.Errorf("the same operation: %v, %v", res.Outcome, err)
				}
			})
			another := Op{Key: e.key(), Resource: op.Resource}
			work.Go(func() {
				if _, err := g.Do(e.ctx(), another, others.body); err != nil {
					e.Errorf("another operation: %v", err)
				}
			})
		}
		for range 4 {
			require.NoError(t, c.MigrateSlot(ctx, slot, home, away))
			home, away = away, home
		}
		return first.body(ctx)
	})
	require.NoError(t, err)
	work.Wait()
	require.EqualValues(t, 1, first.runs.Load())
	require.EqualValues(t, 4, others.runs.Load())
}

// The primary of running work dies, and its replica, which is in step, takes over:
// the lease is kept, nobody else runs the body, and the memo is stored.
func TestAClusterFailoverUnderARunningBody(t *testing.T) {
	t.Parallel()
	c, e := clusterEnv(t, func(o *redis.ClusterOptions) { o.ReadTimeout = 500 * time.Millisecond })
	require.NoError(t, tolerate(t.Context(), c, 3*time.Second)) // a stall is no failure yet
	op := Op{Key: e.key(), Resource: "account"}
	slot, primary := slotOf(e, c, op.Resource)
	survives(e, op, func() {
		require.EqualValues(t, 1, primary.Client().Wait(e.ctx(), 1, 20*time.Second).Val())
		require.NoError(t, primary.Kill())
		_, err := c.AwaitFailover(e.ctx(), slot, primary)
		require.NoError(t, err)
	})
}

// survives runs op, has a failover happen in its middle, and sees to it that the run
// goes on under its lease, alone, to a memo.
func survives(e *env, op Op, failover func()) {
	e.Helper()
	g := e.guard(GuardOptions{LeaseTTL: 2 * time.Minute, RenewEvery: 100 * time.Millisecond})
	body := &counted{memo: "m"}
	rival := e.guard(GuardOptions{})
	res, err := g.Do(e.ctx(), op, func(ctx context.Context) ([]byte, error) {
		over := make(chan struct{})
		go func() { defer close(over); failover() }()
		for waiting := true; waiting; {
			select {
			case <-over:
				waiting = false
			case <-time.After(50 * time.Millisecond):
				_, err := rival.Do(e.ctx(), op, body.body)
				if err == nil {
					return nil, fmt.Errorf("a rival was let in")
				}
			}
		}
		eventually(e, "the lease is renewed on the new primary", func() bool {
			info, err := e.store.Inspect(ctx, op.Resource)
			return err == nil && info.Held && info.Remaining > 119*time.Second
		})
		return body.body(ctx)
	})
	require.NoError(e, err)
	require.True(e, res.MemoStored)
	res, err = rival.Do(e.ctx(), op, body.body)
	require.NoError(e, err)
	require.Equal(e, Replayed, res.Outcome)
	require.EqualValues(e, 1, body.runs.Load())
}
