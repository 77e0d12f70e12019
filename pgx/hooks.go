package pgxfence

import (
	"context"
	"errors"
)

// Sealer makes the Seal hook of a guard, such as interceptor.Policy.Seal: before the
// body runs, the token that it gets has reached the database, and [InTx], [Once] and
// Sealed tables refuse every older holder from then on. It costs one round trip. Its
// errors are those of [Seal].
func Sealer(db Querier) func(context.Context) error {
	return func(ctx context.Context) error { return Seal(ctx, db) }
}

// Ledger makes the Ledger hook of a guard, such as interceptor.Policy.Ledger: an
// operation whose effect called name is in the ledger under the guard's key has
// happened, and its result is that of [Once], as a T. The body must pass the same key
// to Once: interceptor.Attempt(ctx) has it, also after the operation was undone. It costs one round trip. Its errors are
// those of [Lookup], but for [ErrNotFound].
func Ledger[T any](db Querier, name string) func(ctx context.Context, key string) (any, bool, error) {
	return func(ctx context.Context, key string) (any, bool, error) {
		r, err := Lookup[T](ctx, db, Effect{Key: key, Name: name})
		if errors.Is(err, ErrNotFound) {
			return nil, false, nil
		}
		return r.Value, err == nil, err
	}
}
