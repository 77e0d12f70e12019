// Command worker is the worker of the sample saga.
package main

import (
	"context"
	"flag"
	"os"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/saga"
)

func main() {
	die := flag.Bool("die", false, "exit when the money is back, before the compensation is completed")
	open := flag.Bool("open", false, "open the account of al first")
	flag.Parse()
	stack.Work(func(ctx context.Context, s *stack.Stack) (worker.Worker, error) {
		if err := saga.Prepare(ctx, s.Postgres); err != nil {
			return nil, err
		}
		if *open {
			if err := saga.Open(ctx, s.Postgres, "al"); err != nil {
				return nil, err
			}
		}
		acts := &saga.Activities{DB: s.Postgres}
		if *die {
			acts.BeforeUndone = func(saga.Transfer) { os.Exit(1) }
		}
		kit, err := interceptor.New(interceptor.Options{
			Redis:  s.Redis,
			Store:  primitives.Options{Prefix: "saga"},
			Guards: saga.Guards(acts),
		})
		if err != nil {
			return nil, err
		}
		c, err := s.Dial(func(o *client.Options) { o.Plugins = []client.Plugin{kit.Plugin()} })
		if err != nil {
			return nil, err
		}
		w := worker.New(c, saga.TaskQueue, worker.Options{})
		saga.Register(w, acts)
		return w, nil
	})
}
