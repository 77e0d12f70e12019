// Package pgxfence makes writes to Postgres refuse a holder that has lost its
// lease. It is the package in the folder pgx/ of fencekit, named so because its
// callers always hold a pgx.Tx too.
//
// A worker that was frozen past the end of its lease wakes up and writes. Nothing
// that it could have asked before helps: it would have been told that all is well,
// and then have been frozen. The store must refuse it, in the same operation as the
// write. So every write carries the fencing token of its lease (package [fence]),
// and the store refuses a token lower than one that it has seen.
//
// The token comes from the context, where the guard has put it:
//
//	func (a *Activities) Settle(ctx context.Context, id int64) error {
//		return accounts.Update(ctx, a.pool, pgxfence.Change{
//			Key: pgxfence.Values{"id": id},
//			Set: pgxfence.Values{"status": "settled"},
//		})
//	}
//
// Without a token nothing is sent and the error is [fence.ErrNoToken]; with tokens
// of several resources the call must name one ([Change.Resource]).
//
// # A column in your table
//
// Add a column and describe the table once:
//
//	ALTER TABLE accounts ADD COLUMN fence_token bigint;
//
//	var accounts = pgxfence.Table{Name: pgx.Identifier{"accounts"}}
//
// [Table.Update] writes one row by its key, [UpdateReturning] gives it back,
// [Table.UpdateMany] writes thousands in one statement, [Table.Upsert] is for the
// first write and [Table.Delete] for the last, [Exec] and [QueryRow] are for SQL of
// your own. Each says what happened:
//
//	err := accounts.Update(ctx, pool, change)
//	switch {
//	case err == nil:                                  // the row carries our token and values
//	case errors.Is(err, fence.ErrStale):              // we have been superseded: stop
//	case errors.Is(err, pgxfence.ErrNotFound):        // no such row
//	case errors.Is(err, pgxfence.ErrNotApplied):      // our own condition, a trigger, a policy
//	case errors.Is(err, pgxfence.ErrIndeterminate):   // the reply was lost: it may have happened
//	case pgxfence.Retryable(err):                     // nothing happened, try again
//	}
//
// A row's fence belongs to one kind of resource. Tokens of different resources are
// unrelated numbers: a row that is written under "account/42" today and under
// "batch/7" tomorrow is locked out for good, or open to a stale holder.
//
// Values are absolute: repeating them with the same token changes nothing more, and
// on a pool a lost reply is answered by repeating once. What is computed from the
// row needs [Claim], which raises the row's fence before it is read; or else two
// holders both pass the fence, one after the other, and the second overwrites what
// it never saw. What is relative, as in balance + 100, needs [Once].
//
// # A transaction of yours
//
// [InTx] needs no column. It seals the resource in the table fencekit.fence, in the
// round trip of BEGIN, and holds its row to the end, so that whatever is sent in
// between commits under the fence or not at all: sqlc's queries, COPY, a batch.
//
//	err := pgxfence.InTx(ctx, pool, func(tx pgx.Tx) error {
//		return bankdb.New(tx).Transfer(ctx, params)
//	})
//
// [Seal] alone takes a new token to the store before anything is written with it;
// until then the store cannot know that the one before is stale. Give it to the
// guard as its Seal hook. It is seen by all that seals: InTx, [Once], Upsert and
// Delete. An Update looks at its row and nothing else, so for a row that the
// successor has yet to write, either [Claim] it or set [Table.Sealed].
//
// In the other direction [Enforce] couples the two forms: a sealed transaction then
// checks and raises the fences of the rows that it writes.
//
// # Once
//
// A fence keeps old holders out; it does not keep a new one from doing the same
// again. [Once] does: the effect, the fence and a row of a ledger commit together,
// and whoever comes again gets the stored result.
//
//	r, err := pgxfence.Once(ctx, pool, pgxfence.Effect{Key: key, Name: "debit"},
//		func(tx pgx.Tx) (Receipt, error) { ... })
//
// That is exactly-once within this database, and nothing outside of it: an e-mail
// that is sent in there is sent as often as the transaction is tried.
//
// # Nobody past the fence
//
// [Enforce] puts a trigger on a table that refuses what carries no token: an old
// worker in a mixed fleet, a forgotten helper, psql. A [Tracer] finds such writes
// from inside the program: [FailUnfenced] in tests, a metric in production.
//
// # The schema fencekit
//
// The row fence needs none. Everything else lives in a schema of its own: run
// [Migrate], or take the files of [Schema] into your migration tool, and call
// [CheckSchema] at the start.
//
// # Isolation levels, poolers, exec modes
//
// READ COMMITTED gives the outcomes above under concurrency. REPEATABLE READ and
// SERIALIZABLE answer a concurrent write with 40001: [InTx] and [Once] run their
// transaction again, a bounded number of times; in a transaction of the caller's it
// is returned as it is.
//
// The helpers leave nothing in the session, so PgBouncer's transaction mode is fine,
// with an exec mode that it can carry (exec, simple_protocol, or cache_describe; with
// cache_statement only if its max_prepared_statements is on). The helpers' own
// parameters work in all five of pgx's exec modes. In exec and simple_protocol pgx
// does not ask the server for types, so values must be of types that it knows
// without: numbers, strings, times, []byte, slices of those; no maps for jsonb.
//
// With database/sql, take pgx's connection out of sql.Conn.Raw for [InTx], or call
// SELECT fencekit.seal($1, $2, $3) with resource, token and owner as the first
// statement of a transaction.
package pgxfence
