package saga

import (
	"context"
	_ "embed" // the schema
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives"
)

// Activities move money.
type Activities struct {
	DB *pgxpool.Pool

	// BeforeUndone is called when the money is back, and nobody knows yet. Default: nothing.
	BeforeUndone func(t Transfer)
}

// keep is longer than anybody submits a transfer again.
const keep = 30 * 24 * time.Hour

// Guards say how the activities are guarded. A step and what undoes it share the resource:
// the account. The key of a step is the transfer, whoever submits it; a compensation has
// the default scope, because it is called again if the transfer fails again.
func Guards(acts *Activities) []interceptor.Guard {
	step := func(account func(Transfer) string) interceptor.Policy {
		return interceptor.Policy{
			Scope:     interceptor.ScopeNamespace,
			Key:       interceptor.KeyFrom(func(t Transfer) any { return t.ID }),
			Resource:  interceptor.ResourceFrom(func(t Transfer) string { return "account/" + account(t) }),
			Retention: keep,
		}
	}
	undo := func(step interceptor.Policy) interceptor.Policy {
		return interceptor.Policy{Resource: step.Resource, Retention: keep}
	}
	withdraw := step(func(t Transfer) string { return t.From })
	deposit := step(func(t Transfer) string { return t.To })
	return []interceptor.Guard{
		interceptor.For(acts.Withdraw, withdraw), interceptor.For(acts.UndoWithdraw, undo(withdraw)),
		interceptor.For(acts.Deposit, deposit), interceptor.For(acts.UndoDeposit, undo(deposit)),
	}
}

// Register registers workflow and activities on a worker.
func Register(w worker.Registry, acts *Activities) {
	w.RegisterWorkflow(Move)
	w.RegisterActivity(acts.Withdraw)
	w.RegisterActivity(acts.Deposit)
	w.RegisterActivity(acts.Notify)
	w.RegisterActivity(acts.UndoWithdraw)
	w.RegisterActivity(acts.UndoDeposit)
}

// The effects of one transfer, in the kit's ledger.
const (
	withdrawn, withdrawalUndone = "withdraw", "undo withdraw"
	deposited, depositUndone    = "deposit", "undo deposit"
)

// Withdraw takes the money from one account.
func (a *Activities) Withdraw(ctx context.Context, t Transfer) error {
	attempt, _ := interceptor.Attempt(ctx)
	return a.book(ctx, attempt.Key.String(), withdrawn, t.From, -t.Cents)
}

// Deposit gives it to the other.
func (a *Activities) Deposit(ctx context.Context, t Transfer) error {
	attempt, _ := interceptor.Attempt(ctx)
	return a.book(ctx, attempt.Key.String(), deposited, t.To, t.Cents)
}

// UndoWithdraw undoes Withdraw.
func (a *Activities) UndoWithdraw(ctx context.Context, t Transfer) error {
	undone, err := interceptor.Undo(ctx, a.Withdraw, t)
	if errors.Is(err, primitives.ErrMismatch) {
		return nil // another transfer has this id, and this one has not happened
	}
	if err != nil {
		return err
	}
	return a.takeBack(ctx, undone, withdrawn, withdrawalUndone, t, t.From, t.Cents)
}

// UndoDeposit undoes Deposit.
func (a *Activities) UndoDeposit(ctx context.Context, t Transfer) error {
	undone, err := interceptor.Undo(ctx, a.Deposit, t)
	if errors.Is(err, primitives.ErrMismatch) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.takeBack(ctx, undone, deposited, depositUndone, t, t.To, -t.Cents)
}

// Notify needs no guard here. It fails for good while the receiver's address is missing.
func (a *Activities) Notify(ctx context.Context, t Transfer) error {
	var reachable bool
	err := a.DB.QueryRow(ctx, "SELECT reachable FROM saga_accounts WHERE name = $1", t.To).Scan(&reachable)
	if err == nil && !reachable {
		return temporal.NewNonRetryableApplicationError("nobody can be told", "Unreachable", nil)
	}
	return err
}

// takeBack books the opposite of an effect, if that has happened, once. The ledger says
// whether it has, and the key says which of the transfer's submissions is meant.
func (a *Activities) takeBack(ctx context.Context, undone interceptor.Undone, effect, opposite string, t Transfer, account string, cents int64) error {
	key := undone.Key.String()
	_, err := pgxfence.Lookup[int64](ctx, a.DB, pgxfence.Effect{Key: key, Name: effect})
	if errors.Is(err, pgxfence.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	err = a.book(ctx, key, opposite, account, cents)
	if err == nil && a.BeforeUndone != nil {
		a.BeforeUndone(t)
	}
	return err
}

var errClosed = temporal.NewNonRetryableApplicationError("the account is closed", "Closed", nil)

// book adds to an account, once for each key and effect, under the fence.
func (a *Activities) book(ctx context.Context, key, effect, account string, cents int64) error {
	_, err := pgxfence.Once(ctx, a.DB, pgxfence.Effect{Key: key, Name: effect}, func(tx pgx.Tx) (balance int64, err error) {
		err = tx.QueryRow(ctx, "UPDATE saga_accounts SET balance = balance + $2 WHERE name = $1 AND NOT closed RETURNING balance",
			account, cents).Scan(&balance)
		if errors.Is(err, pgx.ErrNoRows) {
			err = errClosed
		}
		return balance, err
	})
	return err
}

//go:embed schema.sql
var schema string

// Prepare creates the tables, and two accounts. The second one is closed.
func Prepare(ctx context.Context, db *pgxpool.Pool) error {
	if err := pgxfence.Migrate(ctx, db); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, schema); err != nil {
		return err
	}
	_, err := db.Exec(ctx, "INSERT INTO saga_accounts VALUES ('jo', 500, false), ('al', 0, true) ON CONFLICT DO NOTHING")
	return err
}

// Open opens an account.
func Open(ctx context.Context, db *pgxpool.Pool, account string) error {
	_, err := db.Exec(ctx, "UPDATE saga_accounts SET closed = false WHERE name = $1", account)
	return err
}
