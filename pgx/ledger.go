package pgxfence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Effect names something that must happen once.
type Effect struct {
	// Key is the idempotency key of the operation. Required.
	Key string

	// Name tells the effects of one operation apart, as in "debit" and "notify".
	// Required.
	Name string

	// Tx are the options of the transaction. Tx.Resources names what to seal.
	Tx TxOptions
}

func (e Effect) check() error {
	switch {
	case e.Key == "":
		return usage("Effect.Key: it is empty")
	case e.Name == "":
		return usage("Effect.Name: it is empty")
	}
	return nil
}

// Result is what an effect returned when it happened.
type Result[T any] struct {
	Value T

	// Replayed says that the effect had happened before this call.
	Replayed bool

	// Token is the one that it happened under.
	Token fence.Value

	// At is when its transaction began, by the database's clock.
	At time.Time
}

// ErrResult says that a stored result cannot be given back as the type asked for.
// The effect has happened: calling again cannot help.
var ErrResult = errors.New("pgxfence: the stored result does not fit")

// Once makes fn's writes happen once in this database. They commit in one
// transaction with the fence, as in [InTx], and with a row in the ledger that holds
// fn's result. Whoever calls again, with a newer token, a stale one, after a crash
// or a lost reply, gets the stored result, in one round trip, and fn does not run.
// So relative updates are safe in it: balance + 100 nets +100.
//
// The result is stored as JSON and comes back decoded from it, the first time too;
// a []byte is stored as it is. A lost reply to COMMIT is resolved by looking: the
// look seals first, so it waits until the lost transaction has ended either way,
// and only if it was rolled back does fn run again. fn must therefore have no effect
// outside tx; this is exactly-once within the database and nowhere else.
//
// Errors are those of [InTx]; and [ErrResult]. [ErrIndeterminate] is left for a
// commit that could not be looked up in the time that ctx gives.
func Once[T any](ctx context.Context, db Beginner, e Effect, fn func(tx pgx.Tx) (T, error)) (Result[T], error) {
	run, err := newOnce(ctx, db, e)
	if err != nil {
		return Result[T]{}, err
	}
	run.fn = func(tx pgx.Tx) (row ledgerRow, err error) {
		value, err := fn(tx)
		if err != nil {
			return row, err
		}
		return encodeResult(value)
	}
	row, err := run.resolve(ctx)
	if err != nil {
		return Result[T]{}, err
	}
	return decodeResult[T](row)
}

// Lookup returns the result of an effect that has happened, or [ErrNotFound]. It
// needs no token.
func Lookup[T any](ctx context.Context, db Querier, e Effect) (Result[T], error) {
	if err := e.check(); err != nil {
		return Result[T]{}, err
	}
	row, err := lookup(ctx, db, e)
	switch {
	case err != nil:
		return Result[T]{}, err
	case !row.found:
		return Result[T]{}, ErrNotFound
	}
	return decodeResult[T](row)
}

// Prune deletes the ledger's rows that are older than age by the database's clock,
// at most limit of them (0: all), and returns how many. Schedule it, with an age
// above the longest time after which anybody may still repeat an operation: what is
// pruned can happen again. Rows that another Prune is deleting are passed over.
func Prune(ctx context.Context, db Querier, age time.Duration, limit int) (int64, error) {
	if age < 0 || limit < 0 {
		return 0, usage("age: %v and limit: %d must not be negative", age, limit)
	}
	st := statement{
		sql: "DELETE FROM fencekit.ledger WHERE ctid = ANY (ARRAY(SELECT ctid FROM fencekit.ledger" +
			" WHERE recorded_at <= pg_catalog.now() - $1::bigint * interval '1 microsecond'" +
			" ORDER BY recorded_at LIMIT nullif($2::bigint, 0) FOR UPDATE SKIP LOCKED))",
		args: []any{age.Microseconds(), int64(limit)},
	}
	var pruned int64
	err := attempt(ctx, db, func(s *session) error {
		tag, err := s.query(ctx, st, fence.Token{}, nil)
		pruned += tag.RowsAffected()
		return err
	})
	return pruned, err
}

// ledgerRow is a row of the ledger, or the one to be.
type ledgerRow struct {
	found    bool
	encoding string
	result   []byte
	token    fence.Value
	at       time.Time
}

const (
	encodingJSON = "json"
	encodingRaw  = "raw"
)

func encodeResult(value any) (ledgerRow, error) {
	if raw, ok := value.([]byte); ok {
		return ledgerRow{encoding: encodingRaw, result: append([]byte{}, raw...)}, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ledgerRow{}, fmt.Errorf("%w: %w", ErrResult, err)
	}
	return ledgerRow{encoding: encodingJSON, result: text}, nil
}

func decodeResult[T any](row ledgerRow) (Result[T], error) {
	r := Result[T]{Replayed: row.found, Token: row.token, At: row.at}
	raw, isRaw := any(&r.Value).(*[]byte)
	switch {
	case isRaw != (row.encoding == encodingRaw):
		return r, fmt.Errorf("%w: it is %s, and %T was asked for", ErrResult, row.encoding, r.Value)
	case isRaw:
		*raw = row.result
		return r, nil
	}
	if err := json.Unmarshal(row.result, &r.Value); err != nil {
		return r, fmt.Errorf("%w: %w", ErrResult, err)
	}
	return r, nil
}

func lookupStatement(e Effect) statement {
	return statement{
		sql:  "SELECT encoding, result, token, recorded_at FROM fencekit.ledger WHERE key = $1::text AND name = $2::text",
		args: []any{e.Key, e.Name},
	}
}

// into collects the row that a [lookupStatement] finds.
func (r *ledgerRow) into(rows pgx.Rows) error {
	return readOne(r, &r.found, func(row pgx.CollectableRow) (ledgerRow, error) {
		found := ledgerRow{found: true}
		err := row.Scan(&found.encoding, &found.result, &found.token, &found.at)
		return found, err
	})(rows)
}

func lookup(ctx context.Context, db Querier, e Effect) (ledgerRow, error) {
	var row ledgerRow
	err := attempt(ctx, db, func(s *session) error {
		row = ledgerRow{}
		_, err := s.query(ctx, lookupStatement(e), fence.Token{}, row.into)
		return err
	})
	return row, notLost(err)
}

// duplicate reports whether err is about the ledger's primary key: the same effect
// has committed under another resource meanwhile.
func duplicate(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505" && pg.SchemaName == "fencekit" && pg.TableName == "ledger"
}
