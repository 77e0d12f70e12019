// Command worker is the worker of the sample sqlc.
package main

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/sqlc"
)

func main() {
	stack.Work(func(ctx context.Context, s *stack.Stack) (worker.Worker, error) {
		if err := sqlc.Prepare(ctx, s.Postgres); err != nil {
			return nil, err
		}
		acts := &sqlc.Activities{DB: s.Postgres}
		kit, err := interceptor.New(interceptor.Options{
			Redis:  s.Redis,
			Store:  primitives.Options{Prefix: "sqlc"},
			Guards: sqlc.Guards(acts),
		})
		if err != nil {
			return nil, err
		}
		c, err := s.Dial(func(o *client.Options) { o.Plugins = []client.Plugin{kit.Plugin()} })
		if err != nil {
			return nil, err
		}
		w := worker.New(c, sqlc.TaskQueue, worker.Options{})
		sqlc.Register(w, acts)
		return w, nil
	})
}
