// Command starter has an order paid, by two workflows at once.
package main

import (
	"context"
	"flag"
	"fmt"

	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/payments"
)

func main() {
	order := flag.String("order", "A1", "the order")
	cents := flag.Int64("cents", 4200, "its amount")
	flag.Parse()
	stack.Run(func(ctx context.Context, c client.Client) error {
		var runs []client.WorkflowRun
		for range 2 {
			run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: payments.TaskQueue},
				payments.Pay, payments.Order{ID: *order, Cents: *cents})
			if err != nil {
				return err
			}
			runs = append(runs, run)
		}
		for _, run := range runs {
			var charge payments.Charge
			if err := run.Get(ctx, &charge); err != nil {
				return err
			}
			fmt.Printf("workflow %s: charge %s of %d cents\n", run.GetID(), charge.ID, charge.Cents)
		}
		return nil
	})
}
