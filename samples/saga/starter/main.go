// Command starter submits a transfer of 100 from jo to al.
package main

import (
	"context"
	"flag"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/saga"
)

func main() {
	id := flag.String("id", "t-1", "the transfer")
	flag.Parse()
	stack.Run(func(ctx context.Context, c client.Client) error {
		t := saga.Transfer{ID: *id, From: "jo", To: "al", Cents: 100}
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: t.WorkflowID(), TaskQueue: saga.TaskQueue,
			WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY}, saga.Move, t) // what has succeeded is not undone
		if err != nil {
			return err
		}
		if err := run.Get(ctx, nil); err != nil {
			fmt.Printf("transfer %s failed, and its money is back: %v\n", t.ID, err)
			return nil
		}
		fmt.Printf("transfer %s has moved %d\n", t.ID, t.Cents)
		return nil
	})
}
