package pgxfence

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Beginner is what the helpers need that open a transaction of their own: a
// *pgxpool.Pool, *pgxpool.Conn or *pgx.Conn. A pgx.Tx is none, on purpose: seal it
// with [Seal].
type Beginner interface {
	Batcher
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

var (
	_ Beginner = (*pgxpool.Pool)(nil)
	_ Beginner = (*pgx.Conn)(nil)
)

// TxOptions are the options of a sealed transaction. The zero value works.
type TxOptions struct {
	// Resources to seal. Default: the one whose token is the only one in the context.
	Resources []string

	// Tx is passed to BEGIN: isolation level, access mode, which must not be read
	// only. Default: the server's.
	Tx pgx.TxOptions

	// MaxAttempts is how often the transaction is run at most, when it fails by
	// serialization (40001) or deadlock (40P01): the function runs again, in a new
	// transaction. Default 5; 1 for never again; negative is an error.
	MaxAttempts int

	// IdleTimeout is how long the transaction may wait for its client before the
	// server ends it (idle_in_transaction_session_timeout). A frozen process would
	// otherwise hold the resource's row, and with it every successor, for as long as
	// its connection lasts. Default 30 s; negative for the server's own setting; at
	// least 1 ms.
	IdleTimeout time.Duration
}

const (
	defaultMaxAttempts = 5
	defaultIdleTimeout = 30 * time.Second
)

func (o TxOptions) withDefaults(db Beginner) (TxOptions, error) {
	switch {
	case inTransaction(db):
		return o, usage("db: it is in a transaction already; seal that one with Seal")
	case o.Tx.AccessMode == pgx.ReadOnly:
		return o, usage("TxOptions.Tx.AccessMode: a seal writes, so it cannot be read only")
	case o.MaxAttempts < 0:
		return o, usage("TxOptions.MaxAttempts: %d is negative", o.MaxAttempts)
	case o.IdleTimeout > 0 && o.IdleTimeout < time.Millisecond:
		return o, usage("TxOptions.IdleTimeout: %v is below 1ms", o.IdleTimeout)
	}
	if o.MaxAttempts == 0 {
		o.MaxAttempts = defaultMaxAttempts
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = defaultIdleTimeout
	}
	return o, nil
}

// inTransaction looks at a connection: the server lets a BEGIN pass inside a
// transaction, and the COMMIT would be for all that came before.
func inTransaction(db Beginner) bool {
	switch d := db.(type) {
	case *pgx.Conn:
		return onConn(d, d).inTx
	case interface{ Conn() *pgx.Conn }:
		return onConn(db, d.Conn()).inTx
	}
	return false
}

// InTx opens a transaction, seals the context's only resource in the same round
// trip, runs fn, and commits. Whatever fn sends on tx commits under the fence or
// not at all, whoever writes the SQL: sqlc, COPY, a batch, an ORM. No lower token
// can come between, because the resource's row stays locked until the end.
//
// fn must send everything on tx, must not commit or roll back, and may run several
// times ([TxOptions.MaxAttempts]). Its error rolls back and is returned as it is.
// Further errors: [fence.StaleError] before fn has run; [ErrIndeterminate] if the
// reply to COMMIT was lost, never repeated (see [Once]); pgx.ErrTxCommitRollback if
// fn passed over an error that had aborted the transaction; [ErrUnavailable];
// [ErrSchema].
func InTx(ctx context.Context, db Beginner, fn func(tx pgx.Tx) error) error {
	return InTxOptions(ctx, db, TxOptions{}, fn)
}

// InTxOptions is [InTx] with options.
func InTxOptions(ctx context.Context, db Beginner, o TxOptions, fn func(tx pgx.Tx) error) error {
	o, err := o.withDefaults(db)
	if err != nil {
		return err
	}
	toks, err := tokensFor(ctx, o.Resources)
	if err != nil {
		return err
	}
	return repeatTx(ctx, o.MaxAttempts, func() error {
		tx, err := beginSealed(ctx, db, o, toks, nil)
		if err != nil {
			return err
		}
		return finish(ctx, tx, fn)
	})
}

// repeatTx runs a whole transaction again while another one is to blame.
func repeatTx(ctx context.Context, attempts int, run func() error) error {
	for n := 1; ; n++ {
		err := run()
		if n >= attempts || !conflict(err) || !pause(ctx, n) {
			return err
		}
	}
}

func conflict(err error) bool {
	if errors.Is(err, ErrIndeterminate) {
		return false
	}
	state := stateOf(err)
	return state == "40001" || state == "40P01"
}

// pause lets the rival go first. It reports whether there is time left.
func pause(ctx context.Context, n int) bool {
	timer := time.NewTimer(time.Duration(1+rand.IntN(5*n)) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// question is a query that rides along with BEGIN.
type question struct {
	statement
	answer func(pgx.Rows) error
}

// beginSealed sends BEGIN, the seals and the question in one round trip.
func beginSealed(ctx context.Context, db Beginner, o TxOptions, toks []fence.Token, q *question) (pgx.Tx, error) {
	batch := &pgx.Batch{}
	batch.BeginTx(o.Tx)
	sealed := ""
	for i, tok := range toks {
		if i > 0 {
			sealed += ","
		}
		sealed += tok.Value.String()
		st := openingSeal(tok, sealed, o.IdleTimeout)
		batch.Queue(st.sql, st.args...)
	}
	if q != nil {
		batch.Queue(q.sql, q.args...)
	}
	results := db.SendBatch(fenced(ctx), batch)
	tx := results.Tx()
	err := readBegin(results, toks, q)
	if err == nil && tx == nil {
		err = usage("db: the results of its SendBatch have no transaction, as those of pgx 5.12 have")
	}
	if err != nil {
		giveBack(ctx, db, tx, err)
		return nil, err
	}
	markSealed(tx.Conn())
	return tx, nil
}

// giveBack ends a transaction that failed to begin. A pool replaces a connection to
// a server that takes no writes.
func giveBack(ctx context.Context, db Beginner, tx pgx.Tx, err error) {
	if tx == nil {
		return
	}
	if _, pool := db.(*pgxpool.Pool); pool && stateOf(err) == stateReadOnly {
		closeNow(tx.Conn())
	}
	rollback(ctx, tx)
}

// openingSeal is [sealStatement] for the beginning of a transaction. It finds the
// resource sealed with this very token most of the time, because a grant has many
// transactions, and then only locks the row, which takes half the time of the
// function. sealed lists the tokens up to this one.
func openingSeal(tok fence.Token, sealed string, idle time.Duration) statement {
	st := statement{
		sql: "WITH held AS MATERIALIZED (SELECT FROM fencekit.fence" +
			" WHERE resource = $1::text AND token = $2::bigint AND owner = $3::text FOR NO KEY UPDATE)" +
			" SELECT CASE WHEN NOT EXISTS (SELECT FROM held) THEN fencekit.seal($1::text, $2::bigint, $3::text) END," +
			" pg_catalog.set_config('fencekit.sealed', $4::text, true)",
		args: []any{tok.Resource, int64(tok.Value), tok.Owner, sealed},
	}
	if idle > 0 {
		st.sql += ", pg_catalog.set_config('idle_in_transaction_session_timeout', $5::text, true)"
		st.args = append(st.args, strconv.FormatInt(idle.Milliseconds(), 10))
	}
	return st
}

func readBegin(results pgx.BatchResults, toks []fence.Token, q *question) error {
	_, err := results.Exec()
	failed := fence.Token{}
	for i := 0; err == nil && i < len(toks); i++ {
		_, err = results.Exec()
		failed = toks[i]
	}
	if err == nil && q != nil {
		var rows pgx.Rows
		if rows, err = results.Query(); err == nil {
			_, err = drain(rows, q.answer)
		}
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	return beginError(err, failed)
}

// beginError names what kept a transaction from starting. Whatever it was, nothing
// has been applied.
func beginError(err error, tok fence.Token) error {
	if _, ok := errors.AsType[*pgconn.PgError](err); err != nil && !ok {
		return unavailable(err)
	}
	return (&session{inTx: true}).classify(err, tok)
}

// finish runs fn and commits, or rolls back, even on a panic.
func finish(ctx context.Context, tx pgx.Tx, fn func(tx pgx.Tx) error) error {
	conn := tx.Conn()
	done := false
	defer func() {
		if !done {
			unmarkSealed(conn)
			rollback(ctx, tx)
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	done = true
	unmarkSealed(conn)
	wasOpen := !conn.IsClosed()
	return commitError(tx.Commit(ctx), wasOpen)
}

// commitError tells a refused commit from one whose reply was lost.
func commitError(err error, wasOpen bool) error {
	if _, ok := errors.AsType[*pgconn.PgError](err); ok {
		return (&session{}).classify(err, fence.Token{})
	}
	switch {
	case err == nil, errors.Is(err, pgx.ErrTxCommitRollback), errors.Is(err, pgx.ErrTxClosed):
		return err
	case neverSent(err, wasOpen):
		return unavailable(err)
	}
	return &IndeterminateError{Err: err}
}

const rollbackTimeout = 5 * time.Second

// rollback works although ctx may have ended. Its error tells nothing: a
// transaction that cannot be rolled back ends with its connection.
func rollback(ctx context.Context, tx pgx.Tx) {
	if tx == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}
