package interceptor_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
)

// fromTheFuture is a message with a field that this release does not know.
func fromTheFuture() *commonpb.WorkflowExecution {
	m := &commonpb.WorkflowExecution{WorkflowId: "w"}
	m.ProtoReflect().SetUnknown([]byte{0xfa, 0x3e, 1, 'x'}) // field 1007: "x"
	return m
}

// way is how a workflow calls an activity.
type way struct {
	Activity string
	Local    bool
}

// do calls an activity in that way, once.
func (w way) do(ctx workflow.Context, args ...any) workflow.Future {
	retry := once("", "").Options.RetryPolicy
	if w.Local {
		return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
			StartToCloseTimeout: forever, RetryPolicy: retry}), w.Activity, args...)
	}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: forever, RetryPolicy: retry}), w.Activity, args...)
}

// N08: what cannot be digested stops no call that has another key: under ScopeExecution,
// where history fixes the input, and beside what KeyFrom picks. It is not compared then,
// of which there is one warning.
func TestWhatCannotBeDigestedBesideAKey(t *testing.T) {
	t.Parallel()
	byID := interceptor.KeyFrom(func(id string) any { return id })
	type result struct {
		kinds []string // how two equal calls ended
		runs  int
	}
	runTwice, replay := result{[]string{"done", "done"}, 2}, result{[]string{"done", "done"}, 1}
	refused := result{[]string{interceptor.TypeKeyError, interceptor.TypeKeyError}, 0}
	for name, value := range map[string]any{
		"an unknown field":   fromTheFuture(),
		"too large":          make(film, 13<<20),
		"not a number":       reading{math.NaN()},
		"an infinite number": reading{math.Inf(1)},
		"a large number":     map[string]any{"n": 1e21},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for policyName, c := range map[string]struct {
				policy interceptor.Policy
				local  bool
				want   result
			}{
				"execution":               {interceptor.Policy{}, false, runTwice},
				"execution and a key":     {interceptor.Policy{Key: byID}, false, runTwice},
				"namespace and a key":     {interceptor.Policy{Scope: interceptor.ScopeNamespace, Key: byID}, false, replay},
				"namespace, key, local":   {interceptor.Policy{Scope: interceptor.ScopeNamespace, Key: byID}, true, replay},
				"run, key, local":         {interceptor.Policy{Scope: interceptor.ScopeRun, Key: byID}, true, replay},
				"control: nothing picked": {interceptor.Policy{Scope: interceptor.ScopeNamespace}, false, refused},
				"control: local":          {interceptor.Policy{}, true, refused},
			} {
				if name == "a large number" && policyName == "control: local" {
					continue // which is a float there, by its type
				}
				t.Run(policyName, func(t *testing.T) {
					t.Parallel()
					e := newEnv(t, interceptor.For("work", c.policy))
					e.dial(binary())
					var runs counted
					var got result
					body := map[string]any{
						"an unknown field": func(ctx context.Context, _ string, m *commonpb.WorkflowExecution) (string, error) {
							require.NotEmpty(t, m.ProtoReflect().GetUnknown(), "or the test shows nothing")
							runs.ran(ctx)
							return m.GetWorkflowId(), nil
						},
						"a large number": func(ctx context.Context, _ string, _ map[string]any) error { runs.ran(ctx); return nil },
						"too large":      func(ctx context.Context, _ string, f film) (int, error) { runs.ran(ctx); return len(f), nil },
					}[name]
					if body == nil {
						body = func(ctx context.Context, _ string, _ reading) error { runs.ran(ctx); return nil }
					}
					e.worker(func(w worker.Registry) {
						named("work", body)(w)
						w.RegisterWorkflowWithOptions(func(ctx workflow.Context) (kinds []string, err error) {
							for range 2 {
								err := way{"work", c.local}.do(ctx, "order-1", value).Get(ctx, nil)
								kinds = append(kinds, kindOf(err))
							}
							return kinds, nil
						}, workflow.RegisterOptions{Name: "twice"})
					})
					run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), "twice")
					require.NoError(t, err)
					require.NoError(t, run.Get(e.ctx(), &got.kinds))
					got.runs = runs.runs()
					require.Equal(t, c.want, got)
					switch got.runs {
					case 1:
						require.Len(t, e.warnings(), 1)
					case 2:
						require.Empty(t, e.warnings())
					}
				})
			}
		})
	}
}

// warnings are those of the kit, other than its advice.
func (e *env) warnings() (found []string) {
	for _, line := range e.logs.with("WARN fencekit") {
		if !strings.Contains(line, "does not fit its options") {
			found = append(found, line)
		}
	}
	return found
}
