package interceptor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
)

// D17: a workflow task that times out has its local activities run again, by another
// worker. The result is there already.
func TestLocalActivityRunAgainByAnotherWorkerIsReplayed(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("local", interceptor.Policy{LeaseTTL: forever}))
	seen := e.watch()
	s, err := sharedTemporal()
	require.NoError(t, err)
	proxy := devstack.RawProxyForTest(t, s.Addr())
	direct := e.client
	e.client = s.ClientForTest(t, func(o *client.Options) { o.HostPort, o.Logger = proxy.Addr(), e.logs })
	var runs atomic.Int64
	body := func(context.Context, string) (string, error) {
		runs.Add(1)
		return "the first one's", nil
	}
	e.worker(named("local", func(ctx context.Context, arg string) (string, error) {
		proxy.Freeze() // what the first worker says from now on is not heard
		return body(ctx, arg)
	}))
	e.client = direct
	// The task is longer than a machine stands still: nobody else runs the activity before
	// its result is there.
	run, err := e.execute(client.StartWorkflowOptions{WorkflowTaskTimeout: 12 * time.Second},
		"run-one", plan{Activity: "local", Args: []any{"x"}, Local: true})
	require.NoError(t, err)
	eventually(t, "the memo", func() bool { return len(seen.kind(primitives.EventCompleted)) == 1 })
	e.worker(named("local", body))

	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "the first one's", out)
	require.EqualValues(t, 1, runs.Load())
	require.NotEmpty(t, seen.began(primitives.Replayed))
	proxy.Thaw()
	proxy.Reset()
}

// D20: the deadline passes while Redis is slow to confirm the memo. It is stored all the
// same, and the next attempt replays it.
func TestDeadlineBetweenBodyAndMemo(t *testing.T) {
	t.Parallel()
	const timeout, late = 3 * time.Second, 8 * time.Second
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever}))
	seen, s := e.watch(), newStage(e, "work")
	proxy := devstack.ProxyForTest(t, e.rdb.Options().Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = rdb.Close() })
	e.opts.Redis, e.opts.Store.Timeout = rdb, time.Minute
	written := make(chan struct{})
	e.worker(s.register, oneAtATime(written)) // an attempt 2 before that would take over
	// Redis knows the scripts after this one.
	warm := e.start(staged("work", "warm", forever))
	s.next().give("")
	require.NoError(t, warm.Get(e.ctx(), nil))
	run := e.start(staged("work", "x", timeout))

	r := s.next()
	slow := proxy.Add(devstack.Rule{Match: devstack.Named("EVALSHA"), Nth: 1, Fault: devstack.DelayReply(late)})
	r.give("just in time")
	await(t, slow.Struck(), "the memo to be written")
	close(written)

	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "just in time", out)
	s.over()
	require.Len(t, seen.began(primitives.Begun), 2)
	require.NotEmpty(t, seen.began(primitives.Replayed))
	eventually(t, "the slow confirmation", func() bool { return len(seen.kind(primitives.EventCompleted)) == 2 })
	require.Empty(t, seen.kind(primitives.EventLost))
}
