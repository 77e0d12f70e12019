package primitives

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// A guarded call is two round trips, a replay or a refusal is one, and nothing is
// sent in between.
func TestRoundTripsOfAGuardedCall(t *testing.T) {
	t.Parallel()
	proxy := devstack.ProxyForTest(t, redisAddr(t))
	rdb := redis.NewClient(clientOptions(proxy.Addr(), nil))
	t.Cleanup(func() { _ = rdb.Close() })
	e := newEnv(t, rdb, true)
	g := e.guard(GuardOptions{})
	trips := func(want int, call func()) {
		t.Helper()
		proxy.ResetCounts()
		call()
		require.Equal(t, want, proxy.RoundTrips(), "%v", proxy.Commands())
	}
	do := func(op Op, err error) {
		t.Helper()
		_, got := g.Do(e.ctx(), op, func(context.Context) ([]byte, error) { return nil, err })
		require.Equal(t, err, got)
	}
	do(e.op(), nil) // connects, and makes the scripts known
	do(e.op(), errStop)
	op := e.op()
	trips(2, func() { do(op, nil) })
	trips(1, func() { do(op, nil) })
	trips(2, func() { do(e.op(), errStop) })

	op = e.op()
	e.claim(g, op)
	trips(1, func() {
		_, err := g.Do(e.ctx(), op, (&counted{}).body)
		require.ErrorIs(t, err, ErrBusy)
	})
}
