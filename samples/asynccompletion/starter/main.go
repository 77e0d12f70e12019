// Command starter asks for a decision and waits for it.
package main

import (
	"context"
	"flag"
	"fmt"

	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/samples/asynccompletion"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

func main() {
	order := flag.String("order", "A1", "the order")
	flag.Parse()
	stack.Run(func(ctx context.Context, c client.Client) error {
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: asynccompletion.TaskQueue},
			asynccompletion.Decide, asynccompletion.Refund{Order: *order})
		if err != nil {
			return err
		}
		var d asynccompletion.Decision
		if err := run.Get(ctx, &d); err != nil {
			return err
		}
		fmt.Printf("order %s: approved %t, by %s\n", *order, d.Approved, d.By)
		return nil
	})
}
