// Package ledger books deposits: balance = balance + amount, which must happen once
// although its worker may die at any moment.
package ledger

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// TaskQueue is where the workers look for work.
const TaskQueue = "ledger"

// Deposit is what to book.
type Deposit struct {
	ID      string // the business's own
	Account string
	Cents   int64
}

// Booking is what it came to.
type Booking struct{ Balance int64 }

// Book books a deposit. Any number of workflows may be started for one.
func Book(ctx workflow.Context, d Deposit) (Booking, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout:    5 * time.Second,
		ScheduleToCloseTimeout: time.Hour,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond},
	})
	var b Booking
	err := workflow.ExecuteActivity(ctx, "Deposit", d).Get(ctx, &b)
	return b, err
}
