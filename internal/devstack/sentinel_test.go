package devstack_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := devstack.SentinelForTest(t, devstack.SentinelConfig{DownAfter: 3 * time.Second})
	rdb := s.Client()
	require.NoError(t, rdb.Set(ctx, "k", "v", 0).Err())
	replicated, err := rdb.Wait(ctx, 2, time.Minute).Result()
	require.NoError(t, err)
	require.EqualValues(t, 2, replicated)

	first, err := s.Primary(ctx)
	require.NoError(t, err)
	second, err := s.Failover(ctx)
	require.NoError(t, err)
	require.NotSame(t, first, second)
	require.ErrorContains(t, first.Client().Set(ctx, "k", "w", 0).Err(), "READONLY")

	replicas, err := s.Replicas(ctx)
	require.NoError(t, err)
	require.Contains(t, replicas, first)

	require.NoError(t, second.Kill())
	third, err := s.AwaitFailover(ctx, second)
	require.NoError(t, err)
	require.NotSame(t, second, third)
	require.Equal(t, "v", third.Client().Get(ctx, "k").Val())
	eventually(t, func() bool { return rdb.Set(ctx, "k", "x", 0).Err() == nil }, "the client finds the new primary")
}

func TestSentinelPrimaryNeedsAgreement(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := devstack.SentinelForTest(t, devstack.SentinelConfig{DownAfter: time.Hour})
	require.Len(t, s.Nodes(), 3)
	require.NoError(t, s.Sentinels()[0].Freeze())
	_, err := s.Primary(ctx)
	require.NoError(t, err, "a frozen sentinel has no say")

	for _, r := range s.Sentinels() {
		require.NoError(t, r.Kill())
	}
	_, err = s.Primary(ctx)
	require.ErrorContains(t, err, "no sentinel is running")
}
