package localactivity_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/samples/localactivity"
	"github.com/fencekit/fencekit-go/testsuite"
)

// Temporal's own test environment, with the guard in it and Redis in memory.
func TestAnOrderHasOneNumber(t *testing.T) {
	t.Parallel()
	kit := testsuite.New(t, testsuite.Options{})
	acts := &localactivity.Activities{Redis: kit.Redis(), Counter: "localactivity-counter"}
	kit.Guard(localactivity.Guards(acts)...)
	for _, c := range []struct {
		order string
		want  int64
	}{{"A1", 1}, {"A1", 1}, {"A2", 2}, {"A1", 1}} {
		env := kit.WorkflowEnvironment()
		localactivity.Register(env, acts)
		env.ExecuteWorkflow(localactivity.Number, localactivity.Invoice{Order: c.order})
		require.NoError(t, env.GetWorkflowError())
		var n int64
		require.NoError(t, env.GetWorkflowResult(&n))
		require.Equal(t, c.want, n, c.order)
	}
}
