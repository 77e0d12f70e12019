package main

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
	"github.com/fencekit/fencekit-go/samples/internal/timeline"
)

const activityName = "PayInvoices"

// Activities pay invoices.
type Activities struct {
	Worker string
	Books  Books
	Stage  *stage // tells the story and is told to go on
}

// policy is all that the guard is told.
func policy(books fencedBooks) interceptor.Policy {
	return interceptor.Policy{
		// Once for everybody: another workflow that asks gets the same receipt.
		Scope: interceptor.ScopeNamespace,
		Key:   interceptor.KeyFrom(func(b Batch) any { return b.ID }),
		// What is written, and so what one token protects.
		Resource: interceptor.ResourceFrom(func(b Batch) string { return resource(b.ID) }),
		// Much longer than the demo lasts: a retry does not wait for it.
		LeaseTTL: 30 * time.Second,
		// The new token reaches the database before the body reads how far the last
		// attempt has come, so nothing that is older can be written after that.
		Seal: pgxfence.Sealer(books.pool),
	}
}

func resource(batch string) string { return "batch/" + batch }

// PayInvoices pays the invoices of a batch, one by one, and notes after each how far
// it has come. An attempt that follows a crash goes on from there.
func (a *Activities) PayInvoices(ctx context.Context, batch Batch) (Receipt, error) {
	defer keepBeating(ctx)()
	token, _ := fence.FromContext(ctx) // none without the kit
	attempt := int(activity.GetInfo(ctx).Attempt)
	tell := func(e timeline.Event) {
		e.Attempt, e.Token = attempt, token.Value
		a.Stage.tell(e)
	}
	tell(timeline.Event{Kind: timeline.Run})
	defer tell(timeline.Event{Kind: timeline.Ended})

	progress, err := a.Books.Progress(ctx, batch.ID)
	if err != nil {
		return Receipt{}, err
	}
	for progress.Done < batch.Invoices {
		progress.Done++
		progress.Cents += price(progress.Done)
		tell(timeline.Event{Kind: timeline.Next, Step: progress.Done})
		if err := a.Stage.wait(ctx); err != nil {
			return Receipt{}, err
		}
		if err := a.pay(ctx, batch, progress, tell); err != nil {
			return Receipt{}, err
		}
	}
	return Receipt{Invoices: progress.Done, Cents: progress.Cents, PaidBy: a.Worker}, nil
}

func (a *Activities) pay(ctx context.Context, batch Batch, p Progress, tell func(timeline.Event)) error {
	// A payment that has begun is carried through, whatever becomes of the attempt. So
	// it is not the context that keeps a worker that wakes up late from writing: it
	// would, if it came in time. What is in flight already never does.
	err := a.Books.Pay(context.WithoutCancel(ctx), batch.ID, p, a.Worker)
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		tell(timeline.Event{Kind: timeline.Refused, Step: p.Done, Current: stale.Current})
	case err == nil:
		tell(timeline.Event{Kind: timeline.Wrote, Step: p.Done, Done: p.Done})
	}
	return err
}

// keepBeating heartbeats until the returned function is called: Temporal finds out
// when the process stands still.
func keepBeating(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	go func() {
		beat := time.NewTicker(200 * time.Millisecond)
		defer beat.Stop()
		for {
			activity.RecordHeartbeat(ctx)
			select {
			case <-done:
				return
			case <-beat.C:
			}
		}
	}()
	return func() { close(done) }
}
