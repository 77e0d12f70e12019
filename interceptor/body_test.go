package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
)

// D04: the kit returns the very error of the body. To wrap it would lose what Temporal
// reads from it.
func TestErrorsOfTheBodyAreNotWrapped(t *testing.T) {
	t.Parallel()
	full := temporal.NewApplicationErrorWithOptions("declined", "Declined", temporal.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{"card"}, Category: temporal.ApplicationErrorCategoryBenign, NextRetryDelay: time.Minute})
	for name, body := range map[string]error{
		"application error": full,
		"wrapped":           fmt.Errorf("paying: %w", full),
		"plain":             errors.New("db down"),
		"canceled":          temporal.NewCanceledError("by hand"),
		"context":           context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("pay", memoising(longFixed)))
			w, seen := e.attend()
			e.worker(named("pay", func(context.Context) (string, error) { return "ignored", body }), seen)
			_, err := e.run(call("pay").once())
			require.Error(t, err)
			require.Len(t, w.all(), 1)
			require.True(t, w.all()[0].err == body, "%v is not the same error", w.all()[0].err) //nolint:errorlint // the same value
			require.Nil(t, w.all()[0].result)
		})
	}
}

// D04: what the workflow sees of it.
func TestANonRetryableErrorStaysOne(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("pay", longFixed))
	var runs counted
	e.worker(named("pay", func(ctx context.Context) error {
		runs.ran(ctx)
		return temporal.NewApplicationErrorWithOptions("declined", "Declined", temporal.ApplicationErrorOptions{
			NonRetryable: true, Details: []any{"card"}, Category: temporal.ApplicationErrorCategoryBenign, NextRetryDelay: time.Minute})
	}))
	_, err := e.run(call("pay").attempts(5))
	f := failure(t, err)
	var card string
	require.NoError(t, f.Details(&card))
	require.Equal(t, "card", card)
	require.Equal(t, "Declined", f.Type())
	require.True(t, f.NonRetryable())
	require.Equal(t, time.Minute, f.NextRetryDelay())
	require.Equal(t, temporal.ApplicationErrorCategoryBenign, f.Category())
	require.Equal(t, 1, runs.runs())
}

// D05: a panic goes on, and leaves no lease behind: its end, an hour away, is not
// what the next attempt waits for.
func TestAPanicGoesOnAndFreesTheLease(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("pay", longFixed))
	var runs counted
	e.worker(named("pay", func(ctx context.Context) (string, error) {
		if runs.ran(ctx) != 2 {
			panic("out of range")
		}
		return "paid", nil
	}))
	_, err := e.run(call("pay").once())
	var p *temporal.PanicError
	require.ErrorAs(t, err, &p)
	require.Contains(t, p.Error(), "out of range")
	require.Contains(t, p.StackTrace(), "body_test.go", "the stack is the body's")
	out, err := e.run(call("pay").once())
	require.NoError(t, err)
	require.Equal(t, "paid", out)
}

// D10: a cancellation arrives as one, is not memoised, and frees the lease.
func TestACancellationStaysOne(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("wait", memoising(longFixed)))
	started := make(chan struct{}, 2)
	var runs counted
	e.worker(func(r worker.Registry) {
		r.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
			if runs.ran(ctx) > 1 {
				return "ran", nil
			}
			started <- struct{}{}
			for ctx.Err() == nil { // heartbeats are how a cancellation arrives
				activity.RecordHeartbeat(ctx)
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
			return "", ctx.Err()
		}, registerAs("wait"))
	}, func(o *worker.Options) { o.MaxHeartbeatThrottleInterval = 100 * time.Millisecond })
	p := call("wait")
	p.Options.HeartbeatTimeout, p.Options.WaitForCancellation = time.Minute, true
	run := e.start(p)
	<-started
	require.NoError(t, e.client.CancelWorkflow(e.ctx(), run.GetID(), run.GetRunID()))
	err := run.Get(e.ctx(), nil)
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.Len(t, e.history(run, 16), 1, "the activity was canceled, and did not fail")
	out, err := e.run(call("wait").once())
	require.NoError(t, err)
	require.Equal(t, "ran", out)
}

// unstorable puts e's interceptor on a Redis that goes away when a body ends.
func (e *env) unstorable() (cut func() *devstack.Hit) {
	e.Helper()
	proxy := devstack.ProxyForTest(e, e.rdb.Options().Addr)
	far := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true})
	e.Cleanup(func() { _ = far.Close() })
	e.opts.Redis, e.opts.Store.Timeout = far, time.Second
	return func() *devstack.Hit { return proxy.Add(devstack.Rule{Fault: devstack.DropRequest()}) }
}

// C18: an effect has happened and its result cannot be stored. The attempt succeeds: to
// fail it would have the effect repeated.
func TestAResultThatCannotBeStored(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("pay", longFixed))
	metrics := newTags()
	e.dial(nil, func(o *client.Options) { o.MetricsHandler = metrics })
	cut := e.unstorable()
	w, seen := e.attend()
	var runs counted
	e.worker(named("pay", func(ctx context.Context) (string, error) { runs.ran(ctx); cut(); return "paid", nil }), seen)
	out, err := e.run(call("pay").attempts(9)) // Redis may be late before the body as well
	require.NoError(t, err)
	require.Equal(t, "paid", out)
	require.Equal(t, 1, runs.runs())
	require.Equal(t, 1, w.kinds(primitives.EventMemoFailed))
	require.EqualValues(t, 1, metrics.total(interceptor.MetricMemoWriteFailed, ""))
	require.Len(t, e.logs.with("its result could not be stored"), 1, "one warning")
}

// C18, negative control: the same fault under StrictMemo fails the attempt, and its retry
// runs the body again.
func TestStrictMemo(t *testing.T) {
	t.Parallel()
	p := longFixed
	p.StrictMemo = true
	e := newEnv(t, interceptor.For("pay", p))
	cut := e.unstorable()
	w, seen := e.attend()
	var runs counted
	var hit atomic.Pointer[devstack.Hit]
	e.worker(named("pay", func(ctx context.Context) (int, error) {
		n := runs.ran(ctx)
		if n == 1 {
			hit.Store(cut())
		}
		return n, nil
	}), seen, func(o *worker.Options) {
		o.Interceptors = append([]interceptorOf{&mender{hit: &hit}}, o.Interceptors...)
	})
	out, err := e.run(call("pay").attempts(20))
	require.NoError(t, err)
	require.GreaterOrEqual(t, out, 2.0, "the body ran again") // more often if Redis is late
	var refused []*temporal.ApplicationError
	for _, answer := range w.all() {
		var f *temporal.ApplicationError
		if errors.As(answer.err, &f) && f.Type() == interceptor.TypeMemoNotStored {
			refused = append(refused, f)
		}
	}
	require.NotEmpty(t, refused)
	require.False(t, refused[0].NonRetryable())
}
