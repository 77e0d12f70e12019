package interceptor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
)

// advise warns, at the first call of an activity, regular or local, of what only a call
// shows: how the policy stands to the activity's timeouts and retries.
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
	if !c.info.IsLocalActivity { // that is retried within its workflow task, by timeouts of seconds
		c.adviseTimes(say)
		if c.plan.Key.set && c.plan.Scope == ScopeExecution {
			say("Key does nothing under ScopeExecution, where each call is an operation of its own: set Scope to say who shares the operation")
		}
	}
	c.adviseAttempts(say)
	return advice
}

func (c *call) adviseTimes(say func(format string, args ...any)) {
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
}

// adviseAttempts says how many callers the attempts suffice for, where a call can find
// another one at work. A body that does not outlast a LeaseTTL makes nobody busy twice, and
// a longer one again after each renewal, which comes after a third of it by default.
func (c *call) adviseAttempts(say func(format string, args ...any)) {
	p, retry := c.plan, c.info.RetryPolicy
	contended := p.Resource.set || p.Scope != ScopeExecution
	if !contended || p.Wait > 0 || retry == nil || retry.MaximumAttempts == 0 {
		return
	}
	const mend = "leave MaximumAttempts unlimited and bound ScheduleToClose, allow more, raise LeaseTTL, or set Wait"
	switch n := int(retry.MaximumAttempts); {
	case n == 1:
		say("MaximumAttempts is 1 and Wait is 0: a call that finds the operation or its resource busy fails for good: %s", mend)
	case p.Resource.set:
		say("MaximumAttempts is %d and Wait is 0, which suffices for %d callers of one resource at once if no body outlasts LeaseTTL of %s, "+
			"and for fewer if one does; others can fail as busy: %s", n, n, p.leaseTTL, mend)
	default:
		say("MaximumAttempts is %d and Wait is 0, which suffices for any number of callers of one key if its body ends within %s; "+
			"beyond that they can fail as busy: %s", n, p.leaseTTL+time.Duration(n-2)*(p.leaseTTL-p.renewEvery), mend)
	}
}
