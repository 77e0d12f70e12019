// Command starter has an invoice numbered.
package main

import (
	"context"
	"flag"
	"fmt"

	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/localactivity"
)

func main() {
	order := flag.String("order", "A1", "the order")
	flag.Parse()
	stack.Run(func(ctx context.Context, c client.Client) error {
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: localactivity.TaskQueue},
			localactivity.Number, localactivity.Invoice{Order: *order})
		if err != nil {
			return err
		}
		var n int64
		if err := run.Get(ctx, &n); err != nil {
			return err
		}
		fmt.Printf("the invoice of order %s has number %d\n", *order, n)
		return nil
	})
}
