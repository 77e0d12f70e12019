package interceptor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// N16: what the client says decides, for activities of workflows and for those that no
// workflow has started, which the dev server does not know.
func TestWhetherAnAttemptIsWantedIsTheClientsWord(t *testing.T) {
	t.Parallel()
	started := time.Unix(1000, 123456789)
	type answer struct {
		attempt int32
		started time.Time
		open    bool
		err     error
	}
	for name, c := range map[string]struct {
		answer answer
		wanted bool
		fails  bool // to say
	}{
		"the same":             {answer: answer{3, started, true, nil}, wanted: true},
		"stored less exactly":  {answer: answer{3, started.Truncate(time.Millisecond), true, nil}, wanted: true},
		"a newer one":          {answer: answer{4, started.Add(time.Second), true, nil}},
		"one after a reset":    {answer: answer{3, started.Add(time.Second), true, nil}},
		"reset while it runs":  {answer: answer{1, started, true, nil}},
		"one that has no time": {answer: answer{3, time.Unix(0, 0), true, nil}},
		"closed":               {answer: answer{3, started, false, nil}},
		"deleted":              {answer: answer{err: serviceerror.NewNotFound("gone")}},
		"another namespace":    {answer: answer{err: serviceerror.NewNamespaceNotFound("x")}, fails: true},
		"an old server":        {answer: answer{err: serviceerror.NewUnimplemented("x")}, fails: true},
		"no answer in time":    {answer: answer{err: context.DeadlineExceeded}, fails: true},
	} {
		workflow := described{workflow: &workflowservice.DescribeWorkflowExecutionResponse{
			WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: enums.WORKFLOW_EXECUTION_STATUS_TERMINATED},
			PendingActivities: []*workflowpb.PendingActivityInfo{
				{ActivityId: "another", Attempt: 3, LastStartedTime: timestamppb.New(started)},
				{ActivityId: ofWorkflow().ActivityID, Attempt: c.answer.attempt, LastStartedTime: timestamppb.New(c.answer.started)},
			}}, err: c.answer.err}
		standalone := described{activity: &client.ActivityExecutionDescription{Attempt: c.answer.attempt, LastStartedTime: c.answer.started}, err: c.answer.err}
		standalone.activity.Status = enums.ACTIVITY_EXECUTION_STATUS_COMPLETED
		if c.answer.open {
			workflow.workflow.WorkflowExecutionInfo.Status = enums.WORKFLOW_EXECUTION_STATUS_RUNNING
			standalone.activity.Status = enums.ACTIVITY_EXECUTION_STATUS_RUNNING
		}
		for kind, from := range map[string]described{"workflow": workflow, "standalone": standalone} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				of := unitCall(t, Policy{}, func(i *activity.Info) {
					i.Attempt, i.StartedTime = 3, started
					if kind == "standalone" {
						i.WorkflowExecution, i.ActivityRunID = activity.Info{}.WorkflowExecution, "run"
					}
				})
				over, cancel := context.WithCancel(t.Context())
				cancel() // its own deadline may be over: the question has one of its own
				wanted, err := of.wanted(over, from)
				require.Equal(t, c.fails, err != nil, "%v", err)
				require.Equal(t, c.wanted, wanted)
			})
		}
	}
}

// N16: an activity that the workflow has called again under the same id, or no more.
func TestAnAttemptOfWhichNothingIsPendingIsNotWanted(t *testing.T) {
	t.Parallel()
	none := described{workflow: &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING}}}
	wanted, err := unitCall(t, Policy{}, nil).wanted(t.Context(), none)
	require.NoError(t, err)
	require.False(t, wanted)
}

// N16: a client that cannot be asked is no reason to refuse, and breaks nothing.
func TestAClientThatCannotBeAskedIsAnError(t *testing.T) {
	t.Parallel()
	for _, from := range []client.Client{nil, described{}} {
		_, err := unitCall(t, Policy{}, nil).wanted(t.Context(), from)
		require.Error(t, err)
	}
}

// N16: when the guard asks.
func TestWhichAttemptsAreLate(t *testing.T) {
	t.Parallel()
	const never = 1000 * time.Hour
	for name, c := range map[string]struct {
		toClose, heartbeat, whole, waited time.Duration
		from                              time.Duration // the age from which it is late
	}{
		"start to close":                    {toClose: 8 * time.Second, from: 4 * time.Second},
		"heartbeat":                         {toClose: time.Hour, heartbeat: 6 * time.Second, from: 3 * time.Second},
		"what is left of schedule to close": {toClose: time.Hour, whole: time.Minute, waited: 58 * time.Second, from: time.Second},
		"schedule to close is over":         {toClose: time.Hour, whole: time.Minute, waited: time.Minute, from: 0},
		"only schedule to close":            {whole: 10 * time.Second, from: 5 * time.Second},
		"long timeouts":                     {toClose: never, heartbeat: never, whole: never, from: lateAfter},
		"none":                              {from: lateAfter},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := unitCall(t, Policy{}, func(i *activity.Info) {
				i.StartToCloseTimeout, i.HeartbeatTimeout, i.ScheduleToCloseTimeout = c.toClose, c.heartbeat, c.whole
				i.ScheduledTime = i.StartedTime.Add(-c.waited)
			})
			of.begun = of.info.StartedTime.Add(c.from)
			require.False(t, of.late())
			of.begun = of.begun.Add(time.Millisecond)
			require.True(t, of.late())
			of.begun = of.info.StartedTime.Add(-never)
			require.False(t, of.late(), "a clock that is behind")
		})
	}
}

// described is a client that has one answer.
type described struct {
	client.Client

	workflow *workflowservice.DescribeWorkflowExecutionResponse
	activity *client.ActivityExecutionDescription
	err      error
}

func (described) WorkflowService() workflowservice.WorkflowServiceClient { return nil }

func (d described) DescribeWorkflowExecution(ctx context.Context, _, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return d.workflow, d.err
}

func (d described) GetActivityHandle(client.GetActivityHandleOptions) client.ActivityHandle {
	return describedActivity{described: d}
}

type describedActivity struct {
	client.ActivityHandle

	described described
}

func (d describedActivity) Describe(ctx context.Context, _ client.DescribeActivityOptions) (*client.ActivityExecutionDescription, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return d.described.activity, d.described.err
}

// N16: the question leaves the body most of its time, and is not asked again at once where
// nobody answers.
func TestTheQuestionLeavesTheBodyItsTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ toClose, heartbeat, want time.Duration }{
		{time.Minute, 0, askWithin}, {8 * time.Second, 0, 2 * time.Second}, {time.Minute, 4 * time.Second, time.Second},
		{time.Second, 0, time.Second / 2}, {1, 1, time.Second / 2}, {0, 0, askWithin},
	} {
		call := unitCall(t, Policy{}, func(i *activity.Info) { i.StartToCloseTimeout, i.HeartbeatTimeout = c.toClose, c.heartbeat })
		require.Equal(t, c.want, call.askWithin())
	}
	var m moment
	require.False(t, m.within(time.Hour), "never")
	m.now()
	require.True(t, m.within(time.Hour))
	require.False(t, m.within(0))
}
