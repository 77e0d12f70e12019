package payments_test

import (
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/payments"
)

func TestPayments(t *testing.T) {
	t.Parallel()
	s := stack.ForTest(t, stack.Config{Temporal: true})
	t.Run("two workflows charge an order once", func(t *testing.T) {
		t.Parallel()
		provider, c := start(t, s, nil)
		first, second := pay(t, c, "A1", 4200), pay(t, c, "A1", 4200)
		one, err := result(t, first)
		require.NoError(t, err)
		two, err := result(t, second)
		require.NoError(t, err)
		require.Equal(t, one, two)
		require.Equal(t, 1, provider.Charges())
	})
	t.Run("another amount is a mismatch", func(t *testing.T) {
		t.Parallel()
		provider, c := start(t, s, nil)
		_, err := result(t, pay(t, c, "A2", 4200))
		require.NoError(t, err)
		_, err = result(t, pay(t, c, "A2", 9900))
		var a *temporal.ApplicationError
		require.ErrorAs(t, err, &a)
		require.Equal(t, interceptor.TypeMismatch, a.Type())
		require.Equal(t, 1, provider.Charges())
	})
	t.Run("a crash after the charge does not charge again", func(t *testing.T) {
		t.Parallel()
		var crashes atomic.Int64
		provider, c := start(t, s, func() {
			crashes.Add(1)
			panic("the worker crashes")
		})
		charge, err := result(t, pay(t, c, "A3", 4200))
		require.NoError(t, err)
		require.Equal(t, payments.Charge{ID: "ch-1", Cents: 4200}, charge, "as the provider has it")
		require.Equal(t, 1, provider.Charges())
		require.EqualValues(t, 1, crashes.Load(), "the body ran once")
	})
}

type queued struct {
	client.Client
	queue string
}

// start starts a provider, and a worker on a queue of its own.
func start(t *testing.T, s *stack.Stack, afterCharge func()) (*payments.Provider, queued) {
	t.Helper()
	provider := &payments.Provider{}
	server := httptest.NewServer(provider)
	t.Cleanup(server.Close)
	acts := &payments.Activities{Provider: payments.Client{URL: server.URL}, AfterCharge: afterCharge}
	queue := stack.Unique(payments.TaskQueue)
	kit, err := interceptor.New(interceptor.Options{
		Redis: s.Redis, Store: primitives.Options{Prefix: queue}, Guards: payments.Guards(acts),
	})
	require.NoError(t, err)
	c := s.WorkForTest(t, queue, kit, func(w worker.Registry) { payments.Register(w, acts) })
	return provider, queued{c, queue}
}

func pay(t *testing.T, c queued, order string, cents int64) client.WorkflowRun {
	t.Helper()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: c.queue}, payments.Pay, payments.Order{ID: order, Cents: cents})
	require.NoError(t, err)
	return run
}

func result(t *testing.T, run client.WorkflowRun) (charge payments.Charge, err error) {
	t.Helper()
	err = run.Get(t.Context(), &charge)
	return charge, err
}
