package interceptor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
)

// poller takes tasks from the server as a worker does, and leaves them as they are: an
// attempt is what the test makes of it.
type poller struct {
	e   *env
	run client.WorkflowRun
}

type task = workflowservice.PollActivityTaskQueueResponse

func newPoller(e *env, edit func(*plan)) *poller {
	e.worker(func(worker.Registry) {}, func(o *worker.Options) { o.LocalActivityWorkerOnly = true })
	p := staged("sign", "x", 5*time.Second)
	if edit != nil {
		edit(&p)
	}
	return &poller{e, e.start(p)}
}

// poll waits for the next attempt that the server starts.
func (p *poller) poll() *task {
	p.e.Helper()
	var got *task
	eventually(p.e, "an attempt", func() bool {
		ctx, cancel := context.WithTimeout(p.e.Context(), 20*time.Second)
		defer cancel()
		t, err := p.e.client.WorkflowService().PollActivityTaskQueue(ctx, &workflowservice.PollActivityTaskQueueRequest{
			Namespace: "default", TaskQueue: &taskqueuepb.TaskQueue{Name: p.e.queue}, Identity: "test"})
		if err == nil && len(t.GetTaskToken()) > 0 {
			got = t
		}
		return got != nil
	})
	return got
}

// standing is what the server says of a task: by a question that changes nothing, and by
// taking a heartbeat for it.
type standing struct {
	Open        bool // the workflow
	State       enums.PendingActivityState
	SameAttempt bool
	SameStart   bool // to the nanosecond
	Beats       bool
}

func (p *poller) standing(of *task) (s standing) {
	p.e.Helper()
	d, err := p.e.client.DescribeWorkflow(p.e.ctx(), p.run.GetID(), p.run.GetRunID())
	require.NoError(p.e, err)
	s.Open = d.RawResponse.GetWorkflowExecutionInfo().GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING
	for _, a := range d.RawResponse.GetPendingActivities() {
		require.Equal(p.e, of.GetActivityId(), a.GetActivityId())
		s.State = a.GetState()
		s.SameAttempt = a.GetAttempt() == of.GetAttempt()
		s.SameStart = a.GetLastStartedTime().AsTime().Equal(of.GetStartedTime().AsTime())
	}
	_, err = p.e.client.WorkflowService().RecordActivityTaskHeartbeat(p.e.ctx(),
		&workflowservice.RecordActivityTaskHeartbeatRequest{Namespace: "default", TaskToken: of.GetTaskToken()})
	var none *serviceerror.NotFound
	if s.Beats = err == nil; !s.Beats {
		require.ErrorAs(p.e, err, &none)
	}
	return s
}

// backsOff waits until the server has given a task up and not started the next one.
func (p *poller) backsOff(of *task) {
	p.e.Helper()
	p.e.pending(p.run, func(attempt int32, started time.Time) bool { return attempt > of.GetAttempt() && started.Unix() == 0 })
}

// reports fails a task.
func (p *poller) reports(of *task) error {
	_, err := p.e.client.WorkflowService().RespondActivityTaskFailed(p.e.ctx(), &workflowservice.RespondActivityTaskFailedRequest{
		Namespace: "default", TaskToken: of.GetTaskToken(),
		Failure: temporal.GetDefaultFailureConverter().ErrorToFailure(errors.New("from the dead"))})
	return err
}

// The server's side of N16. The guard asks by a question, because a heartbeat wipes the
// details of the last one and takes an attempt from before a reset for the one after it.
func TestWhatTheServerSaysOfAnAttempt(t *testing.T) {
	t.Parallel()
	const (
		none      = enums.PENDING_ACTIVITY_STATE_UNSPECIFIED
		scheduled = enums.PENDING_ACTIVITY_STATE_SCHEDULED
		started   = enums.PENDING_ACTIVITY_STATE_STARTED
	)
	current := standing{Open: true, State: started, SameAttempt: true, SameStart: true, Beats: true}
	asleep := func(p *plan) { p.Options.RetryPolicy.InitialInterval = 30 * time.Minute }
	endless := func(p *plan) { p.Options.StartToCloseTimeout = forever }
	for name, run := range map[string]struct {
		edit func(*plan)
		do   func(*testing.T, *poller, *task)
	}{
		"the successor": {nil, func(t *testing.T, p *poller, a *task) {
			require.Equal(t, current, p.standing(a))
			b := p.poll()
			require.Equal(t, standing{Open: true, State: started}, p.standing(a))
			require.Equal(t, current, p.standing(b))
		}},
		"waiting for its retry": {asleep, func(t *testing.T, p *poller, a *task) {
			p.backsOff(a)
			require.Equal(t, standing{Open: true, State: scheduled}, p.standing(a))
		}},
		"the last attempt": {func(p *plan) { p.Options.RetryPolicy.MaximumAttempts = 1 }, func(t *testing.T, p *poller, a *task) {
			require.Equal(t, current, p.standing(a))
			require.Error(t, p.run.Get(p.e.ctx(), nil))
			require.Equal(t, standing{State: none}, p.standing(a))
		}},
		"canceled, then terminated": {func(p *plan) { endless(p); p.Options.WaitForCancellation = true }, func(t *testing.T, p *poller, a *task) {
			p.e.cancel(p.run)
			asked := current
			asked.State = enums.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
			eventually(t, "the request", func() bool { return p.standing(a) == asked })
			p.e.terminate(p.run)
			asked.Open, asked.Beats = false, false // all else stays as it was
			require.Equal(t, asked, p.standing(a))
		}},
		"reset while it runs": {endless, func(t *testing.T, p *poller, a *task) {
			p.e.resetNow(p.run, entered(a))
			require.Equal(t, current, p.standing(a))
			require.NoError(t, p.reports(a))
			b := p.poll()
			require.EqualValues(t, 2, b.GetAttempt())
			p.e.resetNow(p.run, entered(b))
			require.Equal(t, standing{Open: true, State: started, SameStart: true}, p.standing(b))
			require.Error(t, p.reports(b), "whose result is not taken either")
		}},
		"reset while it waits": {asleep, func(t *testing.T, p *poller, a *task) {
			p.backsOff(a)
			p.e.resetNow(p.run, entered(a))
			b := p.poll()
			require.Equal(t, current, p.standing(b))
			require.Equal(t, standing{Open: true, State: started, SameAttempt: true, Beats: true}, p.standing(a), "the dead one beats")
			require.NoError(t, p.reports(a), "and fails its successor")
			require.Equal(t, standing{Open: true, State: scheduled}, p.standing(b))
		}},
		"paused while it runs": {endless, func(t *testing.T, p *poller, a *task) {
			p.e.pause(p.run, entered(a))
			asked := current
			asked.State = enums.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED
			require.Equal(t, asked, p.standing(a))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPoller(newEnv(t, interceptor.For("sign", interceptor.Policy{})), run.edit)
			run.do(t, p, p.poll())
		})
	}
}

// entered is a task as the helpers of running attempts know it.
func entered(of *task) *entrance {
	return &entrance{info: activity.Info{ActivityID: of.GetActivityId(), Attempt: of.GetAttempt()}}
}
