package interceptor_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
)

// N13: a key that would do nothing, because every call is an operation of its own, is
// refused before the body runs.
func TestWithKeyUnderScopeExecutionIsRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("charge", interceptor.Policy{}), interceptor.ForDynamic(interceptor.Policy{}),
		interceptor.For("keyed", interceptor.Policy{Key: interceptor.KeyFrom(func(s string) any { return s })}))
	var runs atomic.Int64
	body := func(context.Context, string) error { runs.Add(1); return nil }
	e.worker(and(named("charge", body), named("keyed", body), func(w worker.Registry) {
		w.RegisterDynamicActivity(func(context.Context, converter.EncodedValues) error { runs.Add(1); return nil },
			activity.DynamicRegisterOptions{})
	}))
	for name, p := range map[string]plan{
		"regular": call("charge", "x"), "local": call("charge", "x").local(), "dynamic": call("whatever", "x"),
		"with a key function": call("keyed", "x"), "local, with a key function": call("keyed", "x").local(),
	} {
		_, err := e.run(p.keyed("charge-A1"))
		var f *temporal.ApplicationError
		require.ErrorAs(t, err, &f, name)
		require.Equal(t, interceptor.TypeKeyError, f.Type(), name)
		require.True(t, f.NonRetryable(), name)
		require.Contains(t, f.Error(), "WithKey", name)
		require.NotContains(t, f.Error(), "charge-A1", name)
	}
	require.Zero(t, runs.Load())
	_, err := e.run(call("charge", "x"))
	require.NoError(t, err, "without a key it runs")
}

// N13: a key before an activity that no guard names is a warning, once for each type; the
// call passes.
func TestWithKeyBeforeAnUnguardedActivityWarns(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(plan) plan{
		"regular": func(p plan) plan { return p }, "local": plan.local,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, interceptor.For("charge", oncePerNamespace))
			var runs atomic.Int64
			body := func(context.Context, string) (int64, error) { return runs.Add(1), nil }
			e.worker(and(named("charge", body), named("first-plain", body), named("second-plain", body)))
			steps := []plan{edit(call("charge", "x")).keyed("key-A1"), edit(call("first-plain", "x"))}
			for _, activity := range []string{"first-plain", "second-plain", "first-plain", "second-plain"} {
				steps = append(steps, edit(call(activity, "x")).keyed("key-A1"))
			}
			_, got := e.steps(steps...)
			require.Equal(t, []any{1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, got)
			warned := map[string]int{}
			for _, line := range e.logs.with("WARN fencekit") {
				if !strings.Contains(line, "WithKey") {
					continue
				}
				require.NotContains(t, line, "key-A1")
				for _, activity := range []string{"charge", "first-plain", "second-plain"} {
					if strings.Contains(line, activity) {
						warned[activity]++
					}
				}
			}
			require.Equal(t, map[string]int{"first-plain": 1, "second-plain": 1}, warned)
		})
	}
}
