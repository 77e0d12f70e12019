package enforce

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
)

// orders is the table, with the trigger of Enforce on it.
var orders = pgxfence.Table{Name: pgx.Identifier{"enforced_orders"}, Enforced: true}

// Activities ship orders.
type Activities struct{ DB *pgxpool.Pool }

// Guards say how the activities are guarded.
func Guards(acts *Activities) []interceptor.Guard {
	policy := interceptor.Policy{Resource: interceptor.ResourceFrom(func(o Order) string { return "order/" + o.ID })}
	return []interceptor.Guard{interceptor.For(acts.Fenced, policy), interceptor.For(acts.Forgetful, policy)}
}

// Register registers workflow and activities on a worker.
func Register(w worker.Registry, acts *Activities) {
	w.RegisterWorkflow(Ship)
	w.RegisterActivity(acts)
}

// Fenced does it right. Without a guard it sends nothing: there is no token.
func (a *Activities) Fenced(ctx context.Context, o Order) error {
	return orders.Update(ctx, a.DB, pgxfence.Change{
		Key: pgxfence.Values{"id": o.ID},
		Set: pgxfence.Values{"status": "shipped"},
	})
}

// Forgetful was written by somebody who did not know of the helper. No review found
// it; the database does.
func (a *Activities) Forgetful(ctx context.Context, o Order) error {
	_, err := a.DB.Exec(ctx, "UPDATE enforced_orders SET status = 'shipped' WHERE id = $1", o.ID)
	return err
}

// Prepare creates the table with an order in it and puts the trigger on it. In the
// other order the insert would be refused, unless it is by the bypass role.
func Prepare(ctx context.Context, db *pgxpool.Pool, order string) error {
	if err := pgxfence.Migrate(ctx, db); err != nil {
		return err
	}
	_, err := db.Exec(ctx, `CREATE TABLE IF NOT EXISTS enforced_orders (
		id text PRIMARY KEY, status text NOT NULL DEFAULT 'open', fence_token bigint)`)
	if err != nil {
		return err
	}
	if err := pgxfence.Unenforce(ctx, db, orders); err != nil { // of a run before
		return err
	}
	_, err = db.Exec(ctx, "INSERT INTO enforced_orders (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET status = 'open'", order)
	if err != nil {
		return err
	}
	return pgxfence.Enforce(ctx, db, orders, "")
}
