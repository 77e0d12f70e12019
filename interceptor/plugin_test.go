package interceptor_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
)

// Courier has its methods registered as activities.
type Courier struct{ runs counted }

// Deliver is one of them.
func (c *Courier) Deliver(ctx context.Context, what string) (string, error) {
	c.runs.ran(ctx)
	return "delivered " + what, nil
}

// plugged starts a worker whose client has the kit as a plugin.
func (e *env) plugged(kit *interceptor.Interceptor, data converter.DataConverter, register func(worker.Registry)) error {
	e.Helper()
	s, err := sharedTemporal()
	require.NoError(e, err)
	c, err := s.Client(func(o *client.Options) {
		o.Logger, o.DataConverter, o.Plugins = e.logs, data, []client.Plugin{kit.Plugin()}
	})
	if err != nil {
		return err
	}
	e.client = c
	w := worker.New(c, e.queue, worker.Options{})
	w.RegisterWorkflowWithOptions(runOne, workflow.RegisterOptions{Name: "run-one"})
	register(w)
	require.NoError(e, w.Start())
	e.Cleanup(w.Stop)
	return nil
}

// The plugin guards, and stores results as its client encodes them.
func TestThePluginTakesTheClientsConverter(t *testing.T) {
	t.Parallel()
	courier := &Courier{}
	e := newEnv(t, interceptor.For(courier.Deliver, oncePerNamespace))
	kit := e.interceptor()
	require.NoError(t, e.plugged(kit, newSealing(false).converter(), and(func(w worker.Registry) { w.RegisterActivity(courier) })))
	_, got := e.steps(call("Deliver", "XX00"), call("Deliver", "XX00"))
	require.Equal(t, []any{"delivered XX00", "delivered XX00"}, got)
	require.Equal(t, 1, courier.runs.runs())
	require.NotContains(t, e.stored(), "XX00")
	require.Contains(t, e.stored(), "binary/sealed")
	require.Empty(t, e.logs.with("guards nothing"), "all are there")

	err := e.plugged(kit, nil, and())
	require.ErrorContains(t, err, "DataConverter")
}

// A typing error in a name would leave an activity unguarded: the worker says so when
// it starts.
func TestGuardsOfUnknownActivitiesAreNamed(t *testing.T) {
	t.Parallel()
	courier := &Courier{}
	e := newEnv(t, interceptor.For("Deliver", oncePerNamespace), interceptor.For("Delivr", oncePerNamespace),
		interceptor.For("pick-up", oncePerNamespace), interceptor.For("shop.Deliver", oncePerNamespace), interceptor.ForDynamic(oncePerNamespace))
	require.NoError(t, e.plugged(e.interceptor(), nil, and(func(w worker.Registry) {
		w.RegisterActivity(courier)
		w.RegisterActivityWithOptions(courier, registerAs("shop."))
		w.RegisterActivityWithOptions(courier.Deliver, registerAs("pick-up"))
	})))
	warned := e.logs.with("guards nothing")
	require.Len(t, warned, 1)
	require.Contains(t, warned[0], "Delivr")
	for _, there := range []string{"Deliver,", "pick-up", "shop.Deliver"} {
		require.NotContains(t, warned[0], there)
	}
}

// A worker that has no activities at all runs workflows only, which is no error.
func TestAWorkerOfWorkflowsIsNotWarned(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("Deliver", oncePerNamespace))
	require.NoError(t, e.plugged(e.interceptor(), nil, and()))
	require.Empty(t, e.logs.with("guards nothing"))
}

// Given both as a plugin and on the worker, one guards and the other passes.
func TestRegisteredTwice(t *testing.T) {
	t.Parallel()
	e := newEnv(t, interceptor.For("greet", oncePerNamespace))
	kit := e.interceptor()
	var runs counted
	e.workerWith(kit, and(named("greet", func(ctx context.Context, _ string) (int, error) { return runs.ran(ctx), nil })),
		func(o *worker.Options) { o.Interceptors = append(o.Interceptors, kit) })
	_, got := e.steps(call("greet", "jo"), call("greet", "jo"))
	require.Equal(t, []any{1.0, 1.0}, got)
}
