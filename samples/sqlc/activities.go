package sqlc

import (
	"context"
	_ "embed" // the schema

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/samples/sqlc/bankdb"
)

// Activities close accounts.
type Activities struct{ DB *pgxpool.Pool }

// Guards say how the activities are guarded. Both change accounts, so they share a
// resource and with it a lease and its tokens.
func Guards(acts *Activities) []interceptor.Guard {
	policy := interceptor.Policy{
		Resource: interceptor.ResourceFrom(func(c Closing) string { return "account/" + c.Account }),
		Seal:     pgxfence.Sealer(acts.DB),
	}
	return []interceptor.Guard{interceptor.For(acts.MoveAll, policy), interceptor.For(acts.SetClosed, policy)}
}

// Register registers workflow and activities on a worker.
func Register(w worker.Registry, acts *Activities) {
	w.RegisterWorkflow(Close)
	w.RegisterActivity(acts)
}

// SetClosed sets values that are absolute: doing it again changes nothing, so a sealed
// transaction is enough.
func (a *Activities) SetClosed(ctx context.Context, c Closing) error {
	return pgxfence.InTx(ctx, a.DB, func(tx pgx.Tx) error {
		return bankdb.New(tx).SetStatus(ctx, bankdb.SetStatusParams{Name: c.Account, Status: "closed"})
	})
}

// MoveAll adds and subtracts, which must happen once: Once is InTx with a ledger.
func (a *Activities) MoveAll(ctx context.Context, c Closing) (int64, error) {
	attempt, _ := interceptor.Attempt(ctx)
	moved, err := pgxfence.Once(ctx, a.DB, pgxfence.Effect{Key: attempt.Key.String(), Name: "move"},
		func(tx pgx.Tx) (int64, error) {
			q := bankdb.New(tx)
			from, err := q.GetAccount(ctx, c.Account)
			if err != nil {
				return 0, err
			}
			if _, err := q.AddToBalance(ctx, bankdb.AddToBalanceParams{Name: c.Account, Cents: -from.Balance}); err != nil {
				return 0, err
			}
			_, err = q.AddToBalance(ctx, bankdb.AddToBalanceParams{Name: c.To, Cents: from.Balance})
			return from.Balance, err
		})
	return moved.Value, err
}

//go:embed bankdb/schema.sql
var schema string

// Prepare creates the tables and two accounts.
func Prepare(ctx context.Context, db *pgxpool.Pool) error {
	if err := pgxfence.Migrate(ctx, db); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, schema); err != nil {
		return err
	}
	for name, balance := range map[string]int64{"old": 500, "new": 0} {
		if err := bankdb.New(db).CreateAccount(ctx, bankdb.CreateAccountParams{Name: name, Balance: balance}); err != nil {
			return err
		}
	}
	return nil
}
