package primitives

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// losses are the ways in which a server forgets what it has acknowledged.
var losses = map[string]struct {
	conf []string
	lose func(t *testing.T, server *devstack.Redis, e *env)
}{
	"flush": {nil, func(t *testing.T, _ *devstack.Redis, e *env) {
		require.NoError(t, e.rdb.FlushAll(e.ctx()).Err())
	}},
	"restart without persistence": {nil, func(t *testing.T, server *devstack.Redis, e *env) {
		require.NoError(t, server.Restart(e.ctx()))
	}},
	"deletion of the token": {nil, func(t *testing.T, _ *devstack.Redis, e *env) {
		require.NoError(t, e.rdb.Del(e.ctx(), e.store.names.resource("account").token(), "incr").Err())
	}},
	"eviction": {[]string{"maxmemory 4mb", "maxmemory-policy allkeys-lru"}, func(t *testing.T, _ *devstack.Redis, e *env) {
		token := e.store.names.resource("account").token()
		ballast := strings.Repeat("x", 10_000)
		for i := 0; ; i++ {
			require.NoError(t, e.rdb.Set(e.ctx(), fmt.Sprintf("ballast %d", i), ballast, time.Hour).Err())
			if left, err := e.rdb.Exists(e.ctx(), token, "incr").Result(); err == nil && left == 0 {
				return
			}
			require.Less(t, i, 100_000, "nothing is evicted")
		}
	}},
}

// Whatever Redis forgets, the next token is above all before it, and a fenced store
// takes the new holder's write and refuses the old one's: B04, F08, F20. The control
// beside it, a counter of INCR, starts again at 1.
func TestTokensRiseAlthoughRedisForgets(t *testing.T) {
	t.Parallel()
	for name, loss := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, e := ownRedis(t, loss.conf...)
			gate := realEnv(t).gate() // the store that is not lost
			var before fence.Token
			for range 50 {
				before = e.grant("account")
				require.NoError(t, gate.SetIfFresh(e.ctx(), before, "balance", []byte("old"), 0))
			}
			count, err := e.rdb.IncrBy(e.ctx(), "incr", 50).Result()
			require.NoError(t, err)

			loss.lose(t, server, e)

			after := e.grant("account")
			require.Greater(t, after.Value, before.Value)
			require.NoError(t, gate.SetIfFresh(e.ctx(), after, "balance", []byte("new"), 0))
			require.ErrorIs(t, gate.SetIfFresh(e.ctx(), before, "balance", []byte("late"), 0), fence.ErrStale)
			again, err := e.rdb.Incr(e.ctx(), "incr").Result()
			require.NoError(t, err)
			require.Less(t, again, count, "the control: a counter goes back")
		})
	}
}

// grant takes and gives up a lease, and returns its token.
func (e *env) grant(resource string) fence.Token {
	e.Helper()
	lease, err := e.store.TryAcquire(e.ctx(), resource, LeaseOptions{})
	require.NoError(e, err)
	require.NoError(e, lease.Release(e.ctx()))
	return lease.Token()
}

// A flush in the middle of a body: the holder hears of it with the next renewal,
// nothing is created again, and its memo is stored only if nobody came after: F20.
func TestAFlushUnderARunningBody(t *testing.T) {
	t.Parallel()
	for _, successor := range []bool{false, true} {
		t.Run(fmt.Sprintf("successor=%v", successor), func(t *testing.T) {
			t.Parallel()
			_, e := ownRedis(t)
			op := Op{Key: e.key(), Resource: "account"}
			g := e.guard(GuardOptions{LeaseTTL: 2 * time.Minute, RenewEvery: 50 * time.Millisecond})
			_, err := g.Do(e.ctx(), op, func(ctx context.Context) ([]byte, error) {
				require.NoError(t, e.rdb.FlushAll(ctx).Err())
				<-ctx.Done()
				var lost *LostError
				require.ErrorAs(t, context.Cause(ctx), &lost)
				require.Equal(t, "renew", lost.Step)
				size, err := e.rdb.DBSize(e.ctx()).Result()
				require.NoError(t, err)
				require.Zero(t, size, "a renewal creates nothing")
				if successor {
					_, err = g.Do(e.ctx(), op, (&counted{memo: "successor"}).body)
					require.NoError(t, err)
				}
				return []byte("first"), nil
			})
			memo, readErr := e.store.Result(e.ctx(), op)
			require.NoError(t, readErr)
			if successor {
				require.ErrorIs(t, err, ErrSuperseded)
				require.Equal(t, "successor", string(memo))
				return
			}
			require.NoError(t, err, "the effect has happened, and nobody else has begun")
			require.Equal(t, "first", string(memo))
		})
	}
}
