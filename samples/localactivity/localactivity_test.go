package localactivity_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/localactivity"
)

// Temporal's own test environment takes the interceptor as a worker does.
func TestAnOrderHasOneNumber(t *testing.T) {
	t.Parallel()
	s := stack.ForTest(t, stack.Config{})
	prefix := stack.Unique(localactivity.TaskQueue)
	acts := &localactivity.Activities{Redis: s.Redis, Counter: prefix + "-counter"}
	kit, err := interceptor.New(interceptor.Options{
		Redis: s.Redis, Store: primitives.Options{Prefix: prefix}, Guards: localactivity.Guards(acts),
	})
	require.NoError(t, err)
	for _, c := range []struct {
		order string
		want  int64
	}{{"A1", 1}, {"A1", 1}, {"A2", 2}, {"A1", 1}} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestWorkflowEnvironment()
		env.SetWorkerOptions(worker.Options{Interceptors: []sdk.WorkerInterceptor{kit}})
		localactivity.Register(env, acts)
		env.ExecuteWorkflow(localactivity.Number, localactivity.Invoice{Order: c.order})
		require.NoError(t, env.GetWorkflowError())
		var n int64
		require.NoError(t, env.GetWorkflowResult(&n))
		require.Equal(t, c.want, n, c.order)
	}
}
