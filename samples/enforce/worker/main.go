// Command worker is the worker of the sample enforce.
package main

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/enforce"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

func main() {
	stack.Work(func(ctx context.Context, s *stack.Stack) (worker.Worker, error) {
		if err := enforce.Prepare(ctx, s.Postgres, "A1"); err != nil {
			return nil, err
		}
		acts := &enforce.Activities{DB: s.Postgres}
		kit, err := interceptor.New(interceptor.Options{
			Redis:  s.Redis,
			Store:  primitives.Options{Prefix: "enforce"},
			Guards: enforce.Guards(acts),
		})
		if err != nil {
			return nil, err
		}
		c, err := s.Dial(func(o *client.Options) { o.Plugins = []client.Plugin{kit.Plugin()} })
		if err != nil {
			return nil, err
		}
		if err := startForgotten(ctx, s, acts); err != nil {
			return nil, err
		}
		w := worker.New(c, enforce.TaskQueue, worker.Options{})
		enforce.Register(w, acts)
		return w, nil
	})
}

// startForgotten starts the worker that nobody has guarded.
func startForgotten(ctx context.Context, s *stack.Stack, acts *enforce.Activities) error {
	c, err := s.Dial()
	if err != nil {
		return err
	}
	w := worker.New(c, enforce.ForgottenWorkers, worker.Options{})
	enforce.Register(w, acts)
	context.AfterFunc(ctx, w.Stop)
	return w.Start()
}
