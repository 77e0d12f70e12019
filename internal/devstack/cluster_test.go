package devstack_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// twoPrimaries are the primary of key and another primary.
func twoPrimaries(ctx context.Context, t *testing.T, c *devstack.Cluster, key string) (owner, other *devstack.Redis) {
	t.Helper()
	owner, err := c.PrimaryOfKey(ctx, key)
	require.NoError(t, err)
	for _, r := range c.Nodes()[:3] {
		if r != owner {
			return owner, r
		}
	}
	t.Fatal("one primary holds everything")
	return nil, nil
}

// tolerate is for how long nodes of c may be silent without being replaced. A cluster
// forms with less: a handshake that was lost is repeated after that time.
func tolerate(ctx context.Context, t *testing.T, c *devstack.Cluster, silence time.Duration) {
	t.Helper()
	for _, node := range c.Nodes() {
		require.NoError(t, node.Config(ctx, "cluster-node-timeout", fmt.Sprint(silence.Milliseconds())))
	}
}

func TestClusterMigratesSlot(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := devstack.ClusterForTest(t)
	tolerate(ctx, t, c, time.Minute)
	rdb := c.Client()
	const count = 250 // several batches
	for i := range count {
		require.NoError(t, rdb.Set(ctx, fmt.Sprintf("{tag}%d", i), i, time.Hour).Err())
	}
	from, to := twoPrimaries(ctx, t, c, "{tag}")
	slot, err := c.Slot(ctx, "{tag}")
	require.NoError(t, err)

	require.NoError(t, c.MigrateSlot(ctx, slot, from, to))
	owner, err := c.PrimaryOfKey(ctx, "{tag}1")
	require.NoError(t, err)
	require.Same(t, to, owner)
	for i := range count {
		require.Equal(t, fmt.Sprint(i), to.Client().Get(ctx, fmt.Sprintf("{tag}%d", i)).Val())
	}
	require.ErrorContains(t, from.Client().Get(ctx, "{tag}1").Err(), "MOVED")
	require.Equal(t, "7", rdb.Get(ctx, "{tag}7").Val(), "a cluster client follows")

	checkDividedSlot(ctx, t, c, slot, to, from)
}

// checkDividedSlot stops a migration half-way.
func checkDividedSlot(ctx context.Context, t *testing.T, c *devstack.Cluster, slot int, from, to *devstack.Redis) {
	t.Helper()
	m, err := c.BeginMigration(ctx, slot, from, to)
	require.NoError(t, err)
	require.NoError(t, m.MoveKey(ctx, "{tag}0"))
	plain := from.Client()
	require.ErrorContains(t, plain.Get(ctx, "{tag}0").Err(), "ASK")
	require.NoError(t, plain.Get(ctx, "{tag}1").Err())
	require.ErrorContains(t, plain.MGet(ctx, "{tag}0", "{tag}1").Err(), "TRYAGAIN")
	require.NoError(t, m.MoveKeys(ctx))
	require.NoError(t, m.Finish(ctx))
	require.Equal(t, "0", c.Client().Get(ctx, "{tag}0").Val())
}

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := devstack.ClusterForTest(t)
	tolerate(ctx, t, c, 3*time.Second)
	rdb := c.Client(func(o *redis.ClusterOptions) { o.ReadTimeout = 500 * time.Millisecond })
	require.NoError(t, rdb.Set(ctx, "k", "v", 0).Err())
	slot, err := c.Slot(ctx, "k")
	require.NoError(t, err)
	first, err := c.PrimaryOfSlot(ctx, slot)
	require.NoError(t, err)

	second, err := c.Failover(ctx, first)
	require.NoError(t, err)
	require.NotSame(t, first, second)
	replica, err := c.ReplicaOf(ctx, second)
	require.NoError(t, err)
	require.Same(t, first, replica, "the primary has become the replica")
	eventually(t, func() bool { return second.Client().Wait(ctx, 1, time.Second).Val() == 1 }, "it is in step")

	require.NoError(t, second.Freeze())
	third, err := c.AwaitFailover(ctx, slot, second)
	require.NoError(t, err)
	require.Same(t, first, third)
	eventually(t, func() bool { return rdb.Get(ctx, "k").Val() == "v" }, "the client finds the new primary")
	require.NoError(t, second.Thaw())
}
