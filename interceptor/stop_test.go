package interceptor_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

func startOn(e *env) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{TaskQueue: e.queue}
}

// untilStopped is a body that stops when it is told to.
func (s *stage) untilStopped(ctx context.Context, arg string) (string, error) {
	done := make(chan answer, 1)
	go func() {
		value, err := s.body(ctx, arg)
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// D11: a worker that stops gives its leases up; the next one runs the same operation
// without waiting for them.
func TestStoppedWorkerGivesItsLeasesUp(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever, Scope: interceptor.ScopeNamespace}))
	s := newStage(e, "work")
	quickly := func(o *worker.Options) { o.WorkerStopTimeout = 2 * time.Second }
	first := e.worker(named("work", s.untilStopped), quickly)
	e.start(staged("work", "x", forever))
	r := s.next()
	first.Stop()
	require.Error(t, r.ctx.Err())
	r.give("for nobody")
	eventually(t, "the lease to be free", func() bool {
		l, err := e.store().Inspect(e.ctx(), r.attempt.Token.Resource)
		require.NoError(t, err)
		return !l.Held
	})

	e.worker(s.register)
	run := e.start(staged("work", "x", forever)) // the same operation, wherever the first one's retry is
	again := s.next()
	require.Greater(t, again.token(), r.token())
	require.NotEqual(t, primitives.Replayed, again.attempt.Outcome)
	again.give("by the second worker")
	var out string
	if again.info.WorkflowExecution.ID == run.GetID() {
		require.NoError(t, run.Get(e.ctx(), &out))
		require.Equal(t, "by the second worker", out)
	}
}

// D11: an application that closes its Redis client before its workers stop does not hang.
func TestRedisClosedBeforeTheWorkerStops(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever}))
	s := newStage(e, "work")
	rdb := redis.NewClient(e.rdb.Options())
	e.opts.Redis = rdb
	w := e.worker(named("work", s.untilStopped), func(o *worker.Options) { o.WorkerStopTimeout = 2 * time.Second })
	done := e.start(staged("work", "x", forever))
	s.next().give("")
	require.NoError(t, done.Get(e.ctx(), nil))
	// The run that is left must be one that is stopped.
	e.start(staged("work", "y", forever))
	r := s.next()
	before := len(e.logs.with("WARN fencekit"))
	require.NoError(t, rdb.Close())
	stopped := make(chan struct{})
	go func() { w.Stop(); close(stopped) }()
	await(t, stopped, "the worker to stop")
	await(t, r.ctx.Done(), "the body to stop")
	r.give("for nobody")
	eventually(t, "the warning", func() bool { return len(e.logs.with("WARN fencekit: redis could not be told")) > 0 })
	require.Len(t, e.logs.with("WARN fencekit: redis could not be told"), 1)
	require.Len(t, e.logs.with("WARN fencekit"), before+1, "and no other")
}
