package interceptor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

func unitCall(t *testing.T, p Policy, edit func(*activity.Info)) *call {
	t.Helper()
	info := ofWorkflow()
	if edit != nil {
		edit(&info)
	}
	k := unit(t, p)
	return newCall(context.Background(), k, k.plans["a"], info)
}

// The next attempt must come within ScheduleToClose, or Temporal fails the activity at
// once.
func TestNextRetryDelayIsClamped(t *testing.T) {
	t.Parallel()
	scheduled := time.Unix(1000, 0)
	of := func(whole, elapsed time.Duration) *call {
		return unitCall(t, Policy{}, func(i *activity.Info) {
			i.ScheduleToCloseTimeout, i.ScheduledTime, i.StartedTime = whole, scheduled, scheduled.Add(elapsed)
		})
	}
	require.Equal(t, time.Hour, of(0, 0).clamp(time.Hour), "unlimited")
	require.Equal(t, time.Second, of(time.Hour, 0).clamp(time.Second), "well within")
	got := of(time.Hour, 40*time.Minute).clamp(time.Hour)
	require.LessOrEqual(t, got, 10*time.Minute, "half of what is left")
	require.Greater(t, got, 5*time.Minute)
	require.Equal(t, time.Millisecond, of(time.Second, time.Minute).clamp(time.Hour), "nothing is left")
}

// The lease of a policy never lasts longer than its TTL: a longer one is a result that
// comes from elsewhere, at any time.
func TestBusyDelayIsTheRemainingLease(t *testing.T) {
	t.Parallel()
	c := unitCall(t, Policy{LeaseTTL: 10 * time.Second}, nil)
	delay := func(remaining time.Duration) time.Duration {
		var a *temporal.ApplicationError
		require.ErrorAs(t, c.busy(primitives.Key{}, &primitives.BusyError{Remaining: remaining}), &a)
		return a.NextRetryDelay()
	}
	for range 100 {
		require.GreaterOrEqual(t, delay(4*time.Second), 4*time.Second)
		require.Less(t, delay(4*time.Second), 4450*time.Millisecond)
		require.Less(t, delay(time.Hour), 11050*time.Millisecond)
	}
}

// With attempts to spare, a busy call waits about as long again as it has waited so far;
// with few of them, and where their number is not known, until the lease ends.
func TestBusyDelayWithUnlimitedAttempts(t *testing.T) {
	t.Parallel()
	scheduled := time.Unix(1000, 0)
	delay := func(waited time.Duration, retry *temporal.RetryPolicy) time.Duration {
		c := unitCall(t, Policy{LeaseTTL: time.Minute}, func(i *activity.Info) {
			i.ScheduledTime, i.StartedTime, i.RetryPolicy = scheduled, scheduled.Add(waited), retry
		})
		return c.untilFree(40 * time.Second)
	}
	unlimited := &temporal.RetryPolicy{}
	require.Equal(t, time.Second, delay(0, unlimited))
	require.InDelta(t, 8*time.Second, delay(8*time.Second, unlimited), float64(5*time.Second))
	require.Equal(t, 40*time.Second, delay(time.Hour, unlimited))
	require.Equal(t, 40*time.Second, delay(0, &temporal.RetryPolicy{MaximumAttempts: 3}))
	require.Equal(t, 40*time.Second, delay(0, nil))
}

// Every refusal has its type, and still matches its sentinel before it crosses the wire.
func TestRefusals(t *testing.T) {
	t.Parallel()
	c := unitCall(t, Policy{}, nil)
	key, err := primitives.NewKey("a", "x")
	require.NoError(t, err)
	for _, r := range []struct {
		err       error
		kind      string
		sentinel  error
		retryable bool
	}{
		{&primitives.BusyError{}, TypeBusy, primitives.ErrBusy, true},
		{&primitives.UnavailableError{Step: "begin", Err: context.DeadlineExceeded}, TypeUnavailable, primitives.ErrUnavailable, true},
		{&primitives.LostError{Step: "begin", Resource: "jo@example.test"}, TypeUnavailable, fence.ErrLeaseLost, true},
		{&primitives.MismatchError{Key: key}, TypeMismatch, primitives.ErrMismatch, false},
		{&primitives.PoisonedError{Key: key}, TypePoisoned, primitives.ErrPoisoned, false},
		{&primitives.OutcomeUnknownError{Key: key}, TypeOutcomeUnknown, primitives.ErrOutcomeUnknown, false},
		{&primitives.ResultUnavailableError{Key: key}, TypeResultUnavailable, primitives.ErrResultUnavailable, false},
		{&primitives.FailedError{Key: key}, TypeResultUnavailable, primitives.ErrFailed, false},
		{&primitives.FailedError{Key: key, Memo: []byte("\xff")}, TypeMemoUndecodable, primitives.ErrCorrupt, false},
		{&primitives.DeniedError{Step: "begin", Err: errors.New("NOPERM")}, TypeDenied, primitives.ErrDenied, false},
		{&primitives.CorruptError{Name: "n"}, TypeCorrupt, primitives.ErrCorrupt, false},
		{&primitives.OptionError{Field: "Resource"}, TypeKeyError, primitives.ErrInvalid, false},
	} {
		for _, given := range []error{r.err, fmt.Errorf("outer: %w", r.err)} {
			got := c.refused(key, given)
			a, ok := got.(*temporal.ApplicationError) //nolint:errorlint // it must stand at the top
			require.True(t, ok, "%T", got)
			require.Equal(t, r.kind, a.Type())
			require.Equal(t, !r.retryable, a.NonRetryable(), r.kind)
			require.Equal(t, r.retryable, a.NextRetryDelay() > 0, r.kind)
			require.ErrorIs(t, got, r.sentinel)
			require.NotContains(t, a.Message(), "jo@example.test")
		}
	}
	other := errors.New("of the Seal hook")
	require.Equal(t, other, c.refused(key, other))
}

func TestBackoffGrows(t *testing.T) {
	t.Parallel()
	for attempt, most := range map[int32]time.Duration{1: time.Second, 3: 4 * time.Second, 6: 32 * time.Second, 1000: 32 * time.Second} {
		c := unitCall(t, Policy{}, func(i *activity.Info) { i.Attempt = attempt })
		for range 50 {
			d := c.backoff()
			require.GreaterOrEqual(t, d, most/2)
			require.Less(t, d, most)
		}
	}
}
