package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

var oncePerNamespace = interceptor.Policy{Scope: interceptor.ScopeNamespace}

// counted is a body that counts its runs and the keys that it ran under.
type counted struct {
	mu   sync.Mutex
	keys []primitives.Key
}

func (c *counted) ran(ctx context.Context) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys = append(c.keys, attemptOf(ctx).Key)
	return len(c.keys)
}

func (c *counted) runs() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.keys)
}

// A01: a dynamic activity's calls are told apart by their values, and one activity that
// it serves may have a policy of its own.
func TestADynamicActivityIsGuarded(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.ForDynamic(oncePerNamespace),
		interceptor.For("special", interceptor.Policy{Scope: interceptor.ScopeRun}))
	var runs counted
	e.worker(and(func(w worker.Registry) {
		w.RegisterDynamicActivity(func(ctx context.Context, args converter.EncodedValues) (string, error) {
			runs.ran(ctx)
			var name string
			var n int
			err := args.Get(&name, &n)
			return fmt.Sprintf("%s %s %d", activity.GetInfo(ctx).ActivityType.Name, name, n), err
		}, activity.DynamicRegisterOptions{})
	}))
	_, got := e.steps(call("unknown-a", "alice", 1), call("unknown-a", "bob", 2), call("unknown-b", "alice", 1),
		call("unknown-a", "alice", 1), call("special", "alice", 1))
	require.Equal(t, []any{"unknown-a alice 1", "unknown-a bob 2", "unknown-b alice 1", "unknown-a alice 1", "special alice 1"}, got)
	require.Equal(t, 4, runs.runs(), "the fourth was replayed")
	_, got = e.steps(call("unknown-a", "alice", 1), call("special", "alice", 1))
	require.Len(t, got, 2)
	require.Equal(t, 5, runs.runs(), "another run of the workflow repeats only what is its own")
}

// A02, A08, A16: what has no safe key fails for good; the body does not run, nothing
// is stored, and the error does not show the input.
func TestWithoutASafeKeyTheBodyDoesNotRun(t *testing.T) {
	t.Parallel()
	type order struct {
		Ref  string
		Rate float64
	}
	type opaque struct{ id string } //nolint:unused // that it shows nothing is the point
	e := newEnv(t,
		interceptor.For("by-ref", interceptor.Policy{Scope: interceptor.ScopeNamespace, Key: interceptor.KeyFrom(func(o order) any { return o.Ref })}),
		interceptor.For("opaque", oncePerNamespace), interceptor.For("nan", interceptor.Policy{}),
		interceptor.For("panics", interceptor.Policy{Scope: interceptor.ScopeRun, Key: interceptor.KeyFrom(func(o order) any { panic(o.Ref) })}))
	var runs atomic.Int64
	e.worker(func(w worker.Registry) {
		w.RegisterActivityWithOptions(func(context.Context, order) error { runs.Add(1); return nil }, registerAs("by-ref"))
		w.RegisterActivityWithOptions(func(context.Context, order) error { runs.Add(1); return nil }, registerAs("panics"))
		w.RegisterActivityWithOptions(func(context.Context, opaque) error { runs.Add(1); return nil }, registerAs("opaque"))
		w.RegisterActivityWithOptions(func(context.Context, float64) error { runs.Add(1); return nil }, registerAs("nan"))
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
			ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
			return workflow.ExecuteLocalActivity(ctx, "nan", math.NaN()).Get(ctx, nil) // JSON has no NaN on the way to a regular one
		}, workflow.RegisterOptions{Name: "nan-workflow"})
	})
	for _, p := range []plan{call("by-ref", order{Rate: 11}), call("by-ref", order{Rate: 12}), call("opaque", opaque{}),
		call("panics", order{Ref: "jo@example.test"})} {
		_, err := e.run(p)
		f := failure(t, err)
		require.Equal(t, interceptor.TypeKeyError, f.Type(), p.Activity)
		require.True(t, f.NonRetryable())
		require.NotContains(t, err.Error(), "jo@example.test")
	}
	run, err := e.client.ExecuteWorkflow(e.ctx(), client.StartWorkflowOptions{TaskQueue: e.queue}, "nan-workflow")
	require.NoError(t, err)
	var f *temporal.ApplicationError
	require.ErrorAs(t, run.Get(e.ctx(), nil), &f)
	require.Equal(t, interceptor.TypeKeyError, f.Type())
	require.Zero(t, runs.Load())
	require.Empty(t, e.keys())
}

// A06: the ciphertext of an input differs each time; its key does not.
func TestKeysAreMadeOfWhatACodecHasDecoded(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("greet", oncePerNamespace), interceptor.ForDynamic(oncePerNamespace))
	e.dial(newSealing(false).converter())
	var runs counted
	e.worker(and(named("greet", func(ctx context.Context, name string) (string, error) { runs.ran(ctx); return "hello " + name, nil }),
		func(w worker.Registry) {
			w.RegisterDynamicActivity(func(ctx context.Context, _ converter.EncodedValues) (int, error) {
				return runs.ran(ctx), nil
			}, activity.DynamicRegisterOptions{})
		}))
	first, _ := e.steps(call("greet", "jo"))
	second, got := e.steps(call("greet", "jo"))
	require.Equal(t, []any{"hello jo"}, got)
	require.Equal(t, 1, runs.runs())
	require.NotEqual(t, e.history(first, 10)[0].GetActivityTaskScheduledEventAttributes().GetInput().GetPayloads()[0].Data,
		e.history(second, 10)[0].GetActivityTaskScheduledEventAttributes().GetInput().GetPayloads()[0].Data, "or the test shows nothing")
	_, got = e.steps(call("any", "jo"), call("any", "jo"), call("any", "al"))
	require.Equal(t, []any{2.0, 2.0, 3.0}, got, "a dynamic one's, too")
	_, got = e.steps(call("any", "jo").keyed("k"), call("any", "jo").keyed("k"))
	require.Equal(t, []any{4.0, 4.0}, got, "and a key in a header passes")
}

// A key for others is the same for every attempt, and another for each request.
func TestKeysForOthersRequests(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("pay", interceptor.Policy{}))
	var mu sync.Mutex
	var keys [][2]string
	e.worker(and(named("pay", func(ctx context.Context, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		reserve, err := interceptor.IdempotencyKey(ctx, "reserve")
		require.NoError(t, err)
		capture, err := interceptor.IdempotencyKey(ctx, "capture")
		require.NoError(t, err)
		_, err = interceptor.IdempotencyKey(ctx, "")
		require.ErrorIs(t, err, primitives.ErrInvalid)
		keys = append(keys, [2]string{reserve, capture})
		if len(keys)%2 == 1 {
			return errors.New("again")
		}
		return nil
	})))
	e.steps(call("pay", "A1").attempts(2), call("pay", "A1").attempts(2))
	require.Len(t, keys, 4)
	require.Equal(t, keys[0], keys[1])
	require.Equal(t, keys[2], keys[3])
	require.NotEqual(t, keys[0], keys[2], "another call")
	require.NotEqual(t, keys[0][0], keys[0][1], "another request")
	require.Regexp(t, "^[0-9a-f]{64}$", keys[0][0])
	_, err := interceptor.IdempotencyKey(t.Context(), "reserve")
	require.ErrorIs(t, err, primitives.ErrInvalid, "outside of a guarded activity")
}

// A08: raw payloads are keyed by their content.
func TestRawPayloadsAreKeyed(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("raw", oncePerNamespace))
	var runs counted
	e.worker(and(named("raw", func(ctx context.Context, v converter.RawValue) (string, error) {
		runs.ran(ctx)
		return string(v.Payload().GetData()), nil
	})))
	_, got := e.steps(call("raw", "a"), call("raw", "b"), call("raw", "a"))
	require.Equal(t, []any{`"a"`, `"b"`, `"a"`}, got)
	require.Equal(t, 2, runs.runs())
}

// A10: two activities, and two namespaces, do not meet; two task queues do, because
// both may serve one activity.
func TestWhatAKeyIsBoundTo(t *testing.T) {
	t.Parallel()
	guards := []interceptor.Guard{interceptor.For("debit", oncePerNamespace), interceptor.For("notify", oncePerNamespace)}
	e := newEnv(t, guards...)
	var runs counted
	register := and(named("debit", func(ctx context.Context, ref string) (string, error) { runs.ran(ctx); return "debited " + ref, nil }),
		named("notify", func(ctx context.Context, ref string) (string, error) { runs.ran(ctx); return "notified " + ref, nil }))
	e.worker(register)
	_, got := e.steps(call("debit", "ref-1"), call("notify", "ref-1"))
	require.Equal(t, []any{"debited ref-1", "notified ref-1"}, got)

	queue := newEnv(t, guards...)
	queue.opts.Store.Prefix = e.opts.Store.Prefix
	queue.worker(register)
	queue.steps(call("debit", "ref-1"))
	require.Equal(t, 2, runs.runs(), "the queue is not in the key")

	s, err := sharedTemporal()
	require.NoError(t, err)
	name := e.queue + "-namespace"
	require.NoError(t, s.CreateNamespace(e.ctx(), name))
	other := newEnv(t, guards...)
	other.opts.Store.Prefix = e.opts.Store.Prefix
	other.client = s.ClientForTest(t, func(o *client.Options) { o.Namespace = name })
	other.worker(register)
	other.steps(call("debit", "ref-1"))
	require.Equal(t, 3, runs.runs())
}

// A11: two attempts have one key; fields that are left out of it do not matter.
func TestWhatIsVolatileIsLeftOut(t *testing.T) {
	t.Parallel()
	type order struct{ ID, Trace string }
	byID := interceptor.KeyFrom(func(o order) any { return o.ID })
	e := newEnv(t, interceptor.For("whole", oncePerNamespace), interceptor.For("fails", oncePerNamespace),
		interceptor.For("per-execution", interceptor.Policy{Key: byID}))
	var whole, fails counted
	body := func(c *counted, failUntil int) func(context.Context, order) (string, error) {
		return func(ctx context.Context, o order) (string, error) {
			if n := c.ran(ctx); n < failUntil {
				return "", errors.New("not yet")
			}
			return o.Trace, nil
		}
	}
	e.worker(and(named("whole", body(&whole, 0)), named("fails", body(&fails, 2)), named("per-execution", body(&fails, 4))))
	e.steps(call("whole", order{"A1", "1"}), call("whole", order{"A1", "2"}))
	require.Equal(t, 2, whole.runs())
	e.steps(call("fails", order{"A1", "1"}).attempts(2))
	require.Len(t, fails.keys, 2)
	require.Equal(t, fails.keys[0], fails.keys[1])
	e.steps(call("per-execution", order{"A1", "1"}).attempts(2))
	require.Len(t, fails.keys, 4)
	require.Equal(t, fails.keys[2], fails.keys[3])
}

// Local and regular activities of one name are one operation.
func TestLocalAndRegularActivitiesShareAKey(t *testing.T) {
	t.Parallel()
	type order struct {
		ID    int64
		Due   time.Time
		Tags  []string
		Notes map[string]any
		Blob  []byte
	}
	e := newEnv(t, interceptor.For("ship", oncePerNamespace))
	var runs counted
	ship := func(ctx context.Context, o order, n int) (int, error) { return runs.ran(ctx), nil }
	e.worker(func(w worker.Registry) {
		w.RegisterActivityWithOptions(ship, registerAs("ship"))
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context, o order, localFirst bool) (got []int, err error) {
			ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
			ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
			for i := range 2 {
				var n int
				execute := workflow.ExecuteActivity
				if (i == 0) == localFirst {
					execute = workflow.ExecuteLocalActivity
				}
				if err := execute(ctx, "ship", o, 7).Get(ctx, &n); err != nil {
					return nil, err
				}
				got = append(got, n)
			}
			return got, nil
		}, workflow.RegisterOptions{Name: "both"})
	})
	for i, localFirst := range []bool{true, false} {
		o := order{ID: 1<<53 + 1 + int64(i), Due: time.Date(2026, 5, 6, 7, 8, 9, 10, time.FixedZone("", 3600)),
			Notes: map[string]any{"n": 1, "f": 1.5, "s": "x"}, Blob: []byte{0, 255}}
		run, err := e.client.ExecuteWorkflow(e.ctx(), client.StartWorkflowOptions{TaskQueue: e.queue}, "both", o, localFirst)
		require.NoError(t, err)
		var got []int
		require.NoError(t, run.Get(e.ctx(), &got))
		require.Equal(t, []int{i + 1, i + 1}, got)
	}
}
