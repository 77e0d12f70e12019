package main

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// Batch is a batch of invoices to pay.
type Batch struct {
	ID       string
	Invoices int

	// Heartbeat is how long Temporal waits for a sign of life before it gives the
	// attempt to another worker.
	Heartbeat time.Duration
}

// Receipt says what a batch came to.
type Receipt struct {
	Invoices int
	Cents    int64
	PaidBy   string // the worker that finished it
}

// PayBatch is the workflow: one guarded activity, retried until it succeeds.
func PayBatch(ctx workflow.Context, batch Batch) (Receipt, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout:    time.Minute,
		ScheduleToCloseTimeout: time.Hour,
		HeartbeatTimeout:       batch.Heartbeat,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 1},
	})
	var receipt Receipt
	err := workflow.ExecuteActivity(ctx, activityName, batch).Get(ctx, &receipt)
	return receipt, err
}
