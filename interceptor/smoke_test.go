package interceptor_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

func registerAs(name string) activity.RegisterOptions { return activity.RegisterOptions{Name: name} }

// A business key: the second workflow gets the first one's result.
func TestTwoWorkflowsShareABusinessKey(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("greet", interceptor.Policy{Scope: interceptor.ScopeNamespace}))
	var runs atomic.Int64
	e.worker(named("greet", func(ctx context.Context, name string) (string, error) {
		a, ok := interceptor.Attempt(ctx)
		require.True(t, ok)
		require.Equal(t, primitives.Begun, a.Outcome)
		runs.Add(1)
		return "hello " + name, nil
	}))
	for range 2 {
		out, err := e.run(call("greet", "jo"))
		require.NoError(t, err)
		require.Equal(t, "hello jo", out)
	}
	require.EqualValues(t, 1, runs.Load())
}
