package primitives_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// open returns a store on a Redis that lives in this process, as examples need.
func open() (store *primitives.Store, done func()) {
	server := must(miniredis.Run())
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	store = must(primitives.New(client, primitives.Options{Prefix: "shop", Timeout: time.Minute}))
	return store, func() { _ = client.Close(); server.Close() }
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A repeated call gets the result of the first, and the body does not run again.
func ExampleGuard_Do() {
	store, done := open()
	defer done()
	guard := must(primitives.NewGuard(store, primitives.GuardOptions{LeaseTTL: 30 * time.Second}))
	op := primitives.Op{Key: must(primitives.NewKey("charge", "order-7")), Resource: "account/42"}

	for range 2 {
		result, err := guard.Do(context.Background(), op, func(ctx context.Context) ([]byte, error) {
			token, err := fence.ForResource(ctx, "account/42")
			fmt.Println("charging; a token to write with:", token.Valid())
			return []byte("receipt 1001"), err
		})
		fmt.Println(result.Outcome, string(result.Memo), err)
	}
	// Output:
	// charging; a token to write with: true
	// begun receipt 1001 <nil>
	// replayed receipt 1001 <nil>
}

func ExampleDo() {
	store, done := open()
	defer done()
	guard := must(primitives.NewGuard(store, primitives.GuardOptions{}))
	op := primitives.Op{Key: must(primitives.NewKey("charge", "order-7"))}

	type receipt struct {
		Number int
		Cents  int64
	}
	for range 2 {
		r, err := primitives.Do(context.Background(), guard, op, func(context.Context) (receipt, error) {
			fmt.Println("charging")
			return receipt{Number: 1001, Cents: 999}, nil
		})
		fmt.Printf("%+v %v\n", r, err)
	}
	// Output:
	// charging
	// {Number:1001 Cents:999} <nil>
	// {Number:1001 Cents:999} <nil>
}

// A lease without a record: one at a time, as often as it is called.
func ExampleStore_Hold() {
	store, done := open()
	defer done()
	ctx := context.Background()

	err := store.Hold(ctx, "report/daily", primitives.LeaseOptions{Holder: "host 1"}, func(ctx context.Context) error {
		_, err := store.TryAcquire(ctx, "report/daily", primitives.LeaseOptions{Holder: "host 2"})
		var busy *primitives.BusyError
		if errors.As(err, &busy) {
			fmt.Println("busy:", busy.Holder)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// busy: host 1
	// <nil>
}

// A record without a lease: for work that is short against its TTL.
func ExampleStore_TryBegin() {
	store, done := open()
	defer done()
	ctx := context.Background()
	op := primitives.Op{Key: must(primitives.NewKey("mail", "order-7")), Holder: "host 1"}

	start := must(store.TryBegin(ctx, op, primitives.RecordOptions{TTL: time.Minute}))
	_, err := store.TryBegin(ctx, op, primitives.RecordOptions{})
	fmt.Println(start.Outcome, errors.Is(err, primitives.ErrBusy))

	fmt.Println(start.Claim.Complete(ctx, []byte("sent")))
	again := must(store.TryBegin(ctx, op, primitives.RecordOptions{}))
	fmt.Println(again.Outcome, string(again.Memo))
	// Output:
	// begun true
	// <nil>
	// replayed sent
}

// A holder that was overtaken cannot write any more.
func ExampleGate_SetIfFresh() {
	store, done := open()
	defer done()
	ctx := context.Background()
	gate := must(primitives.NewGate(store, primitives.GateOptions{}))

	first := must(store.Acquire(ctx, "account/42", primitives.LeaseOptions{}))
	if err := first.Release(ctx); err != nil {
		fmt.Println(err)
	}
	second := must(store.Acquire(ctx, "account/42", primitives.LeaseOptions{}))

	fmt.Println(gate.SetIfFresh(ctx, second.Token(), "balance", []byte("50"), time.Hour))
	err := gate.SetIfFresh(ctx, first.Token(), "balance", []byte("70"), time.Hour)
	fmt.Println(errors.Is(err, fence.ErrStale))
	value, _, err := gate.Get(ctx, "account/42", "balance")
	fmt.Println(string(value), err)
	// Output:
	// <nil>
	// true
	// 50 <nil>
}
