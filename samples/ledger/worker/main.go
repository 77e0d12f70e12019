// Command worker is the worker of the sample ledger.
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
	"github.com/fencekit/fencekit-go/samples/ledger"
)

func main() {
	die := flag.Bool("die", false, "exit when the first deposit is committed, before anybody is told")
	flag.Parse()
	stack.Work(func(ctx context.Context, s *stack.Stack) (worker.Worker, error) {
		if err := ledger.Prepare(ctx, s.Postgres, "jo"); err != nil {
			return nil, err
		}
		acts := &ledger.Activities{DB: s.Postgres}
		if *die {
			acts.AfterCommit = func() { os.Exit(1) }
		}
		kit, err := interceptor.New(interceptor.Options{
			Redis:  s.Redis,
			Store:  primitives.Options{Prefix: "ledger"},
			Guards: ledger.Guards(acts),
		})
		if err != nil {
			return nil, err
		}
		c, err := s.Dial(func(o *client.Options) { o.Plugins = []client.Plugin{kit.Plugin()} })
		if err != nil {
			return nil, err
		}
		w := worker.New(c, ledger.TaskQueue, worker.Options{})
		ledger.Register(w, acts)
		return w, nil
	})
}
