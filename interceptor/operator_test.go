package interceptor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	activitypb "go.temporal.io/api/activity/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fencekit/fencekit-go/interceptor"
)

// operator does something to an activity that runs. One that its body hears of ends the
// body's context, at a heartbeat.
type operator struct {
	act   func(*env, client.WorkflowRun, *entrance)
	heard bool
	after func(*env, client.WorkflowRun, *entrance) // once the body has ended
}

func (e *env) pause(run client.WorkflowRun, r *entrance) {
	e.Helper()
	e.insist(func() error {
		_, err := e.client.WorkflowService().PauseActivity(e.ctx(), &workflowservice.PauseActivityRequest{Namespace: "default",
			Execution: execution(run), Activity: &workflowservice.PauseActivityRequest_Id{Id: r.info.ActivityID}})
		return err
	})
}

func unpause(resetAttempts bool) func(*env, client.WorkflowRun, *entrance) {
	return func(e *env, run client.WorkflowRun, r *entrance) {
		e.Helper()
		e.insist(func() error {
			_, err := e.client.WorkflowService().UnpauseActivity(e.ctx(), &workflowservice.UnpauseActivityRequest{Namespace: "default",
				Execution: execution(run), ResetAttempts: resetAttempts, ResetHeartbeat: resetAttempts,
				Activity: &workflowservice.UnpauseActivityRequest_Id{Id: r.info.ActivityID}})
			return err
		})
	}
}

func (e *env) resetToTheStart(run client.WorkflowRun, r *entrance) {
	e.Helper()
	e.insist(func() error {
		_, err := e.client.WorkflowService().ResetActivity(e.ctx(), &workflowservice.ResetActivityRequest{Namespace: "default",
			Execution: execution(run), ResetHeartbeat: true, RestoreOriginalOptions: true,
			Activity: &workflowservice.ResetActivityRequest_Id{Id: r.info.ActivityID}})
		return err
	})
}

// updateOptions gives an activity other timeouts and intervals.
func (e *env) updateOptions(run client.WorkflowRun, r *entrance) {
	e.Helper()
	e.insist(func() error {
		_, err := e.client.WorkflowService().UpdateActivityOptions(e.ctx(), &workflowservice.UpdateActivityOptionsRequest{
			Namespace: "default", Execution: execution(run),
			Activity: &workflowservice.UpdateActivityOptionsRequest_Id{Id: r.info.ActivityID},
			ActivityOptions: &activitypb.ActivityOptions{
				ScheduleToCloseTimeout: durationpb.New(2 * time.Hour), StartToCloseTimeout: durationpb.New(time.Hour)},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"schedule_to_close_timeout", "start_to_close_timeout"}}})
		return err
	})
}

func (e *env) restoreOptions(run client.WorkflowRun, r *entrance) {
	e.Helper()
	e.updateOptions(run, r)
	e.insist(func() error {
		_, err := e.client.WorkflowService().UpdateActivityOptions(e.ctx(), &workflowservice.UpdateActivityOptionsRequest{
			Namespace: "default", Execution: execution(run), RestoreOriginal: true,
			Activity: &workflowservice.UpdateActivityOptionsRequest_Id{Id: r.info.ActivityID}})
		return err
	})
}

// What an operator does to an activity in mid-attempt leaves it the call that it is, under
// every policy: the next attempt has the same key for the same effect, and a higher token.
// It does so whether the body ends, or is frozen and Temporal gives it up.
func TestOperatorsLeaveACallWhatItIs(t *testing.T) {
	t.Parallel()
	policies := map[string]interceptor.Policy{
		"default": {}, "resource": {Resource: resource("account/42")}, "run": {Scope: interceptor.ScopeRun},
		"namespace": {Scope: interceptor.ScopeNamespace, Key: interceptor.KeyFrom(func(s string) any { return s })},
	}
	for name, o := range map[string]operator{
		"reset":               {act: (*env).resetNow, heard: true},
		"reset to the start":  {act: (*env).resetToTheStart, heard: true},
		"pause":               {act: (*env).pause, heard: true, after: unpause(false)},
		"pause, and attempts": {act: (*env).pause, heard: true, after: unpause(true)},
		"update options":      {act: (*env).updateOptions},
		"restore options":     {act: (*env).restoreOptions},
	} {
		for policy, p := range policies {
			p.LeaseTTL = forever
			for ending, timeout := range map[string]time.Duration{"the body ends": forever, "the body is frozen": 2 * time.Second} {
				t.Run(name+", "+policy+", "+ending, func(t *testing.T) {
					t.Parallel()
					e := newEnv(t, interceptor.For("work", p))
					s := newStage(e, "work")
					e.worker(s.register, heartbeatsOften)
					call := staged("work", "x", timeout)
					call.Options.HeartbeatTimeout = timeout
					run := e.start(call)
					first := s.next()
					o.act(e, run, first)
					if timeout == forever {
						err := temporal.NewApplicationError("not yet", "NotYet")
						if o.heard {
							eventually(t, "the body to hear of it", func() bool { activity.RecordHeartbeat(first.ctx); return first.ctx.Err() != nil })
							err = context.Cause(first.ctx)
						}
						first.fail(err)
					}
					if o.after != nil {
						o.after(e, run, first)
					}
					second := s.later(first)
					require.Equal(t, first.info.ScheduledTime.UnixNano(), second.info.ScheduledTime.UnixNano())
					require.Equal(t, first.attempt.Key, second.attempt.Key)
					require.Equal(t, first.idempotencyKey(t), second.idempotencyKey(t))
					second.give("done")
					s.giveFurther("done")
					var out string
					require.NoError(t, run.Get(e.ctx(), &out))
					require.Equal(t, "done", out)
					first.give("")
				})
			}
		}
	}
}
