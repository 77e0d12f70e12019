package main

import (
	"context"
	_ "embed" // the schema
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

//go:embed schema.sql
var schema string

// Progress is how far a batch has come.
type Progress struct {
	Done  int
	Cents int64
}

// price is what an invoice costs.
func price(invoice int) int64 { return int64(invoice) * 1000 }

// Books are the database, with the kit or without it.
type Books interface {
	Progress(ctx context.Context, batch string) (Progress, error)
	Pay(ctx context.Context, batch string, p Progress, worker string) error
}

// plainBooks write as one does without the kit, in a transaction even.
type plainBooks struct{ pool *pgxpool.Pool }

// Progress reads the batch's row.
func (b plainBooks) Progress(ctx context.Context, batch string) (p Progress, err error) {
	err = b.pool.QueryRow(ctx, "SELECT done, cents FROM batches WHERE id = $1", batch).Scan(&p.Done, &p.Cents)
	return p, err
}

// Pay pays one invoice and notes the progress.
func (b plainBooks) Pay(ctx context.Context, batch string, p Progress, worker string) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if err := payOut(ctx, tx, batch, p, worker); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE batches SET done = $2, cents = $3, worker = $4 WHERE id = $1",
			batch, p.Done, p.Cents, worker)
		return err
	})
}

var batches = pgxfence.Table{Name: pgx.Identifier{"batches"}}

// fencedBooks write under the fencing token in the context.
type fencedBooks struct{ plainBooks }

// Pay does the same in a sealed transaction: all of it commits under the fence or
// nothing does, the insert into payouts too, which knows nothing of tokens.
func (b fencedBooks) Pay(ctx context.Context, batch string, p Progress, worker string) error {
	return pgxfence.InTx(ctx, b.pool, func(tx pgx.Tx) error {
		if err := payOut(ctx, tx, batch, p, worker); err != nil {
			return err
		}
		return batches.Update(ctx, tx, pgxfence.Change{
			Key: pgxfence.Values{"id": batch},
			Set: pgxfence.Values{"done": p.Done, "cents": p.Cents, "worker": worker},
		})
	})
}

func payOut(ctx context.Context, tx pgx.Tx, batch string, p Progress, worker string) error {
	_, err := tx.Exec(ctx, "INSERT INTO payouts (batch, invoice, cents, worker) VALUES ($1, $2, $3, $4)",
		batch, p.Done, price(p.Done), worker)
	return err
}

// books are what the rows say.
type books struct {
	Progress
	Worker  string
	Fence   fence.Value
	Payouts map[int]int // how often each invoice was paid
	Paid    int64
}

func readBooks(ctx context.Context, pool *pgxpool.Pool, batch string) (b books, err error) {
	err = pool.QueryRow(ctx, "SELECT done, cents, coalesce(worker, ''), fence_token FROM batches WHERE id = $1", batch).
		Scan(&b.Done, &b.Cents, &b.Worker, &b.Fence)
	if err != nil {
		return b, fmt.Errorf("read the batch: %w", err)
	}
	rows, err := pool.Query(ctx, "SELECT invoice, cents FROM payouts WHERE batch = $1", batch)
	if err != nil {
		return b, err
	}
	b.Payouts = map[int]int{}
	var invoice int
	var cents int64
	_, err = pgx.ForEachRow(rows, []any{&invoice, &cents}, func() error {
		b.Payouts[invoice]++
		b.Paid += cents
		return nil
	})
	return b, err
}

func prepare(ctx context.Context, pool *pgxpool.Pool, batch string) error {
	if err := pgxfence.Migrate(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "INSERT INTO batches (id) VALUES ($1)", batch)
	return err
}
