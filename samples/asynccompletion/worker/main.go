// Command worker is the worker of the sample asynccompletion.
package main

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/asynccompletion"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

func main() {
	stack.Work(func(ctx context.Context, s *stack.Stack) (worker.Worker, error) {
		if err := asynccompletion.Prepare(ctx, s.Postgres); err != nil {
			return nil, err
		}
		acts := &asynccompletion.Activities{DB: s.Postgres}
		kit, err := interceptor.New(interceptor.Options{
			Redis:  s.Redis,
			Store:  primitives.Options{Prefix: "asynccompletion"},
			Guards: asynccompletion.Guards(acts),
		})
		if err != nil {
			return nil, err
		}
		c, err := s.Dial(func(o *client.Options) { o.Plugins = []client.Plugin{kit.Plugin()} })
		if err != nil {
			return nil, err
		}
		w := worker.New(c, asynccompletion.TaskQueue, worker.Options{})
		asynccompletion.Register(w, acts)
		return w, nil
	})
}
