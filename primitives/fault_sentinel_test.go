package primitives

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

func sentinelEnv(t *testing.T) (*devstack.Sentinel, *env) {
	t.Helper()
	s := devstack.SentinelForTest(t, devstack.SentinelConfig{DownAfter: 3 * time.Second}) // a stall is no failure yet
	return s, newEnv(t, s.Client(func(o *redis.FailoverOptions) {
		o.ContextTimeoutEnabled = true
		o.ReadTimeout = 500 * time.Millisecond
	}), true)
}

// The primary of running work dies, and a replica in step takes over.
func TestASentinelFailoverUnderARunningBody(t *testing.T) {
	t.Parallel()
	s, e := sentinelEnv(t)
	survives(e, Op{Key: e.key(), Resource: "account"}, func() {
		primary, err := s.Primary(e.ctx())
		require.NoError(t, err)
		require.EqualValues(t, 2, primary.Client().Wait(e.ctx(), 2, 20*time.Second).Val())
		require.NoError(t, primary.Kill())
		_, err = s.AwaitFailover(e.ctx(), primary)
		require.NoError(t, err)
	})
}

// Replicas that are frozen and cut off miss grants, the primary dies, and one of them
// is promoted: the lease and the last token are lost, and the next token is higher all
// the same. The control, a counter of INCR, hands out a number again (F09).
func TestTokensRiseWhenALaggingReplicaIsPromoted(t *testing.T) {
	t.Parallel()
	s, e := sentinelEnv(t)
	gate := realEnv(t).gate() // the store that is not lost
	primary, err := s.Primary(e.ctx())
	require.NoError(t, err)
	e.grant("account")
	require.NoError(t, e.rdb.Incr(e.ctx(), "incr").Err())
	require.EqualValues(t, 2, primary.Client().Wait(e.ctx(), 2, 20*time.Second).Val())

	replicas, err := s.Replicas(e.ctx())
	require.NoError(t, err)
	for _, replica := range replicas {
		require.NoError(t, replica.Freeze())
	}
	require.NoError(t, primary.Client().ClientKillByFilter(e.ctx(), "TYPE", "replica").Err())
	first, err := e.store.TryAcquire(e.ctx(), "account", LeaseOptions{TTL: time.Hour})
	require.NoError(t, err)
	require.NoError(t, gate.Advance(e.ctx(), first.Token()))
	counted, err := e.rdb.Incr(e.ctx(), "incr").Result()
	require.NoError(t, err)
	require.NoError(t, primary.Kill())
	for _, replica := range replicas {
		require.NoError(t, replica.Thaw())
	}
	_, err = s.AwaitFailover(e.ctx(), primary)
	require.NoError(t, err)

	var second *Lease
	eventually(t, "the client finds the new primary", func() bool {
		second, err = e.store.TryAcquire(e.ctx(), "account", LeaseOptions{})
		return err == nil
	})
	require.Greater(t, second.Token().Value, first.Token().Value)
	require.NoError(t, gate.Advance(e.ctx(), second.Token()))
	require.ErrorIs(t, gate.Advance(e.ctx(), first.Token()), fence.ErrStale)
	require.ErrorIs(t, first.Extend(e.ctx(), 0), fence.ErrLeaseLost)
	again, err := e.rdb.Incr(e.ctx(), "incr").Result()
	require.NoError(t, err)
	require.LessOrEqual(t, again, counted, "the control: no new number")
}
