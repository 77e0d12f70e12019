// Command idempotency shows a job that is delivered more than once and done once. No
// Temporal in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

func main() {
	stack.Main(func(ctx context.Context) error {
		s, err := stack.Start(ctx, stack.Config{})
		if err != nil {
			return err
		}
		defer s.Close()
		order := fmt.Sprintf("order-%d", time.Now().UnixNano())
		return run(ctx, s.Redis, order, os.Stdout)
	})
}

// job is a message of a queue that delivers at least once.
type job struct{ Order string }

// handler handles jobs.
type handler struct {
	guard *primitives.Guard
	mails atomic.Int64 // sent
}

func newHandler(rdb *redis.Client) (*handler, error) {
	store, err := primitives.New(rdb, primitives.Options{Prefix: "idempotency"})
	if err != nil {
		return nil, err
	}
	guard, err := primitives.NewGuard(store, primitives.GuardOptions{Wait: 10 * time.Second})
	return &handler{guard: guard}, err
}

// handle sends the order's confirmation, once, and returns its number.
func (h *handler) handle(ctx context.Context, j job) (primitives.Outcome, string, error) {
	key, err := primitives.NewKey("confirm", j.Order)
	if err != nil {
		return "", "", err
	}
	r, err := h.guard.Do(ctx, primitives.Op{Key: key}, func(context.Context) ([]byte, error) {
		return fmt.Appendf(nil, "mail-%d", h.mails.Add(1)), nil
	})
	return r.Outcome, string(r.Memo), err
}

func run(ctx context.Context, rdb *redis.Client, order string, out io.Writer) error {
	h, err := newHandler(rdb)
	if err != nil {
		return err
	}
	j := job{Order: order}
	for _, how := range []string{"delivered", "delivered again"} {
		outcome, mail, err := h.handle(ctx, j)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-16s %-9s %s\n", how, outcome, mail)
	}
	if err := h.storm(ctx, job{Order: order + "-b"}, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "2 orders, 12 deliveries, %d mails\n", h.mails.Load())
	return nil
}

// storm delivers a job ten times at once.
func (h *handler) storm(ctx context.Context, j job, out io.Writer) error {
	const deliveries = 10
	outcomes, errs := make([]primitives.Outcome, deliveries), make([]error, deliveries)
	var all sync.WaitGroup
	for i := range deliveries {
		all.Go(func() { outcomes[i], _, errs[i] = h.handle(ctx, j) })
	}
	all.Wait()
	count := map[primitives.Outcome]int{}
	for _, o := range outcomes {
		count[o]++
	}
	fmt.Fprintf(out, "ten at once      %d begun, %d replayed\n", count[primitives.Begun], count[primitives.Replayed])
	return errors.Join(errs...)
}
