package interceptor

import (
	"context"
	"errors"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/primitives"
)

// headerName is the header that carries a key from a workflow to an activity. Its
// payload is a digest, so that history shows no part of the key.
const headerName = "fencekit-key"

type (
	workflowKey    struct{} // the digest that WithKey has put into a workflow's context
	interceptedKey struct{} // marks a workflow's context as ours
)

// WithKey gives a workflow's next calls of guarded activities an idempotency key of
// its own making, in place of what Policy.Key picks; Policy.Scope says within what, so
// it needs ScopeRun or wider: under ScopeExecution every call is an operation of its own
// whatever its key, and one with a key fails as a [TypeKeyError]. A call of an activity
// that no guard names is warned about, once for each type, where it runs. Use the returned
// context for one call: two calls of one activity with one key are one operation, and
// with other input a mismatch.
//
//	ctx, err := interceptor.WithKey(ctx, "charge-A1")
//	err = workflow.ExecuteActivity(ctx, acts.Charge, order).Get(ctx, nil)
//
// The key is any non-empty text. WithKey returns a *primitives.KeyError for one that is
// empty or not valid UTF-8, and a *primitives.OptionError in a workflow whose worker
// (or replayer) lacks the interceptor: the key would be lost on the way.
func WithKey(ctx workflow.Context, key string) (workflow.Context, error) {
	if ctx.Value(interceptedKey{}) == nil {
		return ctx, &primitives.OptionError{Field: "ctx", Rule: "is of a workflow whose worker has no fencekit interceptor"}
	}
	k, err := primitives.NewKey("explicit", key)
	if err != nil {
		return ctx, err
	}
	return workflow.WithValue(ctx, workflowKey{}, k.String()), nil
}

// keyFromHeader is the digest that came with the call, if any.
func keyFromHeader(ctx context.Context) (digest string, given bool, err error) {
	p, ok := sdk.Header(ctx)[headerName]
	if !ok {
		return "", false, nil
	}
	var k primitives.Key
	if k.UnmarshalText(p.GetData()) != nil || k.Namespace() != "explicit" {
		return "", false, errors.New("the header " + headerName + " does not hold what WithKey puts there")
	}
	return string(p.GetData()), true, nil
}

// workflowInbound marks the contexts of a workflow, and stands before its calls. There is
// one for each time that a run is executed or replayed.
type workflowInbound struct {
	sdk.WorkflowInboundInterceptorBase

	kit *Interceptor
}

// Init implements the SDK's WorkflowInboundInterceptor.
func (w *workflowInbound) Init(out sdk.WorkflowOutboundInterceptor) error {
	o := &workflowOutbound{kit: w.kit, calls: localCalls{}}
	o.Next = out
	return w.Next.Init(o)
}

// ExecuteWorkflow implements the SDK's WorkflowInboundInterceptor.
func (w *workflowInbound) ExecuteWorkflow(ctx workflow.Context, in *sdk.ExecuteWorkflowInput) (any, error) {
	return w.Next.ExecuteWorkflow(workflow.WithValue(ctx, interceptedKey{}, true), in)
}

// ExecuteUpdate implements the SDK's WorkflowInboundInterceptor.
func (w *workflowInbound) ExecuteUpdate(ctx workflow.Context, in *sdk.UpdateInput) (any, error) {
	return w.Next.ExecuteUpdate(workflow.WithValue(ctx, interceptedKey{}, true), in)
}

// workflowOutbound writes the headers.
type workflowOutbound struct {
	sdk.WorkflowOutboundInterceptorBase

	kit   *Interceptor
	calls localCalls
}

// ExecuteActivity implements the SDK's WorkflowOutboundInterceptor.
func (w *workflowOutbound) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	writeKey(ctx)
	return w.Next.ExecuteActivity(ctx, name, args...)
}

// ExecuteLocalActivity implements the SDK's WorkflowOutboundInterceptor.
func (w *workflowOutbound) ExecuteLocalActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	explicit := writeKey(ctx)
	if p := w.kit.plans[name]; p != nil {
		sdk.WorkflowHeader(ctx)[localHeader] = w.calls.header(p, name, args, explicit)
	}
	return w.Next.ExecuteLocalActivity(ctx, name, args...)
}

func writeKey(ctx workflow.Context) (digest string) {
	digest, ok := ctx.Value(workflowKey{}).(string)
	if !ok {
		return ""
	}
	sdk.WorkflowHeader(ctx)[headerName] = &commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingBinary)},
		Data:     []byte(digest),
	}
	return digest
}
