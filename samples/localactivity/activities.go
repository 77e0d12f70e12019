package localactivity

import (
	"context"

	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
)

// Activities give numbers.
type Activities struct {
	Redis   *redis.Client
	Counter string // the name of the counter in Redis
}

// Guards say how the activities are guarded.
func Guards(acts *Activities) []interceptor.Guard {
	return []interceptor.Guard{
		interceptor.For(acts.NextNumber, interceptor.Policy{
			// An execution is not enough of a scope: a workflow task that is repeated
			// schedules its local activities anew.
			Scope: interceptor.ScopeNamespace,
			Key:   interceptor.KeyFrom(func(i Invoice) any { return i.Order }),
		}),
	}
}

// Register registers workflow and activities on a worker.
func Register(w worker.Registry, acts *Activities) {
	w.RegisterWorkflow(Number)
	w.RegisterActivity(acts)
}

// NextNumber draws the next number. Numbers must not have gaps, so an order that has
// one does not get another.
func (a *Activities) NextNumber(ctx context.Context, _ Invoice) (int64, error) {
	return a.Redis.Incr(ctx, a.Counter).Result()
}
