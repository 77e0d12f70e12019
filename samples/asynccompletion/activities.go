package asynccompletion

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
)

// Activities ask people.
type Activities struct{ DB *pgxpool.Pool }

// Guards say how the activities are guarded.
func Guards(acts *Activities) []interceptor.Guard {
	return []interceptor.Guard{
		interceptor.For(acts.AskPerson, interceptor.Policy{
			Scope: interceptor.ScopeNamespace,
			Key:   interceptor.KeyFrom(func(r Refund) any { return r.Order }),
		}),
	}
}

// Register registers workflow and activities on a worker.
func Register(w worker.Registry, acts *Activities) {
	w.RegisterWorkflow(Decide)
	w.RegisterActivity(acts)
}

// AskPerson puts the question where a person finds it, with all that is needed to
// complete this activity: Temporal's task token, and the claim on the operation.
func (a *Activities) AskPerson(ctx context.Context, r Refund) (Decision, error) {
	pending, err := interceptor.Pending(ctx)
	if err != nil {
		return Decision{}, err
	}
	_, err = a.DB.Exec(ctx, `INSERT INTO questions ("order", pending) VALUES ($1, $2)
		ON CONFLICT ("order") DO UPDATE SET pending = excluded.pending`, r.Order, pending)
	if err != nil {
		return Decision{}, err
	}
	return Decision{}, activity.ErrResultPending
}

// Answer completes the activity, from any process: the decision is stored for
// whoever asks again, and reported to Temporal.
func Answer(ctx context.Context, kit *interceptor.Interceptor, c client.Client, db *pgxpool.Pool, order string, d Decision) error {
	var pending []byte
	if err := db.QueryRow(ctx, `SELECT pending FROM questions WHERE "order" = $1`, order).Scan(&pending); err != nil {
		return err
	}
	return kit.Complete(ctx, c, pending, d, nil)
}

// Prepare creates the table of open questions. What is in it completes activities:
// guard it like a password.
func Prepare(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, `CREATE TABLE IF NOT EXISTS questions ("order" text PRIMARY KEY, pending bytea NOT NULL)`)
	return err
}
