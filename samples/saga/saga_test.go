package saga_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/saga"
)

// N15: a transfer fails, at its second step and at its third, and a compensation dies on the
// way; submitted again it moves its money, once. Money is counted after every run.
func TestASagaThatWasUndoneIsDoneAgain(t *testing.T) {
	t.Parallel()
	s := stack.ForTest(t, stack.Config{Temporal: true, Postgres: true})
	require.NoError(t, saga.Prepare(t.Context(), s.Postgres))
	queue := stack.Unique(saga.TaskQueue)
	var deaths atomic.Int64
	acts := &saga.Activities{DB: s.Postgres, BeforeUndone: func(saga.Transfer) {
		if deaths.Add(1)%2 == 1 { // every first attempt
			panic("it dies")
		}
	}}
	kit, err := interceptor.New(interceptor.Options{
		Redis: s.Redis, Store: primitives.Options{Prefix: queue}, Guards: saga.Guards(acts),
	})
	require.NoError(t, err)
	c := s.WorkForTest(t, queue, kit, func(w worker.Registry) { saga.Register(w, acts) })
	transfer := saga.Transfer{ID: queue, From: "jo", To: "al", Cents: 100}

	require.ErrorContains(t, submit(t, c, queue, transfer), "Closed")
	require.Equal(t, []int64{500, 0}, balances(t, s.Postgres))
	require.ErrorContains(t, submit(t, c, queue, transfer), "Closed", "it was run again, and undone again")
	require.Equal(t, []int64{500, 0}, balances(t, s.Postgres))

	require.NoError(t, saga.Open(t.Context(), s.Postgres, "al"))
	_, err = s.Postgres.Exec(t.Context(), "UPDATE saga_accounts SET reachable = false")
	require.NoError(t, err)
	require.ErrorContains(t, submit(t, c, queue, transfer), "Unreachable")
	require.Equal(t, []int64{500, 0}, balances(t, s.Postgres), "both steps are undone")
	require.EqualValues(t, 8, deaths.Load(), "four compensations had something to take back, and each has died once")

	_, err = s.Postgres.Exec(t.Context(), "UPDATE saga_accounts SET reachable = true")
	require.NoError(t, err)
	for range 2 { // the second is replayed
		require.NoError(t, submit(t, c, queue, transfer))
		require.Equal(t, []int64{400, 100}, balances(t, s.Postgres))
	}
}

// N15: one id with another amount is another transfer, which has not happened: its
// compensations leave the first one alone.
func TestAnotherTransferOfOneIDUndoesNothing(t *testing.T) {
	t.Parallel()
	s := stack.ForTest(t, stack.Config{Temporal: true, Postgres: true})
	require.NoError(t, saga.Prepare(t.Context(), s.Postgres))
	require.NoError(t, saga.Open(t.Context(), s.Postgres, "al"))
	queue := stack.Unique(saga.TaskQueue)
	acts := &saga.Activities{DB: s.Postgres}
	kit, err := interceptor.New(interceptor.Options{
		Redis: s.Redis, Store: primitives.Options{Prefix: queue}, Guards: saga.Guards(acts),
	})
	require.NoError(t, err)
	c := s.WorkForTest(t, queue, kit, func(w worker.Registry) { saga.Register(w, acts) })
	transfer := saga.Transfer{ID: queue, From: "jo", To: "al", Cents: 100}
	require.NoError(t, submit(t, c, queue, transfer))
	transfer.Cents = 50
	require.ErrorContains(t, submit(t, c, queue, transfer), interceptor.TypeMismatch)
	require.Equal(t, []int64{400, 100}, balances(t, s.Postgres))
	transfer.Cents = 100
	require.NoError(t, submit(t, c, queue, transfer))
	require.Equal(t, []int64{400, 100}, balances(t, s.Postgres))
}

func submit(t *testing.T, c client.Client, queue string, transfer saga.Transfer) error {
	t.Helper()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: transfer.WorkflowID(), TaskQueue: queue}, saga.Move, transfer)
	require.NoError(t, err)
	return run.Get(t.Context(), nil)
}

func balances(t *testing.T, db *pgxpool.Pool) []int64 {
	t.Helper()
	var all []int64
	require.NoError(t, db.QueryRow(context.Background(),
		"SELECT array_agg(balance ORDER BY name DESC) FROM saga_accounts").Scan(&all))
	return all
}
