package interceptor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"github.com/fencekit/fencekit-go/interceptor"
)

// N18: the SDK's tracing interceptors on both sides of the guard. The one before it has a span
// for each call, the one behind it for each run of the body; results and failures pass.
func TestTheTracingOfTheSDKOnBothSides(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("pay", fixed), interceptor.For("decline", fixed))
	outer, inner := &spans{name: "outer"}, &spans{name: "inner"}
	e.worker(and(named("pay", func(ctx context.Context) (*receipt, error) {
		require.NotNil(t, outer.SpanFromContext(ctx))
		require.NotNil(t, inner.SpanFromContext(ctx))
		return &receipt{ID: 42}, nil
	}), named("decline", func(context.Context) error { return errRefusal })), before(sdk.NewTracingInterceptor(outer)), behind(sdk.NewTracingInterceptor(inner)))
	for _, local := range []bool{false, true} {
		p := call("pay")
		p.Local = local
		out, err := e.run(p)
		require.NoError(t, err)
		require.Equal(t, map[string]any{"ID": 42.0, "Notes": nil}, out)
	}
	_, err := e.run(call("decline"))
	require.Equal(t, errRefusal.Error(), failure(t, err).Error())
	require.Equal(t, []string{"pay: <nil>", "pay: <nil>", "decline: " + errRefusal.Error()}, outer.ended("RunActivity"))
	require.Equal(t, []string{"pay: <nil>", "decline: " + errRefusal.Error()}, inner.ended("RunActivity"))
}

var errRefusal = temporal.NewNonRetryableApplicationError("declined", "Declined", nil)

// spans is a small tracer.
type spans struct {
	sdk.BaseTracer

	name string
	mu   sync.Mutex
	done []oneSpan
}

type oneSpan struct {
	of              *spans
	operation, name string
	err             error
}

func (s *oneSpan) Finish(o *sdk.TracerFinishSpanOptions) {
	s.err = o.Error
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.done = append(s.of.done, *s)
}

type spansKey struct{ name string }

func (s *spans) Options() sdk.TracerOptions {
	return sdk.TracerOptions{SpanContextKey: spansKey{s.name}, HeaderKey: "spans-" + s.name}
}

func (s *spans) UnmarshalSpan(m map[string]string) (sdk.TracerSpanRef, error) { return m["name"], nil }

func (s *spans) MarshalSpan(span sdk.TracerSpan) (map[string]string, error) {
	return map[string]string{"name": span.(*oneSpan).name}, nil
}

func (s *spans) SpanFromContext(ctx context.Context) sdk.TracerSpan {
	if span, ok := ctx.Value(spansKey{s.name}).(*oneSpan); ok {
		return span
	}
	return nil
}

func (s *spans) ContextWithSpan(ctx context.Context, span sdk.TracerSpan) context.Context {
	return context.WithValue(ctx, spansKey{s.name}, span)
}

func (s *spans) StartSpan(o *sdk.TracerStartSpanOptions) (sdk.TracerSpan, error) {
	return &oneSpan{of: s, operation: o.Operation, name: o.Name}, nil
}

// ended are the spans of an operation, in the order of their ends.
func (s *spans) ended(operation string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.done {
		if span.operation == operation {
			found = append(found, fmt.Sprint(span.name, ": ", span.err))
		}
	}
	return found
}
