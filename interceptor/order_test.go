package interceptor_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// around is an interceptor that does something around the execution of an activity.
type around struct {
	sdk.WorkerInterceptorBase

	do func(context.Context, *executeInput, executeNext) (any, error)
}

func (a *around) InterceptActivity(_ context.Context, next sdk.ActivityInboundInterceptor) sdk.ActivityInboundInterceptor {
	i := &aroundOne{around: a}
	i.Next = next
	return i
}

type aroundOne struct {
	sdk.ActivityInboundInterceptorBase

	around *around
}

func (i *aroundOne) ExecuteActivity(ctx context.Context, in *sdk.ExecuteActivityInput) (any, error) {
	return i.around.do(ctx, in, i.Next.ExecuteActivity)
}

func before(i sdk.WorkerInterceptor) func(*worker.Options) {
	return func(o *worker.Options) { o.Interceptors = append([]sdk.WorkerInterceptor{i}, o.Interceptors...) }
}

func behind(i sdk.WorkerInterceptor) func(*worker.Options) {
	return func(o *worker.Options) { o.Interceptors = append(o.Interceptors, i) }
}

// redact changes every argument to the same.
var redact = &around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
	in.Args = slices.Clone(in.Args)
	in.Args[0] = "redacted"
	return next(ctx, in)
}}

// D21: the key is made from the arguments as the guard sees them.
func TestKeyFollowsTheInterceptorsBefore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		edit func(*worker.Options)
		runs int64 // of two calls that differ in what is redacted
	}{
		{"redaction before the guard", before(redact), 1},
		{"redaction behind the guard", behind(redact), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("send", interceptor.Policy{Scope: interceptor.ScopeNamespace}))
			var runs atomic.Int64
			e.worker(named("send", func(_ context.Context, s string) (string, error) {
				runs.Add(1)
				return s, nil
			}), c.edit)
			for _, arg := range []string{"jo@example.test", "mo@example.test"} {
				out, err := e.run(call("send", arg))
				require.NoError(t, err)
				require.Equal(t, "redacted", out)
			}
			require.Equal(t, c.runs, runs.Load())
		})
	}
}

type outerKey struct{}

// D21: values from before the guard reach the body; the token reaches what is behind it.
func TestContextPassesThroughTheGuard(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{Resource: resource("r")}))
	outer := &around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
		if _, ok := interceptor.Attempt(ctx); ok {
			t.Error("an attempt before the guard")
		}
		return next(context.WithValue(ctx, outerKey{}, "from before"), in)
	}}
	inner := make(chan fence.Token, 1)
	behindIt := &around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
		token, err := fence.FromContext(ctx)
		if err != nil {
			return nil, err
		}
		inner <- token
		return next(ctx, in)
	}}
	e.worker(named("work", func(ctx context.Context, _ string) (any, error) {
		token, err := fence.FromContext(ctx)
		if err != nil {
			return nil, err
		}
		seen := await(t, inner, "the inner interceptor")
		return []any{ctx.Value(outerKey{}), token.Resource, token == seen}, nil
	}), before(outer), behind(behindIt))
	out, err := e.run(call("work", "x"))
	require.NoError(t, err)
	require.Equal(t, []any{"from before", "r", true}, out)
}

// span records the attributes that are set on it.
type span struct {
	noop.Span

	mu    sync.Mutex
	attrs []attribute.KeyValue
}

func (*span) IsRecording() bool { return true }
func (s *span) SetAttributes(a ...attribute.KeyValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attrs = append(s.attrs, a...)
}

// get are the attributes; the last of a name counts.
func (s *span) get() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]any{}
	for _, a := range s.attrs {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

// tracer is a tracing interceptor: each execution has a span.
type tracer struct{ spans chan *span }

func (tr tracer) interceptor() *around {
	return &around{do: func(ctx context.Context, in *executeInput, next executeNext) (any, error) {
		s := &span{}
		defer func() { tr.spans <- s }()
		return next(trace.ContextWithSpan(ctx, s), in)
	}}
}

// D21, G07: a tracing interceptor before the guard has the outcome on its span, replays
// included; one behind it sees executions only.
func TestSpanAttributes(t *testing.T) {
	t.Parallel()
	policy := interceptor.Policy{Scope: interceptor.ScopeNamespace}
	e := newEnv(t, interceptor.For("work", policy))
	outer, inner := tracer{make(chan *span, 9)}, tracer{make(chan *span, 9)}
	attempts := make(chan primitives.Attempt, 9)
	e.worker(named("work", func(ctx context.Context, _ string) error {
		a, _ := interceptor.Attempt(ctx)
		attempts <- a
		return nil
	}), before(outer.interceptor()), behind(inner.interceptor()))
	for range 2 {
		_, err := e.run(call("work", "x"))
		require.NoError(t, err)
	}
	a := await(t, attempts, "the body")
	require.Equal(t, map[string]any{
		"fencekit.outcome": "begun", "fencekit.key": a.Key.String(),
		"fencekit.token": int64(a.Token.Value), "fencekit.end": "completed",
	}, await(t, outer.spans, "the first span").get())
	require.Equal(t, map[string]any{
		"fencekit.outcome": "replayed", "fencekit.key": a.Key.String(),
	}, await(t, outer.spans, "the second span").get())
	require.Empty(t, await(t, inner.spans, "the inner span").get())
	require.Empty(t, inner.spans)
}

// Sessions: the activities that the SDK makes them of pass, and those inside are guarded.
func TestSessions(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{}), interceptor.ForDynamic(interceptor.Policy{}))
	seen := e.watch()
	e.worker(func(w worker.Registry) {
		named("work", func(ctx context.Context, s string) (string, error) {
			_, err := fence.FromContext(ctx)
			return s, err
		})(w)
		w.RegisterWorkflowWithOptions(inSession, workflow.RegisterOptions{Name: "in-session"})
	}, func(o *worker.Options) { o.EnableSessionWorker = true })
	run, err := e.client.ExecuteWorkflow(e.ctx(), startOn(e), "in-session", staged("work", "x", forever))
	require.NoError(t, err)
	var out string
	require.NoError(t, run.Get(e.ctx(), &out))
	require.Equal(t, "x", out)
	for _, event := range seen.kind(primitives.EventBegan) {
		require.Equal(t, "work", event.Name)
	}
	require.Len(t, seen.kind(primitives.EventBegan), 1)
}

func inSession(ctx workflow.Context, p plan) (out string, err error) {
	ctx = workflow.WithActivityOptions(ctx, p.Options)
	ctx, err = workflow.CreateSession(ctx, &workflow.SessionOptions{
		CreationTimeout: forever, ExecutionTimeout: forever, HeartbeatTimeout: forever})
	if err != nil {
		return "", err
	}
	defer workflow.CompleteSession(ctx)
	err = workflow.ExecuteActivity(ctx, p.Activity, p.Args...).Get(ctx, &out)
	return out, err
}

// The same interceptor on the client, as a plugin, and on the worker guards once.
func TestRegisteredTwiceGuardsOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{Scope: interceptor.ScopeNamespace}))
	seen, k := e.watch(), (*interceptor.Interceptor)(nil)
	k = e.interceptor()
	s, err := sharedTemporal()
	require.NoError(t, err)
	e.client = s.ClientForTest(t, func(o *client.Options) { o.Plugins = []client.Plugin{k.Plugin()} })
	var runs atomic.Int64
	e.workerWith(k, named("work", func(context.Context, string) error { runs.Add(1); return nil }))
	for range 2 {
		_, err := e.run(call("work", "x"))
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, runs.Load())
	began := seen.kind(primitives.EventBegan)
	require.Len(t, began, 2)
	require.Equal(t, primitives.Begun, began[0].Outcome)
	require.Equal(t, primitives.Replayed, began[1].Outcome)
}

// Of two interceptors that name one activity the outer one guards.
func TestTwoInterceptorsForOneActivity(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("work", interceptor.Policy{}))
	outer := e.watch()
	second := e.opts
	inner := &heard{}
	second.Observer, second.Store.Prefix = inner, e.queue+"-inner"
	k, err := interceptor.New(second)
	require.NoError(t, err)
	e.worker(named("work", func(context.Context, string) error { return nil }), behind(k))
	_, err = e.run(call("work", "x"))
	require.NoError(t, err)
	require.Len(t, outer.kind(primitives.EventCompleted), 1)
	require.Empty(t, inner.all)
	keys, err := e.rdb.Keys(e.ctx(), e.queue+"-inner:*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
}

type (
	executeInput = sdk.ExecuteActivityInput
	executeNext  = func(context.Context, *executeInput) (any, error)
)
