package interceptor

import (
	"context"
	"fmt"
	"strings"

	"go.temporal.io/sdk/activity"
)

// advise warns, at the first call of an activity, of what only a call shows: how the
// policy stands to the activity's timeouts and retries.
func (c *call) advise(ctx context.Context) {
	if advice := c.advice(); len(advice) > 0 {
		safely(func() {
			activity.GetLogger(ctx).Warn("fencekit: the policy of this activity does not fit its options",
				"Advice", strings.Join(advice, "; "))
		})
	}
}

func (c *call) advice() (advice []string) {
	say := func(format string, args ...any) { advice = append(advice, fmt.Sprintf(format, args...)) }
	p, whole := c.plan, c.info.ScheduleToCloseTimeout
	switch {
	case whole <= 0:
		say("ScheduleToClose is unlimited and Retention is %s: an attempt that comes later runs the body again", p.keepFor)
	case p.keepFor < whole:
		say("Retention of %s ends before ScheduleToClose of %s: an attempt that comes later runs the body again", p.keepFor, whole)
	}
	if whole > 0 && p.leaseTTL > whole {
		say("LeaseTTL of %s outlasts ScheduleToClose of %s: after a crash, other calls fail before the lease is over", p.leaseTTL, whole)
	}
	if r := c.info.RetryPolicy; r != nil && r.MaximumAttempts == 1 && p.Wait == 0 {
		say("MaximumAttempts is 1 and Wait is 0: a call that finds the operation busy fails for good")
	}
	return advice
}
