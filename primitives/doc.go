// Package primitives keeps leases, idempotency records and fencing tokens in Redis.
// It knows nothing of Temporal: a Kafka consumer, a River or Asynq worker, or a
// cron job can use it as it is.
//
// # The problem
//
// Work that is delivered at least once is sometimes done twice: a worker that timed
// out may still be running, a crash can fall between an effect and its report, and
// two callers can ask for the same thing. A lock does not help on its own: its holder
// may be frozen past the lock's end, wake up, and write.
//
// # A guarded operation
//
// A [Store] is one Redis, a [Guard] a way to treat operations, and [Guard.Do] runs one:
//
//	store, err := primitives.New(rdb, primitives.Options{Prefix: "shop"})
//	guard, err := primitives.NewGuard(store, primitives.GuardOptions{LeaseTTL: 30 * time.Second})
//	key, err := primitives.NewKey("charge", order.ID)
//	receipt, err := primitives.Do(ctx, guard, primitives.Op{Key: key, Resource: "account/42"},
//		func(ctx context.Context) (Receipt, error) {
//			token, err := fence.ForResource(ctx, "account/42")
//			// write with the token; call the payment provider
//		})
//
// While the body runs, nobody else runs an operation on the same resource. When it has
// returned, whoever asks for the same key gets the stored result, its memo, and the
// body does not run again. If the body's process crashes, the next caller takes over
// when the lease ends, or at once if it is a newer attempt of the same [Execution]. If
// the process was only frozen, its context has ended when it wakes up, its result is
// refused, and a store that checks the token refuses its writes.
//
// # Fencing tokens
//
// Each grant carries a [fence.Token] whose value is higher than that of all grants of
// the resource before it, also after Redis has lost its data. A store that remembers
// the highest token it has seen can refuse a stale holder in the same operation as the
// write. Package pgxfence does that for Postgres; a [Gate] does it within Redis.
//
// # The parts
//
// Below the guard, each part can be used on its own:
//   - [NewKey] derives an idempotency key from a payload.
//   - [Store.Acquire], [Store.TryAcquire] and [Store.Hold] take a [Lease] with a token;
//     [Lease.Keep] renews it and ends a context when it is lost.
//   - [Guard.Begin] makes a [Claim], to be ended by hand.
//   - [Claim.Undo] says that its work undoes another operation, whose next call runs.
//   - [Store.TryBegin] and [Store.TryBeginOrReclaim] guard an operation by its record
//     alone, without a lease or a token.
//   - [Gate.SetIfFresh] writes to Redis under a token.
//   - [Store.Status], [Store.Inspect], [Store.Records], [Store.Leases], [Store.Free],
//     [Store.Forget] and [Store.Resolve] are for operators.
//
// # Errors
//
// Every state has one sentinel to match with errors.Is, and a type with the details
// for errors.As: see [ErrBusy] and those around it. Only [ErrBusy], [ErrUnavailable]
// and [fence.ErrLeaseLost] are worth a retry as they are.
//
// # Time
//
// A lease's TTL runs by the Redis clock, and the holder's deadline by its own monotonic
// clock, counted from before the grant was requested; wall clocks are never compared.
// Redis may be down or frozen: the holder's context ends in time all the same.
package primitives
