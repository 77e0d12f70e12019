package interceptor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// The types of the application errors by which an attempt fails when its body did not
// run, or ran in vain. They are stable: workflows may tell them apart by
// temporal.ApplicationError.Type. Retryable ones carry a NextRetryDelay and, where
// nothing is wrong, the benign category.
const (
	// TypeBusy: another call is at work. Retryable, when the lease of that one should
	// be over, or sooner if attempts are unlimited, and after those refused before. Its
	// details are a [Busy].
	TypeBusy = "fencekit.Busy"
	// TypeUnavailable: Redis cannot answer; the body has not run. Retryable.
	TypeUnavailable = "fencekit.Unavailable"
	// TypeLeaseLost: the body succeeded, and meanwhile somebody else began the
	// operation, so the result was not stored. Retryable; the retry gets theirs.
	TypeLeaseLost = "fencekit.LeaseLost"
	// TypeMemoNotStored: the body succeeded, and its result could not be stored, under
	// Policy.StrictMemo or after an [Undo]. Retryable; the retry runs the body again.
	TypeMemoNotStored = "fencekit.MemoNotStored"

	// TypeKeyError: no key can be derived safely: from the input, or because the call has
	// a key that does nothing, or lacks what identifies it. Not retryable.
	TypeKeyError = "fencekit.KeyError"
	// TypeMismatch: the key was used before, with other input. Not retryable.
	TypeMismatch = "fencekit.Mismatch"
	// TypeKeyChanged: an older attempt of this very call still holds the lease, under
	// another key: the policy has changed between two releases. Not retryable, because
	// a retry would be a second run beside or after the first.
	TypeKeyChanged = "fencekit.KeyChanged"
	// TypePoisoned: taken over from crashed workers too often. Not retryable.
	TypePoisoned = "fencekit.Poisoned"
	// TypeOutcomeUnknown: interrupted, under Policy.AtMostOnce. Not retryable until an
	// operator has resolved the record.
	TypeOutcomeUnknown = "fencekit.OutcomeUnknown"
	// TypeResultUnavailable: done, with a result above Policy.MaxMemo. Not retryable.
	TypeResultUnavailable = "fencekit.ResultUnavailable"
	// TypeMemoUndecodable: done, and what is stored cannot be given back. Not
	// retryable.
	TypeMemoUndecodable = "fencekit.MemoUndecodable"
	// TypeDenied: Redis refuses the worker's user. Not retryable.
	TypeDenied = "fencekit.Denied"
	// TypeCorrupt: what is stored under the operation's names is not ours. Not
	// retryable.
	TypeCorrupt = "fencekit.Corrupt"
)

// refused is the answer for Temporal when the body has not run. Anything but the
// guard's own refusals passes as it is: the cause of an ended context, by which
// Temporal knows a cancellation, and an error of the Seal hook.
func (c *call) refused(key primitives.Key, err error) error {
	var (
		busy     *primitives.BusyError
		failed   *primitives.FailedError
		mismatch *primitives.MismatchError
		changed  *primitives.KeyChangedError
		poisoned *primitives.PoisonedError
		unknown  *primitives.OutcomeUnknownError
		kept     *primitives.ResultUnavailableError
	)
	switch {
	case errors.As(err, &failed):
		return c.failedBefore(key, failed)
	case errors.As(err, &busy):
		return c.busy(key, busy)
	case errors.Is(err, primitives.ErrUnavailable): // why stands in the log: addresses are nothing for history
		return c.later(TypeUnavailable, fmt.Sprintf("fencekit: redis cannot answer for key %s", key),
			c.backoff(), primitives.ErrUnavailable)
	case errors.Is(err, fence.ErrLeaseLost):
		return c.later(TypeUnavailable, fmt.Sprintf("fencekit: the lease for key %s had run out before it arrived", key),
			c.backoff(), fence.ErrLeaseLost)
	case errors.As(err, &mismatch):
		return never(TypeMismatch, primitives.ErrMismatch, fmt.Errorf("%w; a part of the input may differ from call to call (see Policy.Compare), "+
			"or the input's shape may have changed between releases: a field was removed, renamed or is filled now", mismatch))
	case errors.As(err, &changed):
		return never(TypeKeyChanged, primitives.ErrKeyChanged, fmt.Errorf("%w; Policy.Key, Scope or Resource may have changed between releases", changed))
	case errors.As(err, &poisoned):
		return never(TypePoisoned, primitives.ErrPoisoned, poisoned)
	case errors.As(err, &unknown):
		return never(TypeOutcomeUnknown, primitives.ErrOutcomeUnknown, unknown)
	case errors.As(err, &kept):
		return never(TypeResultUnavailable, primitives.ErrResultUnavailable, kept)
	case errors.Is(err, primitives.ErrDenied):
		return never(TypeDenied, primitives.ErrDenied, err)
	case errors.Is(err, primitives.ErrCorrupt):
		return never(TypeCorrupt, primitives.ErrCorrupt, err)
	case errors.Is(err, primitives.ErrInvalid): // a resource name that is too long, say
		return never(TypeKeyError, primitives.ErrInvalid, err)
	}
	return err
}

// canceled reports whether Temporal's cancellation of ctx is why there is err, also in a
// call that was busy waiting.
func canceled(ctx context.Context, err error) bool {
	cause := context.Cause(ctx)
	return temporal.IsCanceledError(cause) && errors.Is(err, cause)
}

// keyRefused is the answer to a call without a safe key. The error itself stays here:
// its causes may show the input.
func (c *call) keyRefused(ctx context.Context, err error) error {
	text := fmt.Sprintf("fencekit: activity %s: %v", c.info.ActivityType.Name, err)
	refused := temporal.NewApplicationErrorWithOptions(text, TypeKeyError, temporal.ApplicationErrorOptions{NonRetryable: true})
	c.plan.observer.Observe(ctx, primitives.Event{Kind: primitives.EventRefused, Name: c.info.ActivityType.Name,
		Err: refused, Wait: time.Since(c.begun)})
	return refused
}

// notStored is the answer when the body has succeeded and its result was not kept.
func (c *call) notStored(key primitives.Key, err error) error {
	if errors.Is(err, fence.ErrLeaseLost) {
		return c.later(TypeLeaseLost, fmt.Sprintf("fencekit: the lease for key %s was lost while the body ran; its result was not stored", key),
			c.backoff(), fence.ErrLeaseLost)
	}
	var busy *primitives.BusyError
	if errors.As(err, &busy) { // what it undoes is running
		return c.busy(key, busy)
	}
	return c.later(TypeMemoNotStored, fmt.Sprintf("fencekit: the result of key %s could not be stored: %v", key, err),
		c.backoff(), primitives.ErrUnavailable)
}

func (c *call) failedBefore(key primitives.Key, failed *primitives.FailedError) error {
	if failed.Memo == nil {
		return never(TypeResultUnavailable, primitives.ErrFailed, failed)
	}
	before, err := c.codec.decodeFailure(failed.Memo)
	if err != nil {
		return c.undecodable(key, err)
	}
	return before
}

func (c *call) undecodable(key primitives.Key, err error) error {
	return never(TypeMemoUndecodable, primitives.ErrCorrupt,
		fmt.Errorf("fencekit: key %s is done, but what is stored cannot be given back: %w", key, err))
}

// waited is how long ago the activity was scheduled, by the server's clock, which also
// says when the attempt started.
func (c *call) waited() time.Duration {
	return c.info.StartedTime.Sub(c.info.ScheduledTime) + time.Since(c.begun)
}

// later is a retryable answer. Its cause is a sentinel and not the error, whose text
// may show the name of a resource to whoever reads the history.
func (c *call) later(kind, text string, delay time.Duration, sentinel error) error {
	return temporal.NewApplicationErrorWithOptions(text, kind, temporal.ApplicationErrorOptions{
		NextRetryDelay: c.clamp(delay), Cause: sentinel,
	})
}

func never(kind string, sentinel, err error) error {
	return temporal.NewApplicationErrorWithOptions(err.Error(), kind, temporal.ApplicationErrorOptions{
		NonRetryable: true, Cause: sentinel,
	})
}

// backoff grows from a second to half a minute with the attempts, and is spread.
func (c *call) backoff() time.Duration {
	d := time.Second << min(max(c.info.Attempt-1, 0), 5)
	return d/2 + rand.N(d/2)
}

// left is how long Temporal will go on to retry the activity, if that is bounded.
func (c *call) left() (left time.Duration, bounded bool) {
	if c.info.ScheduleToCloseTimeout <= 0 {
		return 0, false
	}
	left = c.info.ScheduleToCloseTimeout - c.waited()
	// A local activity that a timer of its workflow has brought back counts as scheduled
	// anew. Its deadline does not.
	if c.info.IsLocalActivity && c.info.Deadline.Sub(c.info.StartedTime) < c.info.StartToCloseTimeout {
		left = min(left, time.Until(c.info.Deadline))
	}
	return left, true
}

// clamp keeps the next attempt within ScheduleToClose: Temporal fails an activity at
// once whose next attempt would come after that. An attempt that would come too late to
// do anything comes at about half of what is left instead, so that the attempts that it
// costs grow with its logarithm only.
func (c *call) clamp(delay time.Duration) time.Duration {
	if left, bounded := c.left(); bounded && delay > left*3/4 {
		delay = left/2 - rand.N(max(left/8, 1))
	}
	return max(delay, time.Millisecond)
}
