package interceptor_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// placing is an interceptor that puts a value into the context of a workflow's main
// function, and counts the workflow's calls in itself.
type placing struct {
	sdk.WorkerInterceptorBase

	instances atomic.Int64
}

type placed struct{}

type placingIn struct {
	sdk.WorkflowInboundInterceptorBase

	calls int // by all of the run's code
}

func (p *placing) InterceptWorkflow(_ workflow.Context, next sdk.WorkflowInboundInterceptor) sdk.WorkflowInboundInterceptor {
	p.instances.Add(1)
	i := &placingIn{}
	i.Next = next
	return i
}

func (i *placingIn) Init(next sdk.WorkflowOutboundInterceptor) error {
	o := &placingOut{in: i}
	o.Next = next
	return i.Next.Init(o)
}

func (i *placingIn) ExecuteWorkflow(ctx workflow.Context, in *sdk.ExecuteWorkflowInput) (any, error) {
	return i.Next.ExecuteWorkflow(workflow.WithValue(ctx, placed{}, true), in)
}

type placingOut struct {
	sdk.WorkflowOutboundInterceptorBase

	in *placingIn
}

func (o *placingOut) ExecuteLocalActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	o.in.calls++
	return o.Next.ExecuteLocalActivity(ctx, name, o.in.calls)
}

// An update's handler that starts with its workflow does not see what an interceptor has
// put into the context of the workflow's main function; one instance of the interceptor
// serves both.
func TestFactAnUpdateThatStartsAWorkflowHasItsOwnContext(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := &placing{}
	type found struct {
		Placed bool
		Call   int
	}
	look := func(ctx workflow.Context) (f found, err error) {
		f.Placed = ctx.Value(placed{}) != nil
		return f, way{"echo", true}.do(ctx, 0).Get(ctx, &f.Call)
	}
	e.bare(func(w worker.Registry) {
		named("echo", func(_ context.Context, n int) (int, error) { return n, nil })(w)
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context) (f found, err error) {
			updated := false
			err = workflow.SetUpdateHandler(ctx, "look", func(ctx workflow.Context) (found, error) {
				f, err := look(ctx)
				updated = true
				return f, err
			})
			if err == nil {
				f, err = look(ctx)
			}
			if err == nil {
				err = workflow.Await(ctx, func() bool { return updated })
			}
			return f, err
		}, workflow.RegisterOptions{Name: "looks"})
	}, before(p))
	start := e.client.NewWithStartWorkflowOperation(client.StartWorkflowOptions{ID: e.queue, TaskQueue: e.queue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL}, "looks")
	update, err := e.client.UpdateWithStartWorkflow(e.ctx(), client.UpdateWithStartWorkflowOptions{StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{UpdateName: "look", WaitForStage: client.WorkflowUpdateStageCompleted}})
	require.NoError(t, err)
	var inUpdate, inMain found
	require.NoError(t, update.Get(e.ctx(), &inUpdate))
	run, err := start.Get(e.ctx())
	require.NoError(t, err)
	require.NoError(t, run.Get(e.ctx(), &inMain))
	require.True(t, inMain.Placed)
	require.False(t, inUpdate.Placed)
	require.ElementsMatch(t, []int{1, 2}, []int{inMain.Call, inUpdate.Call}, "counted by one instance")
	require.EqualValues(t, 1, p.instances.Load())
}

// A dynamic activity cannot serve a local call: interceptors are given the workflow's own
// values, and so is its function, which takes none but EncodedValues.
func TestFactADynamicActivityAsALocalOne(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var got atomic.Value
	e.bare(func(w worker.Registry) {
		w.RegisterDynamicActivity(func(ctx context.Context, v converter.EncodedValues) (string, error) {
			var order string
			err := v.Get(&order)
			return activity.GetInfo(ctx).ActivityType.Name + " " + order, err
		}, activity.DynamicRegisterOptions{})
	}, before(&around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
		got.Store(in.Args)
		return next(ctx, in)
	}}))
	_, err := e.run(call("anything", "A1").local().once())
	require.ErrorContains(t, err, "Call using string as type converter.EncodedValues")
	require.Equal(t, []any{"A1"}, got.Load())
}
