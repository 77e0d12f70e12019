// Command starter books a deposit of 100.
package main

import (
	"context"
	"flag"
	"fmt"

	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/ledger"
)

func main() {
	id := flag.String("id", "d-1", "the deposit")
	flag.Parse()
	stack.Run(func(ctx context.Context, c client.Client) error {
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: ledger.TaskQueue},
			ledger.Book, ledger.Deposit{ID: *id, Account: "jo", Cents: 100})
		if err != nil {
			return err
		}
		var b ledger.Booking
		if err := run.Get(ctx, &b); err != nil {
			return err
		}
		fmt.Printf("deposit %s is booked, the balance was then %d\n", *id, b.Balance)
		return nil
	})
}
