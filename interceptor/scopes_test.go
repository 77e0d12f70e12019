package interceptor_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
)

type interceptorOf = sdk.WorkerInterceptor

// months is a workflow that does the same thing in each of its runs.
func months(ctx workflow.Context, p plan, left int) error {
	if _, err := runOne(ctx, p); err != nil || left <= 1 {
		return err
	}
	return workflow.NewContinueAsNewError(ctx, "months", p, left-1)
}

// D13: under the business scope a monthly fee is charged once; under the others as
// often as their words say. The default is ScopeExecution.
func TestScopesOverContinueAsNew(t *testing.T) {
	t.Parallel()
	for scope, want := range map[interceptor.Scope]int{
		interceptor.ScopeExecution: 3, interceptor.ScopeRun: 3, interceptor.ScopeWorkflow: 1, interceptor.ScopeNamespace: 1,
	} {
		t.Run(scope.String(), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("fee", interceptor.Policy{Scope: scope}))
			var runs counted
			e.worker(and(named("fee", func(ctx context.Context, account string) error { runs.ran(ctx); return nil }),
				func(w worker.Registry) {
					w.RegisterWorkflowWithOptions(months, workflow.RegisterOptions{Name: "months"})
				}))
			run, err := e.client.ExecuteWorkflow(e.ctx(), client.StartWorkflowOptions{TaskQueue: e.queue}, "months", call("fee", "acc"), 3)
			require.NoError(t, err)
			require.NoError(t, run.Get(e.ctx(), nil))
			require.Equal(t, want, runs.runs())
		})
	}
}

// D14: the same reminder twice on purpose.
func TestScopesOfTwoCallsInOneWorkflow(t *testing.T) {
	t.Parallel()
	for scope, want := range map[interceptor.Scope]int{
		interceptor.ScopeExecution: 2, interceptor.ScopeRun: 1, interceptor.ScopeWorkflow: 1, interceptor.ScopeNamespace: 1,
	} {
		t.Run(scope.String(), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("remind", interceptor.Policy{Scope: scope}))
			var runs counted
			e.worker(and(named("remind", func(ctx context.Context, who string) error { runs.ran(ctx); return nil })))
			e.steps(call("remind", "jo"), call("remind", "jo"))
			require.Equal(t, want, runs.runs())
		})
	}
}

// D16: two standalone activities do not meet, though neither has a workflow; and the
// log has no empty names.
func TestAStandaloneActivityIsGuarded(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("once", interceptor.Policy{Scope: interceptor.ScopeRun}))
	var runs atomic.Int64
	kit := e.interceptor()
	for range 2 {
		var suite testsuite.WorkflowTestSuite
		suite.SetLogger(e.logs)
		a := suite.NewTestActivityEnvironment().SetExecuteActivitiesInWorkflow(false)
		a.SetWorkerOptions(worker.Options{Interceptors: []interceptorOf{kit}})
		a.RegisterActivityWithOptions(func(ctx context.Context, _ string) (int64, error) {
			require.NotContains(t, e.stored(), "workflow=")
			return runs.Add(1), nil
		}, registerAs("once"))
		_, err := a.ExecuteActivity("once", "x")
		require.NoError(t, err)
	}
	// The test environment gives both the same ids: the second is a retry of the first.
	require.EqualValues(t, 1, runs.Load())
}
