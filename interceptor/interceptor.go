package interceptor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/primitives"
)

// Interceptor guards the activities that its [Options] name, and passes all others
// through untouched. Register it on a worker, in worker.Options.Interceptors, or as a
// plugin on the client: see [Interceptor.Plugin]. It is safe for any number of
// workers. It owns no goroutine and no connection, and needs no closing.
//
// Registered twice for one worker, the outer one guards and the inner one passes.
type Interceptor struct {
	sdk.WorkerInterceptorBase

	store      *primitives.Store
	identity   string
	plans      map[string]*plan // by activity type
	dynamic    *plan            // for what a dynamic activity serves; nil: not guarded
	converters converters
	plugin     *temporal.SimplePlugin
	unguarded  sync.Map // activity types, warned about because of a key that does nothing
	unanswered moment   // a question to Temporal
}

var _ sdk.WorkerInterceptor = (*Interceptor)(nil)

// New returns an interceptor. It sends nothing to Redis: see [Interceptor.Store] and
// primitives.Store.Check for that. An option that breaks its rule, or contradicts
// another, is a *primitives.OptionError that names it.
func New(opts Options) (*Interceptor, error) {
	store, err := primitives.New(opts.Redis, opts.Store)
	var o *primitives.OptionError
	if errors.As(err, &o) && o.Field == "client" { // which is called Redis here
		return nil, &primitives.OptionError{Field: "Redis", Rule: o.Rule}
	}
	if err != nil {
		return nil, err
	}
	k := &Interceptor{
		store: store, identity: opts.Identity, plans: map[string]*plan{},
		converters: converters{data: opts.DataConverter, failure: opts.FailureConverter},
	}
	if k.identity == "" {
		k.identity = defaultIdentity()
	}
	if len(opts.Guards) == 0 {
		return nil, &primitives.OptionError{Field: "Guards", Rule: "is empty: nothing would be guarded"}
	}
	for i, g := range opts.Guards {
		if err := k.add(g, opts); err != nil {
			return nil, g.blame(i, err)
		}
	}
	k.plugin, err = k.newPlugin()
	return k, err
}

// defaultIdentity is what the SDK calls a worker, too.
func defaultIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%d@%s", os.Getpid(), host)
}

// Store is the store behind the guards, for operator calls on it and for leases of
// one's own.
func (k *Interceptor) Store() *primitives.Store { return k.store }

// planFor is the plan of a call, or nil for an activity that is not guarded.
func (k *Interceptor) planFor(name string, args []any) *plan {
	if p := k.plans[name]; p != nil {
		return p
	}
	if len(args) == 1 {
		if _, ok := args[0].(converter.EncodedValues); ok {
			return k.dynamic
		}
	}
	return nil
}

// InterceptActivity implements the SDK's WorkerInterceptor.
func (k *Interceptor) InterceptActivity(_ context.Context, next sdk.ActivityInboundInterceptor) sdk.ActivityInboundInterceptor {
	a := &inbound{kit: k}
	a.Next = next
	return a
}

// InterceptWorkflow implements the SDK's WorkerInterceptor. It writes headers: the keys
// that workflow code sets by [WithKey], and which call of a guarded local activity it
// makes. It adds nothing to a workflow's history.
func (k *Interceptor) InterceptWorkflow(_ workflow.Context, next sdk.WorkflowInboundInterceptor) sdk.WorkflowInboundInterceptor {
	w := &workflowInbound{kit: k}
	w.Next = next
	return w
}

// inbound stands before one execution of an activity.
type inbound struct {
	sdk.ActivityInboundInterceptorBase

	kit *Interceptor
}

// ExecuteActivity implements the SDK's ActivityInboundInterceptor.
func (a *inbound) ExecuteActivity(ctx context.Context, in *sdk.ExecuteActivityInput) (any, error) {
	info := activity.GetInfo(ctx)
	plan := a.kit.planFor(info.ActivityType.Name, in.Args)
	if plan == nil || callFrom(ctx) != nil { // the latter: registered twice
		if plan == nil {
			a.kit.warnOfKey(ctx, info.ActivityType.Name)
		}
		return a.Next.ExecuteActivity(ctx, in)
	}
	return newCall(ctx, a.kit, plan, info).run(ctx, in, a.Next.ExecuteActivity)
}

// warnOfKey says, once for each type, that a key by [WithKey] does nothing for an activity
// that no guard names.
func (k *Interceptor) warnOfKey(ctx context.Context, name string) {
	if _, given, err := keyFromHeader(ctx); !given && err == nil {
		return
	}
	if _, warned := k.unguarded.LoadOrStore(name, true); warned {
		return
	}
	safely(func() {
		activity.GetLogger(ctx).Warn("fencekit: the workflow gives this call a key by WithKey, but no guard of this interceptor names the activity: the key does nothing here")
	})
}

// Attempt returns what is known of the guarded attempt that runs under ctx: its key,
// its outcome (begun, reclaimed, takeover or unguarded), its token and how often the
// operation was taken over. It is false outside of a guarded activity.
func Attempt(ctx context.Context) (primitives.Attempt, bool) {
	return primitives.AttemptFromContext(ctx)
}

// IdempotencyKey returns a key for a request that the body sends to somebody else, as
// for the Idempotency-Key header of a payment API. It is the same for every attempt of
// the operation, whichever worker runs it, and different for each name, so that a body
// with two requests has two keys. After the operation was undone (see [Undo]) it is another
// one: the request is new. It is 64 hex digits. The error is a
// *primitives.OptionError outside of a guarded activity and for an empty name.
func IdempotencyKey(ctx context.Context, name string) (string, error) {
	a, ok := Attempt(ctx)
	if !ok {
		return "", &primitives.OptionError{Field: "ctx", Rule: "is not that of a guarded activity"}
	}
	return idempotencyKey(a.Key, name)
}

func idempotencyKey(key primitives.Key, name string) (string, error) {
	if name == "" {
		return "", &primitives.OptionError{Field: "name", Rule: "is empty: two requests of one body would share a key"}
	}
	f, err := primitives.NewFingerprint([]string{key.String(), name})
	if err != nil {
		return "", &primitives.OptionError{Field: "name", Rule: "is not valid UTF-8"}
	}
	return f.String(), nil
}
