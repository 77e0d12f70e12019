package interceptor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

// D12: a reset sends the attempt number back to 1. Tokens only rise.
func TestResetActivityGetsAHigherToken(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("sign", interceptor.Policy{LeaseTTL: forever}))
	db, s := e.bank(), newStage(e, "sign")
	e.worker(s.register)
	run := e.start(staged("sign", "x", forever))

	var last *entrance
	for i := range 4 {
		r := s.next()
		require.EqualValues(t, i+1, r.info.Attempt)
		if last != nil {
			require.Greater(t, r.token(), last.token())
		}
		require.NoError(t, db.sign(r.ctx, r.info.ActivityID))
		failed := temporal.ApplicationErrorOptions{}
		if i == 3 {
			failed.NextRetryDelay = 30 * time.Minute // from which only the reset can bring it back
		}
		r.fail(temporal.NewApplicationErrorWithOptions("not yet", "NotYet", failed))
		last = r
	}
	e.reset(run, last.info.ActivityID)
	r := s.next()
	require.EqualValues(t, 1, r.info.Attempt)
	require.Greater(t, r.token(), last.token())
	require.Equal(t, last.attempt.Key, r.attempt.Key)
	require.NoError(t, db.sign(r.ctx, "after the reset"))
	r.give("done")
	require.NoError(t, run.Get(e.ctx(), nil))
	_, owner := db.account()
	require.Equal(t, "after the reset", owner)
}

// reset resets an activity, once the server has it waiting for its next attempt.
func (e *env) reset(run client.WorkflowRun, id string) {
	e.Helper()
	eventually(e, "the activity to wait for its retry", func() bool {
		d, err := e.client.DescribeWorkflow(e.ctx(), run.GetID(), run.GetRunID())
		require.NoError(e, err)
		pending := d.RawResponse.GetPendingActivities()
		return len(pending) == 1 && pending[0].GetAttempt() == 5
	})
	_, err := e.client.WorkflowService().ResetActivity(e.ctx(), &workflowservice.ResetActivityRequest{
		Namespace: "default", Execution: execution(run), Activity: &workflowservice.ResetActivityRequest_Id{Id: id}})
	require.NoError(e, err)
}

func execution(run client.WorkflowRun) *commonpb.WorkflowExecution {
	return &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()}
}

// D12: a reset while a body runs that never heartbeats: the next attempt has no higher
// number than the one before, and takes over all the same, because it was started later.
func TestResetWhileTheBodyRuns(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("sign", interceptor.Policy{LeaseTTL: forever}))
	db, s := e.bank(), newStage(e, "sign")
	e.worker(s.register)
	p := staged("sign", "x", forever)
	p.Options.HeartbeatTimeout = 2 * time.Second
	run := e.start(p)
	first := s.next()
	second := s.next() // the server has given the first up
	require.EqualValues(t, 2, second.info.Attempt)
	require.NoError(t, db.sign(second.ctx, "second"))
	_, err := e.client.WorkflowService().ResetActivity(e.ctx(), &workflowservice.ResetActivityRequest{
		Namespace: "default", Execution: execution(run), Activity: &workflowservice.ResetActivityRequest_Id{Id: first.info.ActivityID}})
	require.NoError(t, err)
	third := s.next()
	require.LessOrEqual(t, third.info.Attempt, second.info.Attempt)
	require.Equal(t, primitives.TakenOver, third.attempt.Outcome)
	require.Greater(t, third.token(), second.token())
	require.NoError(t, db.sign(third.ctx, "third"))
	require.Error(t, db.sign(second.zombie(), "second again"))
	third.give("done")
	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "done", out)
	first.give("")
	second.give("")
}

// D12: being paused is no result, even where failures are memoised.
func TestPausedActivityIsNotMemoised(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{LeaseTTL: forever, MemoiseFailures: true}))
	s := newStage(e, "work")
	e.worker(s.register)
	p := staged("work", "x", forever)
	p.Options.HeartbeatTimeout = 3 * time.Second
	run := e.start(p)
	r := s.next()
	pause := &workflowservice.PauseActivityRequest{Namespace: "default", Execution: execution(run),
		Activity: &workflowservice.PauseActivityRequest_Id{Id: r.info.ActivityID}}
	_, err := e.client.WorkflowService().PauseActivity(e.ctx(), pause)
	require.NoError(t, err)
	eventually(t, "the body to hear of it", func() bool { activity.RecordHeartbeat(r.ctx); return r.ctx.Err() != nil })
	cause := context.Cause(r.ctx)
	require.True(t, errors.Is(cause, activity.ErrActivityPaused), cause)
	r.fail(cause)
	eventually(t, "the lease to be free", func() bool {
		l, err := e.store().Inspect(e.ctx(), r.attempt.Token.Resource)
		require.NoError(t, err)
		return !l.Held
	})
	unpause := &workflowservice.UnpauseActivityRequest{Namespace: "default", Execution: execution(run),
		Activity: &workflowservice.UnpauseActivityRequest_Id{Id: r.info.ActivityID}}
	_, err = e.client.WorkflowService().UnpauseActivity(e.ctx(), unpause)
	require.NoError(t, err)
	again := s.next()
	require.Greater(t, again.token(), r.token())
	again.give("done")
	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "done", out)
}
