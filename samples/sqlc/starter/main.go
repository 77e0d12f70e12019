// Command starter closes an account.
package main

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/sqlc"
)

func main() {
	stack.Run(func(ctx context.Context, c client.Client) error {
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: sqlc.TaskQueue},
			sqlc.Close, sqlc.Closing{Account: "old", To: "new"})
		if err != nil {
			return err
		}
		if err := run.Get(ctx, nil); err != nil {
			return err
		}
		fmt.Println("the account is empty and closed")
		return nil
	})
}
