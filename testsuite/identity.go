package testsuite

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"
)

// identity is what makes one attempt the one that it is. The SDK's test environments
// all have the same workflow, run and activity ids, and the activity environment knows
// no attempt but the first.
type identity struct {
	workflow, run, activity string
	attempt                 int32
	scheduled, started      time.Time
}

func (k *Kit) newIdentity() identity {
	n := k.environments.Add(1)
	return identity{
		workflow: fmt.Sprintf("%s-workflow-%d", k.prefix, n), run: fmt.Sprintf("%s-run-%d", k.prefix, n),
		activity: "1", attempt: 1, scheduled: k.started, started: k.started,
	}
}

// apply gives the activity its identity.
func (id identity) apply(info activity.Info) activity.Info {
	info.WorkflowExecution = workflow.Execution{ID: id.workflow, RunID: id.run}
	info.ActivityID, info.Attempt = id.activity, id.attempt
	info.ScheduledTime, info.StartedTime = id.scheduled, id.started
	return info
}

// within gives an environment an identity space of its own, and leaves the rest to it.
func (id identity) within(info activity.Info) activity.Info {
	if info.WorkflowExecution.ID != "" {
		info.WorkflowExecution.ID = id.workflow + "/" + info.WorkflowExecution.ID
		info.WorkflowExecution.RunID = id.run + "/" + info.WorkflowExecution.RunID
	} else {
		info.ActivityRunID = id.run + "/" + info.ActivityRunID
	}
	return info
}

// identifier rewrites what activity.GetInfo answers, to everybody: the SDK asks the
// outermost interceptor first.
type identifier struct {
	sdk.WorkerInterceptorBase

	rewrite func(activity.Info) activity.Info
}

// InterceptActivity implements the SDK's WorkerInterceptor.
func (i *identifier) InterceptActivity(_ context.Context, next sdk.ActivityInboundInterceptor) sdk.ActivityInboundInterceptor {
	in := &identifierInbound{rewrite: i.rewrite}
	in.Next = next
	return in
}

type identifierInbound struct {
	sdk.ActivityInboundInterceptorBase

	rewrite func(activity.Info) activity.Info
}

// Init implements the SDK's ActivityInboundInterceptor.
func (i *identifierInbound) Init(out sdk.ActivityOutboundInterceptor) error {
	o := &identifierOutbound{rewrite: i.rewrite}
	o.Next = out
	return i.Next.Init(o)
}

type identifierOutbound struct {
	sdk.ActivityOutboundInterceptorBase

	rewrite func(activity.Info) activity.Info
}

// GetInfo implements the SDK's ActivityOutboundInterceptor.
func (o *identifierOutbound) GetInfo(ctx context.Context) activity.Info {
	return o.rewrite(o.Next.GetInfo(ctx))
}
