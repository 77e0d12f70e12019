package sdk150_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
)

const patience = 2 * time.Minute

// A replace that no longer holds would test another version, and say nothing.
func TestVersion(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1.50.0", temporal.SDKVersion)
}

// env is a task queue with a guarded worker, by the plugin.
type env struct {
	*testing.T

	client client.Client
	queue  string
	body   func(context.Context, string) (string, error)
	runs   atomic.Int64
}

var queues atomic.Int64

func newEnv(t *testing.T, policy interceptor.Policy) *env {
	t.Helper()
	e := &env{T: t, queue: fmt.Sprintf("sdk150-%d-%d", os.Getpid(), queues.Add(1))}
	e.body = func(_ context.Context, in string) (string, error) { return "hello " + in, nil }
	kit, err := interceptor.New(interceptor.Options{
		Redis: devstack.RedisForTest(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }),
		Store: primitives.Options{Prefix: e.queue, Timeout: 10 * time.Second}, Guards: []interceptor.Guard{interceptor.For("greet", policy)},
	})
	require.NoError(t, err)
	e.client = devstack.TemporalForTest(t).ClientForTest(t, func(o *client.Options) { o.Plugins = []client.Plugin{kit.Plugin()} })
	w := worker.New(e.client, e.queue, worker.Options{})
	w.RegisterWorkflowWithOptions(call, workflow.RegisterOptions{Name: "call"})
	w.RegisterActivityWithOptions(func(ctx context.Context, in string) (string, error) {
		e.runs.Add(1)
		return e.body(ctx, in)
	}, activity.RegisterOptions{Name: "greet"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return e
}

// Call is what the workflow does: one activity.
type Call struct {
	In, Key string
	Local   bool
	Once    bool // no retries
}

func call(ctx workflow.Context, c Call) (out string, err error) {
	retries := &temporal.RetryPolicy{}
	if c.Once {
		retries.MaximumAttempts = 1
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: patience, ScheduleToCloseTimeout: patience, RetryPolicy: retries})
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: patience})
	if c.Key != "" {
		if ctx, err = interceptor.WithKey(ctx, c.Key); err != nil {
			return "", err
		}
	}
	run := workflow.ExecuteActivity
	if c.Local {
		run = workflow.ExecuteLocalActivity
	}
	err = run(ctx, "greet", c.In).Get(ctx, &out)
	return out, err
}

func (e *env) start(c Call) client.WorkflowRun {
	e.Helper()
	run, err := e.client.ExecuteWorkflow(e.Context(), client.StartWorkflowOptions{TaskQueue: e.queue}, "call", c)
	require.NoError(e, err)
	return run
}

func (e *env) run(c Call) (out string, err error) {
	e.Helper()
	err = e.start(c).Get(e.Context(), &out)
	return out, err
}

// The second workflow gets the first one's result, from a local activity too.
func TestReplay(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.Policy{Scope: interceptor.ScopeNamespace})
	for _, local := range []bool{false, false, true} {
		out, err := e.run(Call{In: "jo", Local: local})
		require.NoError(t, err)
		require.Equal(t, "hello jo", out)
	}
	require.EqualValues(t, 1, e.runs.Load())
}

// A key set in the workflow is what counts: with other input it is a mismatch.
func TestWithKey(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.Policy{Scope: interceptor.ScopeNamespace})
	for range 2 {
		out, err := e.run(Call{In: "jo", Key: "charge-A1"})
		require.NoError(t, err)
		require.Equal(t, "hello jo", out)
	}
	_, err := e.run(Call{In: "bo", Key: "charge-A1"})
	require.Equal(t, interceptor.TypeMismatch, failure(t, err).Type())
	require.EqualValues(t, 1, e.runs.Load())
}

// Who comes while another is at work is told so, and when to come again.
func TestBusy(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.Policy{Scope: interceptor.ScopeNamespace, LeaseTTL: time.Hour})
	working, done := make(chan struct{}), make(chan struct{})
	e.body = func(context.Context, string) (string, error) {
		close(working)
		<-done
		return "hello", nil
	}
	holder := e.start(Call{In: "jo"})
	select {
	case <-working:
	case <-time.After(patience):
		require.FailNow(t, "nobody has begun")
	}
	_, err := e.run(Call{In: "jo", Once: true})
	close(done)
	busy := failure(t, err)
	require.Equal(t, interceptor.TypeBusy, busy.Type())
	require.Equal(t, temporal.ApplicationErrorCategoryBenign, busy.Category())
	var details interceptor.Busy
	require.NoError(t, busy.Details(&details))
	require.Contains(t, details.Holder, holder.GetID())
	require.NoError(t, holder.Get(t.Context(), nil))
}

// A failure passes as it is, and the next attempt runs the body again.
func TestRetry(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.Policy{})
	e.body = func(ctx context.Context, _ string) (string, error) {
		if activity.GetInfo(ctx).Attempt == 1 {
			return "", temporal.NewApplicationError("not yet", "NotYet")
		}
		return "hello", nil
	}
	out, err := e.run(Call{In: "jo"})
	require.NoError(t, err)
	require.Equal(t, "hello", out)
	require.EqualValues(t, 2, e.runs.Load())
}

func failure(t *testing.T, err error) *temporal.ApplicationError {
	t.Helper()
	var a *temporal.ApplicationError
	require.ErrorAs(t, err, &a)
	return a
}
