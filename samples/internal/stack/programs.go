package stack

import (
	"context"
	"fmt"
	"os"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
)

// Work runs a sample's worker until it is interrupted: it starts what servers are
// missing, has the sample build its worker, and says how the starter finds them.
func Work(build func(ctx context.Context, s *Stack) (worker.Worker, error)) {
	Main(func(ctx context.Context) error {
		s, err := Start(ctx, Config{Temporal: true, Postgres: true, UI: true})
		if err != nil {
			return err
		}
		defer s.Close()
		w, err := build(ctx, s)
		if err != nil {
			return err
		}
		if err := w.Start(); err != nil {
			return err
		}
		defer w.Stop()
		s.Announce()
		fmt.Fprintln(os.Stderr, "The worker is at work. Ctrl-C ends it.")
		<-ctx.Done()
		return nil
	})
}

// Run runs a sample's starter: it connects to servers that are up.
func Run(start func(ctx context.Context, c client.Client) error) {
	Main(func(ctx context.Context) error {
		s, err := Connect(ctx, Config{Temporal: true})
		if err != nil {
			return err
		}
		defer s.Close()
		c, err := s.Dial()
		if err != nil {
			return err
		}
		return start(ctx, c)
	})
}
