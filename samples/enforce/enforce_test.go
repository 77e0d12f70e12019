package enforce_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/enforce"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

func TestNothingGetsPastTheFence(t *testing.T) {
	t.Parallel()
	s := stack.ForTest(t, stack.Config{Temporal: true, Postgres: true})
	require.NoError(t, enforce.Prepare(t.Context(), s.Postgres, "A1"))
	queue, forgotten := stack.Unique(enforce.TaskQueue), stack.Unique(enforce.ForgottenWorkers)
	acts := &enforce.Activities{DB: s.Postgres}
	kit, err := interceptor.New(interceptor.Options{
		Redis: s.Redis, Store: primitives.Options{Prefix: queue}, Guards: enforce.Guards(acts),
	})
	require.NoError(t, err)
	c := s.WorkForTest(t, queue, kit, func(w worker.Registry) { enforce.Register(w, acts) })
	s.WorkForTest(t, forgotten, nil, func(w worker.Registry) { enforce.Register(w, acts) })

	for _, ship := range []struct{ activity, queue, refusal, status string }{
		{"Forgetful", queue, "ZF002", "open"},
		{"Forgetful", forgotten, "ZF002", "open"},
		{"Fenced", forgotten, "no token", "open"},
		{"Fenced", queue, "", "shipped"},
	} {
		run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue},
			enforce.Ship, enforce.Order{ID: "A1", Activity: ship.activity, Queue: ship.queue})
		require.NoError(t, err)
		err = run.Get(t.Context(), nil)
		if ship.refusal == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, ship.refusal, "%+v", ship)
		}
		var status string
		require.NoError(t, s.Postgres.QueryRow(t.Context(), "SELECT status FROM enforced_orders").Scan(&status))
		require.Equal(t, ship.status, status, "%+v", ship)
	}
}
