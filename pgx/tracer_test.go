package pgxfence_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
)

// recorder is a testing.T that keeps what it is told.
type recorder struct{ failures []string }

func (*recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// other is a tracer that works beside ours.
type other struct{ queries int }

func (o *other) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	o.queries++
	return ctx
}
func (*other) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A write that was sent past the helpers under a guard is reported, and nothing else.
func TestTracerReports(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r, beside := &recorder{}, &other{}
	pool := b.open(b.url, one, func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = multitracer.New(pgxfence.FailUnfenced(r), beside)
	})
	ctx := b.at(5)
	send := func(ctx context.Context, sql string) {
		_, err := pool.Exec(ctx, sql)
		require.NoError(t, err)
	}
	for _, sql := range []string{
		"UPDATE accounts SET balance = 1",
		"/* x */ with u AS (DELETE FROM accounts WHERE false RETURNING 1) SELECT * FROM u",
		"INSERT INTO accounts (id) VALUES (50)",
		"DELETE FROM accounts WHERE id = 50",
	} {
		r.failures = nil
		send(ctx, sql)
		require.Len(t, r.failures, 1, sql)
		require.Contains(t, r.failures[0], sql)
	}
	r.failures = nil
	batch := &pgx.Batch{}
	batch.Queue("SELECT 1")
	batch.Queue("UPDATE accounts SET balance = 2")
	require.NoError(t, pool.SendBatch(ctx, batch).Close())
	_, err := pool.CopyFrom(ctx, accounts.Name, []string{"id"}, pgx.CopyFromRows([][]any{{int64(60)}}))
	require.NoError(t, err)
	require.Len(t, r.failures, 2)
	require.Positive(t, beside.queries)

	r.failures = nil
	send(b.ctx, "UPDATE accounts SET balance = 1") // no guard
	send(ctx, "SELECT 'UPDATE accounts'")
	send(ctx, "CREATE TEMP TABLE x AS SELECT 1 -- UPDATE")
	useEveryHelper(b, pool, 5)
	_, err = pool.CopyFrom(b.ctx, accounts.Name, []string{"id"}, pgx.CopyFromRows([][]any{{int64(61)}}))
	require.NoError(t, err)
	require.Empty(t, r.failures)
}

// A sealed transaction is fenced as a whole, and only until its end.
func TestTracerKnowsSealedTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := &recorder{}
	pool := b.open(b.url, one, func(c *pgxpool.Config) { c.ConnConfig.Tracer = pgxfence.FailUnfenced(r) })
	ctx := b.at(5)
	require.NoError(t, pgxfence.InTx(ctx, pool, addOne(ctx)))
	for _, end := range []func(pgx.Tx) error{func(tx pgx.Tx) error { return tx.Commit(ctx) }, func(tx pgx.Tx) error { return tx.Rollback(ctx) }} {
		tx, err := pool.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, pgxfence.Seal(ctx, tx))
		require.NoError(t, addOne(ctx)(tx))
		require.Empty(t, r.failures)
		require.NoError(t, end(tx))
		_, err = pool.Exec(ctx, "UPDATE accounts SET balance = 1")
		require.NoError(t, err)
		require.Len(t, r.failures, 1, "the seal has ended with the transaction")
		r.failures = nil
	}
	_, err := pgxfence.Once(ctx, pool, effect("k"), debit(ctx))
	require.NoError(t, err)
	_, err = pgxfence.Once(ctx, pool, effect("k"), debit(ctx))
	require.NoError(t, err)
	require.Empty(t, r.failures)
	require.NoError(t, pgxfence.Seal(ctx, pool))
	_, err = pool.Exec(ctx, "UPDATE accounts SET balance = 1")
	require.NoError(t, err)
	require.Len(t, r.failures, 1, "a seal outside a transaction fences nothing that follows")
}

// What is written is found behind other statements, comments and words.
func TestTracerReadsSeveralStatements(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := &recorder{}
	conn := b.connect(func(c *pgx.ConnConfig) {
		c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		c.Tracer = pgxfence.FailUnfenced(r)
	})
	for _, sql := range []string{
		"SELECT 1; UPDATE accounts SET balance = 1",
		"BEGIN; UPDATE accounts SET balance = 2; COMMIT",
		"WITH u AS (WITH v AS (SELECT 1) UPDATE accounts SET balance = 3 RETURNING 1) SELECT * FROM u",
		"EXPLAIN ANALYZE UPDATE accounts SET balance = 4",
		"EXPLAIN (ANALYZE, BUFFERS) UPDATE accounts SET balance = 4",
		"-- c\rUPDATE accounts SET balance = 5",
	} {
		r.failures = nil
		_, err := conn.Exec(b.at(5), sql)
		require.NoError(t, err, sql)
		require.Len(t, r.failures, 1, sql)
	}
	r.failures = nil
	_, err := conn.Exec(b.at(5), "EXPLAIN UPDATE accounts SET balance = 1; SELECT 1")
	require.NoError(t, err)
	require.Empty(t, r.failures)
}

// However a sealed transaction is ended, the mark does not outlive it.
func TestTracerForgetsSeal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := &recorder{}
	conn := b.connect(func(c *pgx.ConnConfig) { c.Tracer = pgxfence.FailUnfenced(r) })
	exec := func(sql string) {
		_, err := conn.Exec(b.at(5), sql)
		require.NoError(t, err, sql)
	}
	const write = "UPDATE accounts SET balance = 5"
	for _, end := range []string{"COMMIT;", "END", "commit work", "/* x */ ABORT", "ROLLBACK TRANSACTION", "SELECT 1; COMMIT"} {
		for _, begin := range []string{"SELECT 1", "BEGIN", "START TRANSACTION"} {
			r.failures = nil
			exec("BEGIN")
			require.NoError(t, pgxfence.Seal(b.at(5), conn))
			exec("SAVEPOINT s")
			exec("ROLLBACK TO s")
			exec(write)
			require.Empty(t, r.failures, "sealed")
			exec(end)
			exec(begin)
			exec(write)
			require.Len(t, r.failures, 1, "%s, %s", end, begin)
			exec("ROLLBACK")
		}
	}
	r.failures = nil
	exec("BEGIN")
	require.NoError(t, pgxfence.Seal(b.at(5), conn))
	exec("COMMIT AND CHAIN")
	exec(write)
	require.Len(t, r.failures, 1, "the next transaction is not sealed")
	exec("ROLLBACK")
}

func TestTracerWithoutCallback(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := b.connect(func(c *pgx.ConnConfig) { c.Tracer = &pgxfence.Tracer{} })
	_, err := conn.Exec(b.at(5), "UPDATE accounts SET balance = 1")
	require.NoError(t, err)
}
