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

// allocationsOfACall is how many allocations begin and complete may add to those of
// go-redis, the names and arguments of both scripts included.
const allocationsOfACall = 80

// replies is a client that answers begin and complete at once, so that nothing but
// our own allocations is counted.
type replies struct {
	Client
	begin    string
	answers  map[bool]*redis.Cmd
	commands int
}

func (c *replies) EvalSha(_ context.Context, sha string, _ []string, _ ...any) *redis.Cmd {
	c.commands++
	return c.answers[sha == c.begin]
}

func TestAllocationsOfAGuardedCall(t *testing.T) {
	e := newEnv(t, onMiniredis(t), false)
	client := &replies{Client: e.rdb, begin: e.store.scripts.begin.sha, answers: map[bool]*redis.Cmd{}}
	for begin, value := range map[bool][]any{true: {"begun", "0000000000000000007", "0"}, false: {"completed"}} {
		cmd := redis.NewCmd(e.ctx())
		cmd.SetVal(any(value))
		client.answers[begin] = cmd
	}
	e.store.client, e.store.direct = client, true
	g, op := e.guard(GuardOptions{}), e.op()
	allocations := testing.AllocsPerRun(100, func() {
		s, err := g.Begin(e.ctx(), op)
		if err != nil || s.Claim.Complete(e.ctx(), nil) != nil {
			t.Error("it failed")
		}
	})
	require.Equal(t, 2*101, client.commands)
	t.Logf("%.0f allocations", allocations)
	require.LessOrEqual(t, allocations, float64(allocationsOfACall))
}
