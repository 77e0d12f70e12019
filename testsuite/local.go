package testsuite

import (
	"fmt"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// localCall is one call of a local activity by workflow code. All deliveries of it have
// the header that is made when it is called.
type localCall struct {
	once   sync.Once
	fields map[string]*commonpb.Payload
	err    error
}

func (l *localCall) header(k *Kit, fn any, args []any) (*commonpb.Header, error) {
	l.once.Do(func() { l.fields, l.err = k.headerOfLocal(fn, args) })
	return &commonpb.Header{Fields: l.fields}, l.err
}

// headerOfLocal has workflow code call a local activity, as the SDK's activity
// environment does not, and returns the header that the interceptors write.
func (k *Kit) headerOfLocal(fn any, args []any) (map[string]*commonpb.Payload, error) {
	env := k.suite().NewTestWorkflowEnvironment()
	env.SetTestTimeout(patience)
	catch := &headerCatcher{}
	chain := append([]sdk.WorkerInterceptor{catch}, k.opts.Before...) // the first one's outbound calls come last
	env.SetWorkerOptions(worker.Options{Interceptors: append(chain, k.Interceptor())})
	for _, r := range k.registrations() {
		env.RegisterActivityWithOptions(r.activity, r.options)
	}
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
		return workflow.ExecuteLocalActivity(ctx, fn, args...).Get(ctx, nil)
	})
	if err := env.GetWorkflowError(); err != nil {
		return nil, fmt.Errorf("testsuite: the call of a local activity: %w", err)
	}
	return catch.fields, nil
}

// headerCatcher ends a call of a local activity before it leaves the workflow, and keeps
// its header.
type headerCatcher struct {
	sdk.WorkerInterceptorBase

	fields map[string]*commonpb.Payload
}

// InterceptWorkflow implements the SDK's WorkerInterceptor.
func (c *headerCatcher) InterceptWorkflow(_ workflow.Context, next sdk.WorkflowInboundInterceptor) sdk.WorkflowInboundInterceptor {
	in := &headerCatcherInbound{catcher: c}
	in.Next = next
	return in
}

type headerCatcherInbound struct {
	sdk.WorkflowInboundInterceptorBase

	catcher *headerCatcher
}

// Init implements the SDK's WorkflowInboundInterceptor.
func (i *headerCatcherInbound) Init(out sdk.WorkflowOutboundInterceptor) error {
	o := &headerCatcherOutbound{catcher: i.catcher}
	o.Next = out
	return i.Next.Init(o)
}

type headerCatcherOutbound struct {
	sdk.WorkflowOutboundInterceptorBase

	catcher *headerCatcher
}

// ExecuteLocalActivity implements the SDK's WorkflowOutboundInterceptor.
func (o *headerCatcherOutbound) ExecuteLocalActivity(ctx workflow.Context, _ string, _ ...any) workflow.Future {
	o.catcher.fields = sdk.WorkflowHeader(ctx)
	done, settable := workflow.NewFuture(ctx)
	settable.SetValue(nil)
	return done
}
