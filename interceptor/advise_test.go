package interceptor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
)

func attempts(n int32) func(*plan) {
	return func(p *plan) { p.Options.RetryPolicy.MaximumAttempts = n }
}

// What only a call shows is warned of once for each activity.
func TestAdviceAtTheFirstCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		policy interceptor.Policy
		edit   func(*plan)
		want   []string // in the one line; none: no line
	}{
		{name: "all is well"},
		{name: "a key that does nothing", policy: interceptor.Policy{Key: interceptor.KeyFrom(func(s string) any { return s })},
			want: []string{"Key does nothing under ScopeExecution"}},
		{name: "a local key", policy: interceptor.Policy{Key: interceptor.KeyFrom(func(s string) any { return s })},
			edit: func(p *plan) { p.Local = true }},
		{name: "retention", policy: interceptor.Policy{Retention: 5 * time.Minute},
			want: []string{"Retention of 5m0s ends before ScheduleToClose of 1h0m0s"}},
		{name: "unlimited", edit: func(p *plan) { p.Options.ScheduleToCloseTimeout = 0 },
			want: []string{"ScheduleToClose is unlimited and Retention is 24h0m0s"}},
		{name: "lease", policy: interceptor.Policy{LeaseTTL: 2 * time.Hour},
			want: []string{"LeaseTTL of 2h0m0s outlasts ScheduleToClose of 1h0m0s"}},
		// N33: where calls can meet, and attempts are limited, for how many they suffice.
		{name: "one attempt", policy: interceptor.Policy{Scope: interceptor.ScopeNamespace}, edit: attempts(1),
			want: []string{"MaximumAttempts is 1 and Wait is 0: a call that finds the operation or its resource busy fails for good", "set Wait"}},
		{name: "one attempt on a resource", policy: interceptor.Policy{Resource: resource("r")}, edit: attempts(1),
			want: []string{"MaximumAttempts is 1 and Wait is 0"}},
		{name: "one attempt that waits", policy: interceptor.Policy{Scope: interceptor.ScopeNamespace, Wait: time.Second}, edit: attempts(1)},
		{name: "two attempts on a resource", policy: interceptor.Policy{Resource: resource("r"), LeaseTTL: 3 * time.Second}, edit: attempts(2),
			want: []string{"MaximumAttempts is 2 and Wait is 0, which suffices for 2 callers of one resource at once if no body outlasts LeaseTTL of 3s",
				"leave MaximumAttempts unlimited and bound ScheduleToClose, allow more, raise LeaseTTL, or set Wait"}},
		{name: "some attempts of one key", policy: interceptor.Policy{Scope: interceptor.ScopeRun, LeaseTTL: 3 * time.Second}, edit: attempts(5),
			want: []string{"MaximumAttempts is 5 and Wait is 0, which suffices for any number of callers of one key if its body ends within 9s"}},
		{name: "limited, and nobody else", edit: attempts(2)},
		{name: "limited, and waiting", policy: interceptor.Policy{Resource: resource("r"), Wait: time.Second}, edit: attempts(2)},
		{name: "unlimited, on a resource", policy: interceptor.Policy{Resource: resource("r"), Scope: interceptor.ScopeNamespace}},
		{name: "local on a resource", policy: interceptor.Policy{Resource: resource("r"), LeaseTTL: 3 * time.Second},
			edit: func(p *plan) { p.Local = true; attempts(4)(p) },
			want: []string{"MaximumAttempts is 4 and Wait is 0, which suffices for 4 callers of one resource"}},
		{name: "all at once", policy: interceptor.Policy{LeaseTTL: 2 * time.Hour, Retention: 2 * time.Hour, Resource: resource("r")},
			edit: func(p *plan) { attempts(1)(p); p.Options.ScheduleToCloseTimeout = 0 },
			want: []string{"Retention is 2h0m0s", "MaximumAttempts is 1"}},
		{name: "local", policy: interceptor.Policy{LeaseTTL: 2 * time.Hour, Retention: 2 * time.Hour},
			edit: func(p *plan) { p.Local = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("work", c.policy))
			e.worker(func(w worker.Registry) {
				w.RegisterWorkflowWithOptions(fan, workflow.RegisterOptions{Name: "fan"})
				named("work", func(context.Context, string) error { return nil })(w)
			})
			p := staged("work", "x", time.Minute)
			p.Options.ScheduleToCloseTimeout = time.Hour
			if c.edit != nil {
				c.edit(&p)
			}
			if p.Local {
				_, err := e.run(p)
				require.NoError(t, err)
			} else {
				run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), "fan", p, 3)
				require.NoError(t, err)
				if err := run.Get(e.ctx(), nil); err != nil { // what is advised against
					require.Equal(t, interceptor.TypeBusy, failure(t, err).Type())
				}
			}
			lines := e.logs.with("does not fit its options")
			if c.want == nil {
				require.Empty(t, lines)
				return
			}
			require.Len(t, lines, 1)
			for _, want := range c.want {
				require.Contains(t, lines[0], want)
			}
		})
	}
}
