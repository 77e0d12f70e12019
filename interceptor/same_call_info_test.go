package interceptor

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
)

// Which differences between two deliveries are the same operation, as far as the server's
// word for a call goes: also for standalone activities, which the server at hand lacks.
// TestWhichCallsAreTheSameOperation is the same on a server.
func TestWhichDeliveriesAreTheSameOperation(t *testing.T) {
	t.Parallel()
	const never = ScopeNamespace + 1
	regular, alone := ofWorkflow(), standalone("id", "run")
	regular.ScheduledTime, alone.ScheduledTime = time.Unix(1, 7), time.Unix(1, 7)
	for name, c := range map[string]struct {
		info  activity.Info
		other func(*activity.Info)
		input string  // of the second; that of the first is "x"
		same  []Scope // in which the two are one operation
	}{
		"a retry":                           {regular, func(i *activity.Info) { i.Attempt = 2; i.StartedTime = time.Unix(9, 0) }, "x", widerOr(ScopeExecution)},
		"its input, as read by another":     {regular, func(i *activity.Info) { i.Attempt = 2 }, "y", []Scope{ScopeExecution}},
		"N01: one id, scheduled again":      {regular, func(i *activity.Info) { i.ScheduledTime = time.Unix(1, 8) }, "x", widerOr(ScopeRun)},
		"another id":                        {regular, func(i *activity.Info) { i.ActivityID = "6" }, "x", widerOr(ScopeRun)},
		"another run":                       {regular, func(i *activity.Info) { i.WorkflowExecution.RunID = "s" }, "x", widerOr(ScopeWorkflow)},
		"another workflow":                  {regular, func(i *activity.Info) { i.WorkflowExecution.ID = "v" }, "x", widerOr(ScopeNamespace)},
		"another Temporal namespace":        {regular, func(i *activity.Info) { i.Namespace = "other" }, "x", widerOr(never)},
		"another workflow type":             {regular, func(i *activity.Info) { i.WorkflowType = nil }, "x", widerOr(ScopeExecution)},
		"another queue":                     {regular, func(i *activity.Info) { i.TaskQueue = "other" }, "x", widerOr(ScopeExecution)},
		"standalone: a retry":               {alone, func(i *activity.Info) { i.Attempt = 2; i.StartedTime = time.Unix(9, 0) }, "x", widerOr(ScopeExecution)},
		"standalone: its input, by another": {alone, func(i *activity.Info) { i.Attempt = 2 }, "y", []Scope{ScopeExecution}},
		"standalone: another run":           {alone, func(i *activity.Info) { i.ActivityRunID = "s" }, "x", widerOr(ScopeWorkflow)},
		"standalone: another id":            {alone, func(i *activity.Info) { i.ActivityID = "other" }, "x", widerOr(ScopeNamespace)},
		"standalone: another namespace":     {alone, func(i *activity.Info) { i.Namespace = "other" }, "x", widerOr(never)},
		"standalone: one of a workflow":     {alone, func(i *activity.Info) { *i = regular; i.WorkflowExecution.ID, i.WorkflowExecution.RunID = "id", "run" }, "x", widerOr(ScopeRun)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := c.info
			c.other(&other)
			for _, scope := range widerOr(ScopeExecution) {
				p := Policy{Scope: scope}
				first, second := keyOf(t, p, c.info, "x"), keyOf(t, p, other, c.input)
				if want := slices.Contains(c.same, scope); (first == second) != want {
					t.Errorf("%s: the same operation: %t", scope, !want)
				}
				if scope == ScopeExecution {
					op, err := opOf(t, p, other, c.input)
					require.NoError(t, err)
					require.True(t, op.Fingerprint.IsZero(), "history fixes the input of a call")
				}
			}
		})
	}
}

// widerOr are the scopes from one on.
func widerOr(from Scope) (all []Scope) {
	for s := from; s <= ScopeNamespace; s++ {
		all = append(all, s)
	}
	return all
}
