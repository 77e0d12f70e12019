package interceptor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/primitives"
)

// busyCall is a call of a policy with a resource.
func busyCall(t *testing.T, retry *temporal.RetryPolicy, edit func(*activity.Info)) *call {
	t.Helper()
	p := Policy{LeaseTTL: 32 * time.Second, Resource: ResourceFromArgs(func([]any) string { return "r" })}
	return unitCall(t, p, func(i *activity.Info) {
		i.RetryPolicy, i.ScheduledTime, i.StartedTime = retry, time.Unix(1000, 0), time.Unix(1000, 0)
		if edit != nil {
			edit(i)
		}
	})
}

// N33: while nothing is known of the bodies, the last attempt is safe and those before it
// are cheap; once they are known, they count.
func TestTheTermThatACallAsksFor(t *testing.T) {
	t.Parallel()
	few := &temporal.RetryPolicy{MaximumAttempts: 4}
	for attempt, want := range map[int32]time.Duration{1: 8 * time.Second, 2: 16 * time.Second, 3: 32 * time.Second} {
		c := busyCall(t, few, func(i *activity.Info) { i.Attempt = attempt })
		require.Equal(t, want, c.itsTurn().Term, "attempt %d of 4", attempt)
		require.Zero(t, c.itsTurn().Probe)
	}
	require.Equal(t, margin, busyCall(t, &temporal.RetryPolicy{MaximumAttempts: 1000}, nil).itsTurn().Term)
	require.Equal(t, 32*time.Second, busyCall(t, nil, nil).itsTurn().Term, "nobody knows how many")

	freely := busyCall(t, &temporal.RetryPolicy{}, func(i *activity.Info) { i.StartedTime = i.ScheduledTime.Add(160 * time.Second) })
	require.InDelta(t, 10*time.Second, freely.itsTurn().Term, float64(time.Second))
	require.InDelta(t, 160*time.Second, freely.itsTurn().Probe, float64(5*time.Second))

	c := busyCall(t, few, nil)
	for range 20 {
		c.plan.terms.saw(200 * time.Millisecond)
	}
	require.InDelta(t, 250*time.Millisecond, c.itsTurn().Term, float64(10*time.Millisecond))
	c.plan.terms.saw(time.Second)
	require.Greater(t, c.itsTurn().Term, 500*time.Millisecond, "they differ")
}

// Nobody asks for a turn who cannot come back, or has nobody to wait for but calls of the
// same operation.
func TestCallsWithoutATurn(t *testing.T) {
	t.Parallel()
	few := &temporal.RetryPolicy{MaximumAttempts: 2}
	require.NotZero(t, busyCall(t, few, nil).itsTurn())
	require.Zero(t, busyCall(t, few, func(i *activity.Info) { i.Attempt = 2 }).itsTurn())
	require.Zero(t, unitCall(t, Policy{Scope: ScopeNamespace}, nil).itsTurn())
}

// A turn is kept to; a crowd that is too large for one is spread over all the time that
// there is, and never told to come back when it is too late.
func TestABusyCallComesBackInItsTurn(t *testing.T) {
	t.Parallel()
	delay := func(c *call, b primitives.BusyError) time.Duration {
		t.Helper()
		var a *temporal.ApplicationError
		c.turn = c.itsTurn()
		require.ErrorAs(t, c.busy(primitives.Key{}, &b), &a)
		return a.NextRetryDelay()
	}
	few := &temporal.RetryPolicy{MaximumAttempts: 3}
	for range 100 {
		got := delay(busyCall(t, few, nil), primitives.BusyError{Remaining: time.Second, Turn: 90 * time.Second})
		require.InDelta(t, 90*time.Second, got, float64(10*time.Millisecond))

		bounded := func(i *activity.Info) { i.ScheduleToCloseTimeout = time.Minute }
		c := busyCall(t, few, bounded)
		require.InDelta(t, 45*time.Second, c.itsTurn().Within, float64(time.Second))
		got = delay(c, primitives.BusyError{Remaining: 5 * time.Second, Turn: c.itsTurn().Within})
		require.GreaterOrEqual(t, got, 5*time.Second, "not before the lease ends")
		require.LessOrEqual(t, got, 45*time.Second)

		late := func(i *activity.Info) { i.ScheduleToCloseTimeout = 10 * time.Second }
		got = delay(busyCall(t, few, late), primitives.BusyError{Remaining: 30 * time.Second, Turn: 7500 * time.Millisecond})
		require.Greater(t, got, 3*time.Second, "about half of what is left")
		require.LessOrEqual(t, got, 5*time.Second)

		c = busyCall(t, few, nil)
		c.plan.terms.saw(2 * time.Second)
		got = delay(c, primitives.BusyError{Remaining: time.Second, Ahead: 5})
		require.GreaterOrEqual(t, got, 11*time.Second, "after those who were before it in line")

		c.plan.terms.saw(time.Hour)
		got = delay(c, primitives.BusyError{Remaining: time.Second, Ahead: 299})
		require.LessOrEqual(t, got, latest+time.Second, "however many there are")
		freely := busyCall(t, &temporal.RetryPolicy{}, nil)
		freely.plan.terms.saw(time.Hour)
		got = delay(freely, primitives.BusyError{Remaining: time.Second, Ahead: 299})
		require.LessOrEqual(t, got, latestOfFreely+time.Second, "and where asking costs nothing, soon")
		got = delay(freely, primitives.BusyError{Remaining: time.Second, Turn: freely.itsTurn().Within})
		require.LessOrEqual(t, got, latestOfFreely+time.Second)
	}
}

// What a local activity may still take shows in its deadline: each timer of its workflow
// has it count as scheduled anew.
func TestTheTimeThatALocalActivityHasLeft(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := unitCall(t, Policy{}, func(i *activity.Info) {
		i.IsLocalActivity, i.Attempt, i.ScheduledTime, i.StartedTime = true, 3, now, now
		i.ScheduleToCloseTimeout, i.StartToCloseTimeout, i.Deadline = time.Hour, time.Minute, now.Add(10*time.Second)
	})
	left, bounded := c.left()
	require.True(t, bounded)
	require.InDelta(t, 10*time.Second, left, float64(5*time.Second))
}
