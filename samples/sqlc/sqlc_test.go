package sqlc_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/sqlc"
	"github.com/fencekit/fencekit-go/samples/sqlc/bankdb"
)

func TestGeneratedQueriesUnderAFence(t *testing.T) {
	t.Parallel()
	s := stack.ForTest(t, stack.Config{Temporal: true, Postgres: true})
	require.NoError(t, sqlc.Prepare(t.Context(), s.Postgres))
	queue, acts := stack.Unique(sqlc.TaskQueue), &sqlc.Activities{DB: s.Postgres}
	kit, err := interceptor.New(interceptor.Options{
		Redis: s.Redis, Store: primitives.Options{Prefix: queue}, Guards: sqlc.Guards(acts),
	})
	require.NoError(t, err)
	c := s.WorkForTest(t, queue, kit, func(w worker.Registry) { sqlc.Register(w, acts) })
	closing := sqlc.Closing{Account: "old", To: "new"}
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, sqlc.Close, closing)
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	require.Equal(t, bankdb.SqlcAccount{Name: "old", Status: "closed"}, account(t, s.Postgres, "old"))
	require.Equal(t, bankdb.SqlcAccount{Name: "new", Balance: 500, Status: "open"}, account(t, s.Postgres, "new"))

	// A holder from before is refused, with the very same generated code.
	old := fence.NewContext(t.Context(), fence.Token{Resource: "account/old", Value: 1, Owner: "somebody"})
	err = reopen(old, s.Postgres)
	require.ErrorIs(t, err, fence.ErrStale)
	require.Equal(t, "closed", account(t, s.Postgres, "old").Status)
}

func reopen(ctx context.Context, db *pgxpool.Pool) error {
	return pgxfence.InTx(ctx, db, func(tx pgx.Tx) error {
		return bankdb.New(tx).SetStatus(ctx, bankdb.SetStatusParams{Name: "old", Status: "open"})
	})
}

func account(t *testing.T, db *pgxpool.Pool, name string) bankdb.SqlcAccount {
	t.Helper()
	a, err := bankdb.New(db).GetAccount(t.Context(), name)
	require.NoError(t, err)
	return a
}
