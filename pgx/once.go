package pgxfence

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// onceRun is one call of [Once].
type onceRun struct {
	db      Beginner
	effect  Effect
	toks    []fence.Token
	options TxOptions
	fn      func(tx pgx.Tx) (ledgerRow, error)

	lost error // a commit whose outcome is not known yet
}

func newOnce(ctx context.Context, db Beginner, e Effect) (*onceRun, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	o, err := e.Tx.withDefaults(db)
	if err != nil {
		return nil, err
	}
	toks, err := tokensFor(ctx, o.Resources)
	return &onceRun{db: db, effect: e, toks: toks, options: o}, err
}

// onceRounds bounds the lost commits and duplicates of one call.
const onceRounds = 4

// resolve looks, and tries, until the outcome is known.
func (r *onceRun) resolve(ctx context.Context) (row ledgerRow, err error) {
	for range onceRounds {
		row, err = lookup(ctx, r.db, r.effect)
		if err != nil || row.found {
			return row, r.settled(err)
		}
		row, err = r.try(ctx)
		switch {
		case errors.Is(err, ErrIndeterminate) && ctx.Err() == nil:
			r.lost = err
		case errors.Is(err, fence.ErrStale):
			return r.lookOnce(ctx, err)
		case !duplicate(err):
			return row, r.settled(err)
		}
	}
	return row, r.settled(err)
}

// lookOnce is for a stale holder: it must not act, but it may learn what has been
// done, its own commit included, since the newer token had to wait for that.
func (r *onceRun) lookOnce(ctx context.Context, stale error) (ledgerRow, error) {
	row, err := lookup(ctx, r.db, r.effect)
	switch {
	case err != nil:
		return row, r.settled(err)
	case !row.found:
		return row, stale
	}
	return row, nil
}

// settled adds to an error that an earlier commit is still in doubt.
func (r *onceRun) settled(err error) error {
	if err == nil || r.lost == nil || err == r.lost { //nolint:errorlint // the very same
		return err
	}
	return &IndeterminateError{Err: r.lost, Repeat: err}
}

// try runs the effect in a transaction, unless the sealed look finds it done.
func (r *onceRun) try(ctx context.Context) (row ledgerRow, err error) {
	err = repeatTx(ctx, r.options.MaxAttempts, func() error {
		row = ledgerRow{}
		look := &question{statement: lookupStatement(r.effect), answer: row.into}
		tx, err := beginSealed(ctx, r.db, r.options, r.toks, look)
		if err != nil {
			return err
		}
		r.lost = nil // it has ended: the seal waited for it, and the look saw what it left
		if row.found {
			unmarkSealed(tx.Conn())
			rollback(ctx, tx)
			return nil
		}
		return finish(ctx, tx, func(tx pgx.Tx) (err error) {
			if row, err = r.fn(tx); err != nil {
				return err
			}
			return r.record(ctx, tx, &row)
		})
	})
	return row, err
}

// record writes the ledger row, which commits with the effect.
func (r *onceRun) record(ctx context.Context, tx pgx.Tx, row *ledgerRow) error {
	s := onConn(tx, tx.Conn())
	tok := r.toks[0]
	found := false
	_, err := s.query(ctx, statement{
		sql: "INSERT INTO fencekit.ledger (key, name, resource, token, encoding, result)" +
			" VALUES ($1::text, $2::text, $3::text, $4::bigint, $5::text, $6::bytea) RETURNING recorded_at",
		args: []any{r.effect.Key, r.effect.Name, tok.Resource, int64(tok.Value), row.encoding, row.result},
	}, tok, readOne(&row.at, &found, pgx.RowTo))
	row.token = tok.Value
	return err
}
