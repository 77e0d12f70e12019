package pgxfence_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
)

// sideBySide times ours and theirs in turns, so that a busy machine slows both, and
// fails if the median of ours is above limit times that of theirs.
func sideBySide(b *testing.B, limit float64, theirs, ours func() error) {
	b.Helper()
	b.ReportAllocs()
	var times [2][]time.Duration
	for range 20 { // prepare statements, fill caches
		require.NoError(b, theirs())
		require.NoError(b, ours())
	}
	for b.Loop() {
		for i, f := range []func() error{theirs, ours} {
			start := time.Now()
			if err := f(); err != nil {
				b.Fatal(err)
			}
			times[i] = append(times[i], time.Since(start))
		}
	}
	plain, fenced := median(times[0]), median(times[1])
	ratio := float64(fenced) / float64(plain)
	b.ReportMetric(float64(plain.Nanoseconds())/1e3, "plain-µs")
	b.ReportMetric(float64(fenced.Nanoseconds())/1e3, "ours-µs")
	b.ReportMetric(ratio, "ratio")
	if limit > 0 && len(times[0]) >= 100 && ratio > limit {
		b.Errorf("ratio %.2f is above %.2f", ratio, limit)
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkUpdate: a fenced UPDATE by primary key beside the plain one. The target is
// 1.10; on a busy machine with two cores 1.04 to 1.15 are measured, so 1.20 is held.
func BenchmarkUpdate(b *testing.B) {
	t := setup(b)
	ctx := t.at(5)
	n := int64(0)
	sideBySide(b, 1.20, func() error {
		n++
		_, err := t.pool.Exec(ctx, "UPDATE accounts SET balance = $1 WHERE id = $2", n, 2)
		return err
	}, func() error {
		n++
		return accounts.Update(ctx, t.pool, set(1, n))
	})
}

// BenchmarkInTx: a sealed transaction that reads, computes and writes, beside the
// same one without a seal. The target is 1.25; 1.35 is held.
func BenchmarkInTx(b *testing.B) {
	t := setup(b)
	ctx := t.at(5)
	t.exec("CREATE TABLE audit (id bigint, balance bigint)")
	work := func(id int) func(tx pgx.Tx) error {
		return func(tx pgx.Tx) error {
			var balance int64
			if err := tx.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = $1 FOR UPDATE", id).Scan(&balance); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = $2 WHERE id = $1", id, balance+1); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO audit VALUES ($1, $2)", id, balance+1)
			return err
		}
	}
	sideBySide(b, 1.35,
		func() error { return pgx.BeginFunc(ctx, t.pool, work(2)) },
		func() error { return pgxfence.InTx(ctx, t.pool, work(1)) })
}

// BenchmarkInTxSingle: the least that a transaction can hold, where the seal weighs
// most; stated and not limited.
func BenchmarkInTxSingle(b *testing.B) {
	t := setup(b)
	ctx := t.at(5)
	work := func(id int) func(tx pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = $1", id)
			return err
		}
	}
	sideBySide(b, 0,
		func() error { return pgx.BeginFunc(ctx, t.pool, work(2)) },
		func() error { return pgxfence.InTx(ctx, t.pool, work(1)) })
}

// BenchmarkUpdateMany: 1,000 rows in one statement beside 1,000 fenced updates in
// one batch. Both pay for the same 1,000 new row versions, so ours cannot be faster at
// will: 2.5 to 3 times is what is measured, and twice is held.
func BenchmarkUpdateMany(b *testing.B) {
	t := setup(b)
	ctx := t.at(5)
	const rows = 1000
	t.exec("CREATE TABLE many (id bigint PRIMARY KEY, balance bigint, fence_token bigint) WITH (fillfactor = 50)")
	t.exec("INSERT INTO many (id) SELECT i FROM generate_series(10, $1::int) i", 2*rows+20)
	many := pgxfence.Table{Name: pgx.Identifier{"many"}}
	ids, balances := make([]int64, rows), make([]int64, rows)
	for i := range ids {
		ids[i] = int64(i + 10)
	}
	n := int64(0)
	sideBySide(b, 0.5, func() error {
		batch := &pgx.Batch{}
		n++
		for i := range rows {
			batch.Queue("UPDATE many SET balance = $1, fence_token = $2 WHERE id = $3 AND coalesce(fence_token, 0) <= $2", n, 5, i+10+rows)
		}
		return t.pool.SendBatch(ctx, batch).Close()
	}, func() error {
		n++
		for i := range balances {
			balances[i] = n
		}
		_, err := many.UpdateMany(ctx, t.pool, pgxfence.Changes{
			Key: []pgxfence.Column{{Name: "id", Values: ids}}, Set: []pgxfence.Column{{Name: "balance", Values: balances}}})
		return err
	})
}

// BenchmarkEnforced: a fenced UPDATE of an enforced table beside one of a table
// without the trigger; the cost is stated and not limited.
func BenchmarkEnforced(b *testing.B) {
	t := setup(b)
	ctx := t.at(5)
	t.exec("CREATE TABLE enforced (LIKE accounts INCLUDING ALL)")
	t.exec("INSERT INTO enforced (id) VALUES (1)")
	table := pgxfence.Table{Name: pgx.Identifier{"enforced"}, Enforced: true}
	require.NoError(b, pgxfence.Enforce(ctx, t.pool, table, ""))
	n := int64(0)
	sideBySide(b, 0, func() error {
		n++
		return accounts.Update(ctx, t.pool, set(1, n))
	}, func() error {
		n++
		return table.Update(ctx, t.pool, set(1, n))
	})
}

// BenchmarkOnceHit: an effect that has happened beside the plain SELECT of a row.
func BenchmarkOnceHit(b *testing.B) {
	t := setup(b)
	ctx := t.at(5)
	_, err := pgxfence.Once(ctx, t.pool, effect("k"), debit(ctx))
	require.NoError(b, err)
	sideBySide(b, 0, func() error {
		var balance int64
		return t.pool.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = $1", 1).Scan(&balance)
	}, func() error {
		_, err := pgxfence.Once(ctx, t.pool, effect("k"), debit(ctx))
		return err
	})
}
