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
	"github.com/fencekit/fencekit-go/primitives/fence"
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
		if last != nil {
			require.Greater(t, r.info.Attempt, last.info.Attempt)
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
	e.reset(run, last)
	r := s.next()
	require.Less(t, r.info.Attempt, last.info.Attempt) // it is 1, if that one is not lost
	require.Greater(t, r.token(), last.token())
	require.Equal(t, last.attempt.Key, r.attempt.Key)
	require.NoError(t, db.sign(r.ctx, "after the reset"))
	r.give("done")
	require.NoError(t, run.Get(e.ctx(), nil))
	_, owner := db.account()
	require.Equal(t, "after the reset", owner)
}

// reset resets an activity, once the server has it waiting for the attempt after last.
func (e *env) reset(run client.WorkflowRun, last *entrance) {
	e.Helper()
	eventually(e, "the activity to wait for its retry", func() bool {
		d, err := e.client.DescribeWorkflow(e.Context(), run.GetID(), run.GetRunID())
		if err != nil {
			return false
		}
		pending := d.RawResponse.GetPendingActivities()
		return len(pending) == 1 && pending[0].GetAttempt() == last.info.Attempt+1
	})
	e.resetNow(run, last)
}

func (e *env) resetNow(run client.WorkflowRun, r *entrance) {
	e.Helper()
	e.insist(func() error {
		_, err := e.client.WorkflowService().ResetActivity(e.ctx(), &workflowservice.ResetActivityRequest{
			Namespace: "default", Execution: execution(run), Activity: &workflowservice.ResetActivityRequest_Id{Id: r.info.ActivityID}})
		return err
	})
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
	second := s.later(first) // the server has given the first up
	require.Greater(t, second.info.Attempt, first.info.Attempt)
	require.NoError(t, db.sign(second.zombie(), "second"))
	e.resetNow(run, first)
	before, third := second, s.later(second)
	for range 20 { // which may have begun before the reset, if that took long
		if third.info.Attempt <= before.info.Attempt {
			break
		}
		before, third = third, s.later(third)
	}
	require.LessOrEqual(t, third.info.Attempt, before.info.Attempt)
	require.Equal(t, primitives.TakenOver, third.attempt.Outcome)
	require.Greater(t, third.token(), before.token())
	require.NoError(t, db.sign(third.zombie(), "third"))
	require.ErrorIs(t, db.sign(second.zombie(), "second again"), fence.ErrStale)
	third.give("done")
	s.giveFurther("done")
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
	e.worker(s.register, heartbeatsOften)
	p := staged("work", "x", forever)
	p.Options.HeartbeatTimeout = forever
	run := e.start(p)
	r := s.next()
	pause := &workflowservice.PauseActivityRequest{Namespace: "default", Execution: execution(run),
		Activity: &workflowservice.PauseActivityRequest_Id{Id: r.info.ActivityID}}
	e.insist(func() error {
		_, err := e.client.WorkflowService().PauseActivity(e.ctx(), pause)
		return err
	})
	eventually(t, "the body to hear of it", func() bool { activity.RecordHeartbeat(r.ctx); return r.ctx.Err() != nil })
	cause := context.Cause(r.ctx)
	require.True(t, errors.Is(cause, activity.ErrActivityPaused), cause)
	r.fail(cause)
	eventually(t, "the lease to be free", func() bool {
		l, err := e.store().Inspect(t.Context(), r.attempt.Token.Resource)
		require.NoError(t, err)
		return !l.Held
	})
	unpause := &workflowservice.UnpauseActivityRequest{Namespace: "default", Execution: execution(run),
		Activity: &workflowservice.UnpauseActivityRequest_Id{Id: r.info.ActivityID}}
	e.insist(func() error {
		_, err := e.client.WorkflowService().UnpauseActivity(e.ctx(), unpause)
		return err
	})
	again := s.next()
	require.Greater(t, again.token(), r.token())
	again.give("done")
	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "done", out)
}
