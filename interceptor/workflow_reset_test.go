package interceptor_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
)

// resettable is a workflow that the test resets to a point between its two steps. Its work
// is scheduled before that point, or after it, and not done when the reset comes.
func resettable(ctx workflow.Context, workFirst bool) (result string, err error) {
	ctx = workflow.WithActivityOptions(ctx, staged("", "", time.Hour).Options)
	var work workflow.Future
	if workFirst {
		work = workflow.ExecuteActivity(ctx, "work", "x")
	}
	for _, name := range []string{"done before", "done after"} {
		if err := workflow.ExecuteActivity(ctx, "step", name).Get(ctx, nil); err != nil {
			return "", err
		}
	}
	if !workFirst {
		work = workflow.ExecuteActivity(ctx, "work", "x")
	}
	err = work.Get(ctx, &result)
	return result, err
}

// steps counts the runs of the activity step.
type steps struct {
	mu   sync.Mutex
	runs map[string]int
}

func (s *steps) step(_ context.Context, name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[name]++
	return name, nil
}

// resetBehindTheFirstStep resets a workflow to when it had heard of "done before".
func (e *env) resetBehindTheFirstStep(run client.WorkflowRun) client.WorkflowRun {
	e.Helper()
	tasks := e.history(run, enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
	require.Greater(e, len(tasks), 2)
	r, err := e.client.ResetWorkflowExecution(e.ctx(), &workflowservice.ResetWorkflowExecutionRequest{Namespace: "default",
		WorkflowExecution: execution(run), Reason: "test", RequestId: e.queue, WorkflowTaskFinishEventId: tasks[1].GetEventId()})
	require.NoError(e, err)
	return e.client.GetWorkflow(e.ctx(), run.GetID(), r.GetRunId())
}

// A reset of a workflow makes another run of it, while bodies of the first one may still
// be at work. Under ScopeExecution and ScopeRun its calls are its own: they begin at once,
// beside the others unless a resource keeps them apart, under another key; what was done
// after the point is done again. Under the wider scopes they are the calls of the first
// run: they wait for its bodies and have their results. What its history knows to be done
// is not called again.
func TestWorkflowReset(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy      interceptor.Policy
		same, waits bool // the calls of the second run are those of the first; wait for their bodies
	}{
		"execution":                  {interceptor.Policy{}, false, false},
		"execution, with a resource": {interceptor.Policy{Resource: resource("account/42")}, false, true},
		"run":                        {interceptor.Policy{Scope: interceptor.ScopeRun}, false, false},
		"workflow":                   {interceptor.Policy{Scope: interceptor.ScopeWorkflow}, true, true},
		"namespace":                  {interceptor.Policy{Scope: interceptor.ScopeNamespace}, true, true},
	} {
		for _, pending := range []string{"scheduled before", "scheduled after"} {
			t.Run(name+", "+pending, func(t *testing.T) {
				t.Parallel()
				policy := c.policy
				policy.LeaseTTL = forever
				step := policy
				step.Resource = interceptor.ResourceFunc{} // which the pending body holds
				e := newEnv(t, interceptor.For("step", step), interceptor.For("work", policy))
				seen, s, done := e.watch(), newStage(e, "work"), &steps{runs: map[string]int{}}
				e.worker(and(s.register, named("step", done.step), func(w worker.Registry) {
					w.RegisterWorkflowWithOptions(resettable, workflow.RegisterOptions{Name: "resettable"})
				}))
				run, err := e.execute(client.StartWorkflowOptions{}, "resettable", pending == "scheduled before")
				require.NoError(t, err)
				first := s.next()
				eventually(t, "the steps to be done", func() bool {
					return len(e.history(run, enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)) == 3
				})
				again := e.resetBehindTheFirstStep(run)

				want, after := "second", 2
				if c.waits {
					eventually(t, "the second run to find it busy", func() bool { return len(seen.busy()) > 0 })
					s.over()
					first.give("first")
				}
				if c.same {
					want, after = "first", 1
				} else {
					second := s.next()
					require.Greater(t, second.token(), first.token())
					require.NotEqual(t, first.attempt.Key, second.attempt.Key)
					require.NotEqual(t, first.idempotencyKey(t), second.idempotencyKey(t))
					second.give("second")
				}
				var result string
				require.NoError(t, again.Get(e.ctx(), &result))
				require.Equal(t, want, result)
				if !c.waits {
					first.give("too late")
				}
				s.over()
				require.Equal(t, map[string]int{"done before": 1, "done after": after}, done.runs)
			})
		}
	}
}
