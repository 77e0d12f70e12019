package primitives

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// ownRedis is a server that the test may break, and an env on it.
func ownRedis(t *testing.T, conf ...string) (*devstack.Redis, *env) {
	t.Helper()
	server := devstack.RedisForTest(t, devstack.RedisConfig{Own: true, Conf: conf})
	rdb := redis.NewClient(clientOptions(server.Addr(), nil))
	t.Cleanup(func() { _ = rdb.Close() })
	return server, newEnv(t, rdb, true)
}

// Scripts that the server forgets all the time are no error at all: not to calls, and
// not to leases that are kept by pipelined renewals: F01, F02.
func TestAScriptCacheThatIsAlwaysLostIsNoError(t *testing.T) {
	t.Parallel()
	_, e := ownRedis(t)
	ctx, stop := context.WithCancel(e.ctx())
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for ctx.Err() == nil {
			_ = e.rdb.ScriptFlush(ctx).Err()
			time.Sleep(10 * time.Millisecond)
		}
	})
	defer flushing.Wait()
	defer stop()

	const workers, calls, kept = 100, 2000, 50
	var leases []*Lease
	var held []context.Context
	for i := range kept {
		lease, err := e.store.TryAcquire(ctx, fmt.Sprintf("kept %d", i), LeaseOptions{TTL: 2 * time.Minute})
		require.NoError(t, err)
		lease.every = 20 * time.Millisecond
		keeping, end := lease.Keep(ctx)
		defer end()
		leases, held = append(leases, lease), append(held, keeping)
	}
	granted := make([]time.Time, kept)
	for i, lease := range leases {
		granted[i] = lease.Deadline()
	}
	body, g := &counted{}, e.guard(GuardOptions{})
	errs := make(chan error, calls)
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for range calls / workers {
				_, err := g.Do(ctx, e.op(), body.body)
				errs <- err
			}
		})
	}
	work.Wait()
	for range calls {
		require.NoError(t, <-errs)
	}
	require.EqualValues(t, calls, body.runs.Load())
	for i, lease := range leases {
		eventually(t, "it has been renewed", func() bool { return lease.Deadline().After(granted[i]) })
		require.NoError(t, held[i].Err())
	}
}

// A server that restarts has no scripts, and a client has dead connections.
func TestARestartIsNoErrorToTheNextCall(t *testing.T) {
	t.Parallel()
	server, e := ownRedis(t)
	g := e.guard(GuardOptions{})
	for range 3 {
		_, err := g.Do(e.ctx(), e.op(), (&counted{}).body)
		require.NoError(t, err)
		require.NoError(t, server.Restart(e.ctx()))
	}
}
