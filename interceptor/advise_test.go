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
		{name: "retention", policy: interceptor.Policy{Retention: 5 * time.Minute},
			want: []string{"Retention of 5m0s ends before ScheduleToClose of 1h0m0s"}},
		{name: "unlimited", edit: func(p *plan) { p.Options.ScheduleToCloseTimeout = 0 },
			want: []string{"ScheduleToClose is unlimited and Retention is 24h0m0s"}},
		{name: "lease", policy: interceptor.Policy{LeaseTTL: 2 * time.Hour},
			want: []string{"LeaseTTL of 2h0m0s outlasts ScheduleToClose of 1h0m0s"}},
		{name: "one attempt", edit: func(p *plan) { p.Options.RetryPolicy.MaximumAttempts = 1 },
			want: []string{"MaximumAttempts is 1 and Wait is 0"}},
		{name: "one attempt that waits", policy: interceptor.Policy{Wait: time.Second},
			edit: func(p *plan) { p.Options.RetryPolicy.MaximumAttempts = 1 }},
		{name: "all at once", policy: interceptor.Policy{LeaseTTL: 2 * time.Hour, Retention: 2 * time.Hour},
			edit: func(p *plan) { p.Options.RetryPolicy.MaximumAttempts = 1; p.Options.ScheduleToCloseTimeout = 0 },
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
				require.NoError(t, run.Get(e.ctx(), nil))
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
