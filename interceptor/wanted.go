package interceptor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/primitives"
)

// ErrGivenUp is the error of the event of an attempt that Temporal had given up before
// it began: one that lay in the socket of a frozen worker, say. Its body does not run,
// and Redis is not touched: the attempt would get a higher token than its successor. The
// activity returns activity.ErrResultPending, by which the SDK reports nothing: a failure
// could hit the newer attempt, which has the same number after a reset.
var ErrGivenUp = errors.New("fencekit: temporal has given up this attempt")

const (
	// lateAfter is how late an attempt may come without a question. Dispatch takes
	// milliseconds.
	lateAfter = 10 * time.Second
	// askWithin is how long Temporal may take to answer, where the attempt has that long.
	askWithin = 5 * time.Second
	// silence is for how long nobody is asked again after a question without an answer.
	silence = 30 * time.Second
)

// givenUp is how an attempt ends that may not begin, and nil for all others. The local
// clock can do no more than raise the question: the answer is Temporal's. An attempt that
// nobody can be asked about begins.
func (c *call) givenUp(ctx context.Context) error {
	if c.info.IsLocalActivity || !c.late() || c.kit.unanswered.within(silence) { // Temporal knows no attempts of local activities
		return nil
	}
	wanted, err := c.wanted(ctx, activity.GetClient(ctx))
	switch {
	case errors.Is(err, errMock): // there is no Temporal
	case err != nil:
		c.kit.unanswered.now()
		safely(func() {
			activity.GetLogger(ctx).Warn("fencekit: temporal could not say whether it still wants this late attempt, which begins", "Error", err)
		})
	case !wanted:
		c.plan.observer.Observe(ctx, primitives.Event{Kind: primitives.EventRefused, Name: c.info.ActivityType.Name,
			Err: ErrGivenUp, Wait: time.Since(c.begun)})
		return activity.ErrResultPending
	}
	return nil
}

// late reports whether the attempt is so old when it arrives that it may have been given
// up: half of the time that Temporal gives it, so that a local clock that is behind by
// the other half hides nothing, and at most lateAfter, because a workflow may close at
// any time.
func (c *call) late() bool {
	given := 2 * lateAfter
	for _, timeout := range []time.Duration{c.info.StartToCloseTimeout, c.info.HeartbeatTimeout} {
		if timeout > 0 {
			given = min(given, timeout)
		}
	}
	if whole := c.info.ScheduleToCloseTimeout; whole > 0 {
		given = min(given, whole-c.info.StartedTime.Sub(c.info.ScheduledTime))
	}
	return c.begun.Sub(c.info.StartedTime) > given/2
}

// wanted asks Temporal, by a client, whether the attempt is the one that it waits for.
func (c *call) wanted(ctx context.Context, by client.Client) (yes bool, err error) {
	defer func() {
		if p := recover(); p != nil { // test environments have no client that works
			err = fmt.Errorf("the client panicked: %v", p)
		}
	}()
	if mocked(by) {
		return false, errMock
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.askWithin())
	defer cancel()
	open, attempt, started, err := c.current(ctx, by)
	var none *serviceerror.NotFound
	if errors.As(err, &none) { // it was deleted
		return false, nil
	}
	// A reset sets the number back to 1, so two attempts may share it. A paused or
	// canceled attempt is still one, as long as it is the one that was started.
	return open && attempt == c.info.Attempt && sameTime(started, c.info.StartedTime), err
}

// askWithin leaves the body most of the time that it has if it is wanted.
func (c *call) askWithin() time.Duration {
	within := askWithin
	for _, timeout := range []time.Duration{c.info.StartToCloseTimeout, c.info.HeartbeatTimeout} {
		if timeout > 0 {
			within = min(within, max(timeout/4, time.Second/2))
		}
	}
	return within
}

// current is the newest attempt of the activity; one that waits to be started has no
// time. What a closed workflow has left behind still looks started.
func (c *call) current(ctx context.Context, from client.Client) (open bool, attempt int32, started time.Time, err error) {
	if c.info.WorkflowExecution.ID == "" {
		h := from.GetActivityHandle(client.GetActivityHandleOptions{ActivityID: c.info.ActivityID, RunID: c.info.ActivityRunID})
		d, err := h.Describe(ctx, client.DescribeActivityOptions{})
		if err != nil {
			return false, 0, time.Time{}, err
		}
		return d.Status == enums.ACTIVITY_EXECUTION_STATUS_RUNNING, d.Attempt, d.LastStartedTime, nil
	}
	d, err := from.DescribeWorkflowExecution(ctx, c.info.WorkflowExecution.ID, c.info.WorkflowExecution.RunID) //nolint:staticcheck // the other one shows no activities in SDK 1.50
	if err != nil {
		return false, 0, time.Time{}, err
	}
	if d.GetWorkflowExecutionInfo() == nil {
		return false, 0, time.Time{}, errors.New("the answer says nothing of the workflow")
	}
	open = !closed(d.GetWorkflowExecutionInfo().GetStatus())
	for _, a := range d.GetPendingActivities() {
		if a.GetActivityId() == c.info.ActivityID {
			return open, a.GetAttempt(), a.GetLastStartedTime().AsTime(), nil
		}
	}
	return false, 0, time.Time{}, nil
}

// closed reports whether nothing of a workflow goes on. One that is paused may.
func closed(s enums.WorkflowExecutionStatus) bool {
	switch s {
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, enums.WORKFLOW_EXECUTION_STATUS_FAILED, enums.WORKFLOW_EXECUTION_STATUS_CANCELED,
		enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW, enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return true
	}
	return false
}

// moment is when something happened last.
type moment struct{ at atomic.Pointer[time.Time] }

func (m *moment) now() {
	t := time.Now()
	m.at.Store(&t)
}

func (m *moment) within(d time.Duration) bool {
	t := m.at.Load()
	return t != nil && time.Since(*t) < d
}

// sameTime compares two times that a server may have stored more or less exactly.
func sameTime(a, b time.Time) bool { return a.Sub(b).Abs() < time.Millisecond }

var errMock = errors.New("the client is that of a test environment")

// mocked reports whether by is the client of the SDK's test environments, whose mock
// ends the process at a call that it does not expect.
func mocked(by client.Client) bool {
	t := reflect.TypeOf(by.WorkflowService())
	if t == nil {
		return false
	}
	_, mock := t.MethodByName("EXPECT")
	return mock
}
