package primitives

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// refusing are servers that take no writes, each for a reason of its own.
var refusing = map[string]func(t *testing.T, server *devstack.Redis, e *env){
	"a replica": func(t *testing.T, _ *devstack.Redis, e *env) {
		require.NoError(t, e.rdb.(*redis.Client).ReplicaOf(e.ctx(), "127.0.0.1", "1").Err())
	},
	"too few replicas": func(t *testing.T, server *devstack.Redis, _ *env) {
		require.NoError(t, server.Config(t.Context(), "min-replicas-to-write", "1"))
	},
	"writes paused": func(t *testing.T, _ *devstack.Redis, e *env) {
		require.NoError(t, e.rdb.Do(e.ctx(), "CLIENT", "PAUSE", "3600000", "WRITE").Err())
	},
	"frozen": func(t *testing.T, server *devstack.Redis, _ *env) { require.NoError(t, server.Freeze()) },
	"killed": func(t *testing.T, server *devstack.Redis, _ *env) { require.NoError(t, server.Kill()) },
}

// A server that takes no writes is unavailable: no body starts; one that runs ends
// with its lease by the local deadline, and nothing is stored half.
func TestAServerThatRefusesWritesIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, refuse := range refusing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, e := ownRedis(t)
			e.store.opts.Timeout = 300 * time.Millisecond
			g := e.guard(GuardOptions{LeaseTTL: 600 * time.Millisecond})
			started := false
			body := func(ctx context.Context) ([]byte, error) {
				started = true
				refuse(t, server, e)
				body := &counted{}
				within(t, 20*time.Second, func() {
					_, err := g.Do(e.ctx(), e.op(), body.body)
					require.ErrorIs(t, err, ErrUnavailable)
					require.NotErrorIs(t, err, ErrBusy)
				})
				require.Zero(t, body.runs.Load())
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), fence.ErrLeaseLost)
				return []byte("memo"), nil
			}
			var err error
			for !started { // the budget is short on a loaded machine
				_, err = g.Do(e.ctx(), Op{Key: e.key(), Resource: newNonce()}, body)
			}
			require.ErrorIs(t, err, fence.ErrLeaseLost, "nobody can say that it was still ours")
		})
	}
}
