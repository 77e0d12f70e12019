package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	activitypb "go.temporal.io/api/activity/v1"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// These tests are of Temporal alone, without the kit: what a call's identity relies on.
// One that fails says that a release of the server or of the SDK has changed it.

// bare starts a worker without the kit.
func (e *env) bare(register func(worker.Registry), edits ...func(*worker.Options)) {
	e.Helper()
	o := worker.Options{}
	for _, edit := range edits {
		edit(&o)
	}
	e.insist(func() error {
		w := worker.New(e.client, e.queue, o)
		w.RegisterWorkflowWithOptions(runOne, workflow.RegisterOptions{Name: "run-one"})
		register(w)
		err := w.Start()
		if err == nil {
			e.Cleanup(w.Stop)
		}
		return err
	})
}

// later is a failure whose retry only an operator can bring on.
func later() error {
	return temporal.NewApplicationErrorWithOptions("later", "Later", temporal.ApplicationErrorOptions{NextRetryDelay: 30 * time.Minute})
}

// A regular activity's scheduled time is the same for all its attempts, whatever an
// operator does to it.
func TestFactScheduledTimeIsTheSameForAllAttempts(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s, service := newStage(e, "work"), e.client.WorkflowService()
	e.bare(s.register)
	run := e.start(staged("work", "x", forever))
	first := s.next()
	require.False(t, first.info.ScheduledTime.IsZero())
	require.NotZero(t, first.info.ScheduledTime.Unix())
	last := first
	next := func(err error, what string, operate func(id string) error) {
		t.Helper()
		last.fail(err)
		if operate != nil {
			eventually(t, "the activity to wait for its retry", func() bool {
				d, err := e.client.DescribeWorkflow(e.Context(), run.GetID(), run.GetRunID())
				p := d.RawResponse.GetPendingActivities()
				return err == nil && len(p) == 1 && p[0].GetAttempt() == last.info.Attempt+1
			})
			e.insist(func() error { return operate(last.info.ActivityID) })
		}
		last = s.next()
		require.Equal(t, first.info.ScheduledTime.UnixNano(), last.info.ScheduledTime.UnixNano(), what)
		require.Equal(t, first.info.ActivityID, last.info.ActivityID, what)
	}
	pause := func(id string) error {
		_, err := service.PauseActivity(e.ctx(), &workflowservice.PauseActivityRequest{Namespace: "default",
			Execution: execution(run), Activity: &workflowservice.PauseActivityRequest_Id{Id: id}})
		return err
	}
	unpause := func(id string, reset bool) error {
		_, err := service.UnpauseActivity(e.ctx(), &workflowservice.UnpauseActivityRequest{Namespace: "default",
			Execution: execution(run), Activity: &workflowservice.UnpauseActivityRequest_Id{Id: id}, ResetAttempts: reset})
		return err
	}
	next(errors.New("again"), "a retry", nil)
	next(later(), "a reset", func(id string) error {
		_, err := service.ResetActivity(e.ctx(), &workflowservice.ResetActivityRequest{Namespace: "default",
			Execution: execution(run), Activity: &workflowservice.ResetActivityRequest_Id{Id: id}})
		return err
	})
	require.EqualValues(t, 1, last.info.Attempt, "or it was no reset")
	next(later(), "a pause", func(id string) error { return errors.Join(pause(id), unpause(id, false)) })
	next(later(), "a pause, with other attempts", func(id string) error { return errors.Join(pause(id), unpause(id, true)) })
	require.EqualValues(t, 1, last.info.Attempt, "or it was no reset")
	next(later(), "other options", func(id string) error {
		updated, err := service.UpdateActivityOptions(e.ctx(), &workflowservice.UpdateActivityOptionsRequest{Namespace: "default",
			Execution: execution(run), Activity: &workflowservice.UpdateActivityOptionsRequest_Id{Id: id},
			ActivityOptions: &activitypb.ActivityOptions{RetryPolicy: &commonpb.RetryPolicy{InitialInterval: durationpb.New(soon)},
				ScheduleToCloseTimeout: durationpb.New(2 * time.Hour)},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"schedule_to_close_timeout", "retry_policy.initial_interval"}}})
		require.NoError(t, err)
		require.Equal(t, 2*time.Hour, updated.GetActivityOptions().GetScheduleToCloseTimeout().AsDuration())
		return errors.Join(pause(id), unpause(id, true))
	})
	last.give("done")
	require.NoError(t, run.Get(e.ctx(), nil))
}

// The same activity id again is another scheduled time, eagerly dispatched or not; and an
// eager first attempt has that of its retries.
func TestFactScheduledTimeTellsCallsApart(t *testing.T) {
	t.Parallel()
	for _, eager := range []bool{true, false} {
		t.Run(fmt.Sprint("eager ", eager), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			var mu sync.Mutex
			var seen []activity.Info
			e.bare(and(named("work", func(ctx context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, activity.GetInfo(ctx))
				if len(seen)%2 == 1 {
					return errors.New("once more")
				}
				return nil
			})), func(o *worker.Options) { o.DisableEagerActivities = !eager })
			p := call("work").attempts(2).as("one-id")
			e.steps(p, p)
			require.Len(t, seen, 4)
			require.Equal(t, seen[0].ActivityID, seen[2].ActivityID)
			require.Equal(t, seen[0].ScheduledTime, seen[1].ScheduledTime)
			require.Equal(t, seen[2].ScheduledTime, seen[3].ScheduledTime)
			require.NotEqual(t, seen[0].ScheduledTime, seen[2].ScheduledTime)
		})
	}
}

// The activities of a session, and those that the SDK makes it of, have scheduled times
// like all others.
func TestFactScheduledTimeInASession(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var mu sync.Mutex
	seen := map[string][]activity.Info{}
	probe := &around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
		mu.Lock()
		info := activity.GetInfo(ctx)
		seen[info.ActivityType.Name] = append(seen[info.ActivityType.Name], info)
		n := len(seen["work"])
		mu.Unlock()
		if n == 1 {
			return nil, errors.New("once more")
		}
		return next(ctx, in)
	}}
	e.bare(func(w worker.Registry) {
		named("work", func(context.Context, string) (string, error) { return "done", nil })(w)
		w.RegisterWorkflowWithOptions(inSession, workflow.RegisterOptions{Name: "in-session"})
	}, before(probe), func(o *worker.Options) { o.EnableSessionWorker = true })
	run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), "in-session", staged("work", "x", forever))
	require.NoError(t, err)
	require.NoError(t, run.Get(e.ctx(), nil))
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, seen["work"], 2)
	require.Equal(t, seen["work"][0].ScheduledTime, seen["work"][1].ScheduledTime)
	require.NotEqual(t, e.queue, seen["work"][0].TaskQueue, "or it was no session's")
	require.Contains(t, slices.Collect(maps.Keys(seen)), "internalSessionCreationActivity")
	for name, all := range seen {
		require.Positive(t, all[0].ScheduledTime.Unix(), name)
	}
}

// A workflow's reset makes a run with an id of its own. What was completed before the
// point of the reset is not run again; an activity that was pending there is, under the same
// activity id and scheduled time: only the run id tells the two apart, and nothing stops the
// body of the old run.
func TestFactWorkflowReset(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	first, second := newStage(e, "first"), newStage(e, "second")
	e.bare(and(first.register, second.register, func(w worker.Registry) {
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context, p, q plan) (any, error) {
			if _, err := runOne(ctx, p); err != nil {
				return nil, err
			}
			done := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, q.Options), q.Activity, q.Args...)
			workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
			var out any
			return out, done.Get(ctx, &out)
		}, workflow.RegisterOptions{Name: "two"})
	}))
	run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), "two", staged("first", "x", forever), staged("second", "x", forever))
	require.NoError(t, err)
	a := first.next()
	a.give("done")
	b := second.next()
	e.signal(run, "go on")
	var tasks int64 // the last workflow task, after the second activity has been scheduled
	eventually(t, "the task of the signal", func() bool {
		all := e.history(run, enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
		tasks = all[len(all)-1].GetEventId()
		return len(all) >= 3
	})
	reset, err := e.client.ResetWorkflowExecution(e.ctx(), &workflowservice.ResetWorkflowExecutionRequest{Namespace: "default",
		WorkflowExecution: execution(run), Reason: "test", RequestId: e.queue, WorkflowTaskFinishEventId: tasks})
	require.NoError(t, err)
	again := second.next()
	require.Equal(t, reset.GetRunId(), again.info.WorkflowExecution.RunID)
	require.NotEqual(t, run.GetRunID(), reset.GetRunId())
	require.Equal(t, b.info.ActivityID, again.info.ActivityID)
	require.Equal(t, b.info.ScheduledTime.UnixNano(), again.info.ScheduledTime.UnixNano())
	require.EqualValues(t, 1, again.info.Attempt)
	b.give("of the old run")
	again.give("of the new run")
	var out string
	require.NoError(t, e.client.GetWorkflow(e.ctx(), run.GetID(), reset.GetRunId()).Get(e.ctx(), &out))
	require.Equal(t, "of the new run", out)
	first.over()
}

// A standalone activity has a run id: of the SDK's test environment, where the server at
// hand has none.
func TestFactAStandaloneActivityHasARunID(t *testing.T) {
	t.Parallel()
	var suite testsuite.WorkflowTestSuite
	a := suite.NewTestActivityEnvironment().SetExecuteActivitiesInWorkflow(false)
	var seen activity.Info
	a.RegisterActivityWithOptions(func(ctx context.Context) error { seen = activity.GetInfo(ctx); return nil }, registerAs("once"))
	_, err := a.ExecuteActivity("once")
	require.NoError(t, err)
	require.NotEmpty(t, seen.ActivityRunID)
	require.Empty(t, seen.WorkflowExecution)
	require.False(t, seen.IsLocalActivity)
}

// outside is an interceptor that writes a header at each local call.
type outside struct {
	sdk.WorkerInterceptorBase
}

type outsideIn struct {
	sdk.WorkflowInboundInterceptorBase
}

type outsideOut struct {
	sdk.WorkflowOutboundInterceptorBase

	calls int
}

func (*outside) InterceptWorkflow(_ workflow.Context, next sdk.WorkflowInboundInterceptor) sdk.WorkflowInboundInterceptor {
	i := &outsideIn{}
	i.Next = next
	return i
}

func (i *outsideIn) Init(next sdk.WorkflowOutboundInterceptor) error {
	o := &outsideOut{}
	o.Next = next
	return i.Next.Init(o)
}

func (o *outsideOut) ExecuteLocalActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	o.calls++
	sdk.WorkflowHeader(ctx)["probe"] = &commonpb.Payload{Data: []byte(fmt.Sprint("probe-call-", o.calls))}
	return o.Next.ExecuteLocalActivity(ctx, name, args...)
}

// The attempts of a local activity with a long backoff have activity ids and scheduled
// times of their own, and share what was written where the call was made: the outbound interceptor is called once,
// and what it writes is not in history.
func TestFactALocalActivityOverALongBackoff(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var mu sync.Mutex
	var seen []activity.Info
	var headers []string
	e.bare(named("work", func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, activity.GetInfo(ctx))
		if len(seen) < 3 {
			return errors.New("once more")
		}
		return nil
	}), before(&around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
		mu.Lock()
		headers = append(headers, string(sdk.Header(ctx)["probe"].GetData()))
		mu.Unlock()
		return next(ctx, in)
	}}), before(&outside{}))
	run := e.backedOff(call("work"), 3)
	require.NoError(t, run.Get(e.ctx(), nil))
	require.Len(t, seen, 3)
	require.Len(t, map[string]bool{seen[0].ActivityID: true, seen[1].ActivityID: true, seen[2].ActivityID: true}, 3)
	require.Equal(t, []string{"probe-call-1", "probe-call-1", "probe-call-1"}, headers)
	for i, info := range seen {
		require.True(t, info.IsLocalActivity)
		require.EqualValues(t, i+1, info.Attempt)
		if i > 0 {
			require.True(t, info.ScheduledTime.After(seen[i-1].ScheduledTime), "every attempt is scheduled anew")
		}
	}
	require.Len(t, e.history(run, enumspb.EVENT_TYPE_MARKER_RECORDED), 3)
	require.NotContains(t, e.written(run), "probe-call", "nothing of the header is in history")
}
