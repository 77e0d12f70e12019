// Command starter has an order shipped, in four ways of which one is right.
package main

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/samples/enforce"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

func main() {
	stack.Run(func(ctx context.Context, c client.Client) error {
		for _, o := range []enforce.Order{
			{ID: "A1", Activity: "Forgetful", Queue: enforce.TaskQueue},
			{ID: "A1", Activity: "Forgetful", Queue: enforce.ForgottenWorkers},
			{ID: "A1", Activity: "Fenced", Queue: enforce.ForgottenWorkers},
			{ID: "A1", Activity: "Fenced", Queue: enforce.TaskQueue},
		} {
			run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: enforce.TaskQueue}, enforce.Ship, o)
			if err != nil {
				return err
			}
			fmt.Printf("%s on %s: %v\n", o.Activity, o.Queue, run.Get(ctx, nil))
		}
		return nil
	})
}
