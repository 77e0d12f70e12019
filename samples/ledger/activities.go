package ledger

import (
	"context"
	_ "embed" // the schema

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
)

// Activities book deposits.
type Activities struct {
	DB *pgxpool.Pool

	// AfterCommit is called when the deposit is committed and nobody knows yet: the
	// worst moment to die. Default: nothing.
	AfterCommit func()
}

const effect = "deposit"

// Guards say how the activities are guarded.
func Guards(acts *Activities) []interceptor.Guard {
	return []interceptor.Guard{
		interceptor.For(acts.Deposit, interceptor.Policy{
			Scope:    interceptor.ScopeNamespace,
			Key:      interceptor.KeyFrom(func(d Deposit) any { return d.ID }),
			Resource: interceptor.ResourceFrom(func(d Deposit) string { return "account/" + d.Account }),
			// Asked before Redis: what is booked stays booked, also if Redis has
			// lost everything.
			Ledger: pgxfence.Ledger[Booking](acts.DB, effect),
		}),
	}
}

// Register registers workflow and activities on a worker.
func Register(w worker.Registry, acts *Activities) {
	w.RegisterWorkflow(Book)
	w.RegisterActivity(acts)
}

// Deposit books the deposit. The update is relative: done twice it would be wrong.
// Once commits it together with a row in the kit's ledger, so it cannot be.
func (a *Activities) Deposit(ctx context.Context, d Deposit) (Booking, error) {
	attempt, _ := interceptor.Attempt(ctx)
	done, err := pgxfence.Once(ctx, a.DB, pgxfence.Effect{Key: attempt.Key.String(), Name: effect},
		func(tx pgx.Tx) (b Booking, err error) {
			err = tx.QueryRow(ctx, "UPDATE ledger_accounts SET balance = balance + $2 WHERE name = $1 RETURNING balance",
				d.Account, d.Cents).Scan(&b.Balance)
			return b, err
		})
	if err == nil && !done.Replayed && a.AfterCommit != nil {
		a.AfterCommit()
	}
	return done.Value, err
}

//go:embed schema.sql
var schema string

// Prepare creates the tables and an account.
func Prepare(ctx context.Context, db *pgxpool.Pool, account string) error {
	if err := pgxfence.Migrate(ctx, db); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, schema); err != nil {
		return err
	}
	_, err := db.Exec(ctx, "INSERT INTO ledger_accounts (name) VALUES ($1) ON CONFLICT DO NOTHING", account)
	return err
}
