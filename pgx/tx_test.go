package pgxfence_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

func addOne(ctx context.Context) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = 1")
		return err
	}
}

func TestSeal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, mode := range modes {
		conn := b.connect(mode.use)
		token := int64(10 * (i + 1))
		require.NoError(t, pgxfence.Seal(b.at(token), conn), mode.name)
		require.NoError(t, pgxfence.Seal(b.at(token), conn), "its own token again")
		requireStale(t, pgxfence.Seal(b.at(token-1), conn), token-1, token)
	}
	require.NoError(t, pgxfence.Seal(withResource(b.at(50), "account/2", 3), b.pool, "account/2", "account/1", "account/2"))
	require.Equal(t, "account/1=50 account/2=3", get[string](b, "SELECT string_agg(resource || '=' || token, ' ' ORDER BY resource) FROM fencekit.fence"))
}

// A NULL is no token: it must not pass for one that the resource knows.
func TestSealOfNull(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, pgxfence.Seal(b.at(9), b.pool))
	for _, call := range []string{
		"fencekit.seal('account/1', NULL)", "fencekit.seal('new', NULL)", "fencekit.seal(NULL, 9)", "fencekit.seal(NULL, NULL, NULL)",
	} {
		_, err := b.pool.Exec(b.ctx, "SELECT "+call)
		requireState(t, err, "22004")
	}
	require.Equal(t, "account/1=9", get[string](b, "SELECT string_agg(resource || '=' || token, ' ') FROM fencekit.fence"))
}

// Two holders that were ever handed the same token are told apart by their nonce.
func TestSealEqualTokenOfAnotherOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	as := func(owner string) context.Context {
		return fence.NewContext(b.ctx, fence.Token{Resource: "account/1", Value: 5, Owner: owner})
	}
	require.NoError(t, pgxfence.Seal(as("me"), b.pool))
	for _, other := range []string{"you", ""} {
		requireStale(t, pgxfence.Seal(as(other), b.pool), 5, 5)
		requireStale(t, pgxfence.InTx(as(other), b.pool, addOne(b.ctx)), 5, 5)
	}
	require.NoError(t, pgxfence.Seal(as("me"), b.pool))
}

// InTx seals in the round trip of BEGIN: as many round trips as without.
func TestInTxRoundTrips(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied(one)
	for range 2 { // the first one prepares
		proxy.RoundTrips()
		require.NoError(t, pgxfence.InTx(b.at(5), pool, addOne(b.ctx)))
	}
	require.Equal(t, 3, proxy.RoundTrips(), "BEGIN with seal, UPDATE, COMMIT")
	require.NoError(t, pgx.BeginFunc(b.ctx, pool, addOne(b.ctx)))
	require.Equal(t, 3, proxy.RoundTrips(), "BEGIN, UPDATE, COMMIT")
}

func TestInTxStale(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, pgxfence.Seal(b.at(9), b.pool))
	for _, iso := range isolations {
		err := pgxfence.InTxOptions(b.at(8), b.pool, pgxfence.TxOptions{Tx: pgx.TxOptions{IsoLevel: iso}},
			func(pgx.Tx) error { t.Error("it must not run"); return nil })
		requireStale(t, err, 8, 9)
	}
	require.NoError(t, pgxfence.InTx(b.at(9), b.pool, addOne(b.ctx)))
	require.Equal(t, int64(1), b.account(1).Balance)
}

func TestInTxRollsBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	own := errors.New("own")
	run := func(fail func() error) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			if err := addOne(b.ctx)(tx); err != nil {
				return err
			}
			return fail()
		}
	}
	require.Equal(t, own, pgxfence.InTx(b.at(5), b.pool, run(func() error { return own })), "as it is")
	require.PanicsWithValue(t, "own", func() {
		_ = pgxfence.InTx(b.at(5), b.pool, run(func() error { panic("own") }))
	})
	ctx, cancel := context.WithCancel(b.at(5))
	err := pgxfence.InTx(ctx, b.pool, run(func() error { cancel(); return nil }))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, int64(0), b.account(1).Balance)
	require.Zero(t, get[int](b, "SELECT count(*) FROM fencekit.fence"))
	require.Equal(t, b.pool.Stat().TotalConns()-b.pool.Stat().IdleConns(), int32(0), "connections are given back")
}

// E17: a commit that turns into a rollback is an error.
func TestInTxCommitTurnedIntoRollback(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := pgxfence.InTx(b.at(5), b.pool, func(tx pgx.Tx) error {
		require.NoError(t, accounts.Update(b.at(5), tx, set(1, 5)))
		_, err := tx.Exec(b.ctx, "SELECT 1/0")
		require.Error(t, err)
		return nil // passed over
	})
	require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
	require.Nil(t, b.account(1).Fence)
}

func TestInTxOptionsAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, o := range []pgxfence.TxOptions{
		{MaxAttempts: -1}, {IdleTimeout: time.Microsecond}, {Tx: pgx.TxOptions{AccessMode: pgx.ReadOnly}},
	} {
		require.ErrorIs(t, pgxfence.InTxOptions(b.at(5), b.pool, o, nil), pgxfence.ErrUsage)
	}
	for want, o := range map[string]time.Duration{"30s": 0, "1234ms": 1234 * time.Millisecond, "0": -1} {
		require.NoError(t, pgxfence.InTxOptions(b.at(5), b.pool, pgxfence.TxOptions{IdleTimeout: o}, func(tx pgx.Tx) error {
			var got string
			require.NoError(t, tx.QueryRow(b.ctx, "SHOW idle_in_transaction_session_timeout").Scan(&got))
			require.Equal(t, want, got)
			return nil
		}))
	}
	require.Equal(t, "0", get[string](b, "SHOW idle_in_transaction_session_timeout"), "gone with the transaction")
}

// On a connection that is in a transaction, COMMIT would be for the caller's writes
// too, and a refusal would undo them.
func TestInTxInsideATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pooled, err := b.pool.Acquire(b.ctx)
	require.NoError(t, err)
	defer pooled.Release()
	for _, db := range []interface {
		pgxfence.Beginner
		Begin(ctx context.Context) (pgx.Tx, error)
	}{b.connect(), pooled} {
		for _, spoil := range []string{"UPDATE accounts SET balance = 9 WHERE id = 2", "SELECT 1/0"} {
			tx, err := db.Begin(b.ctx)
			require.NoError(t, err)
			_, _ = tx.Exec(b.ctx, spoil)
			require.ErrorIs(t, pgxfence.InTx(b.at(5), db, addOne(b.ctx)), pgxfence.ErrUsage)
			_, err = pgxfence.Once(b.at(5), db, effect("k"), debit(b.ctx))
			require.ErrorIs(t, err, pgxfence.ErrUsage)
			require.NoError(t, tx.Rollback(b.ctx), "the caller's transaction is as it was")
		}
		require.NoError(t, pgxfence.InTx(b.at(5), db, func(pgx.Tx) error { return nil }), "after it all is well")
	}
	require.Zero(t, b.account(1).Balance)
	require.Zero(t, b.account(2).Balance)
}

// A transaction whose client is frozen is ended by the server, so the successor
// does not wait for ever.
func TestInTxIdleTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := pgxfence.InTxOptions(b.at(5), b.pool, pgxfence.TxOptions{IdleTimeout: 3 * time.Second}, func(tx pgx.Tx) error {
		require.NoError(t, addOne(b.ctx)(tx))
		require.NoError(t, pgxfence.Seal(b.at(6), b.pool), "it waits until the server has ended us")
		return nil
	})
	require.ErrorIs(t, err, pgxfence.ErrUnavailable)
	require.NotErrorIs(t, err, pgxfence.ErrIndeterminate, "what was ended before COMMIT has not happened")
	require.Equal(t, int64(0), b.account(1).Balance)
}

// E11: two resources in opposite order. Through Resources they are sealed in one
// order; sealed by hand they deadlock, which is retryable and not stale.
func TestTwoResources(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := withResource(b.at(5), "account/2", 6)
	var wg sync.WaitGroup
	for i := range 20 {
		order := []string{"account/1", "account/2"}
		if i%2 == 1 {
			order = []string{"account/2", "account/1"}
		}
		wg.Go(func() {
			require.NoError(t, pgxfence.InTxOptions(ctx, b.pool, pgxfence.TxOptions{Resources: order, MaxAttempts: 1}, addOne(b.ctx)))
		})
	}
	wg.Wait()
	require.Equal(t, int64(20), b.account(1).Balance)
}

func TestDeadlockIsRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := withResource(b.at(5), "account/2", 6)
	var met sync.WaitGroup
	met.Add(2)
	var deadlocks atomic.Int32
	run := func(first, second string) error {
		runs := 0
		return pgxfence.InTxOptions(ctx, b.pool, pgxfence.TxOptions{Resources: []string{first}}, func(tx pgx.Tx) error {
			runs++
			if runs == 1 {
				met.Done()
				met.Wait()
			}
			err := pgxfence.Seal(ctx, tx, second)
			if err != nil {
				deadlocks.Add(1)
				requireState(t, err, "40P01")
				require.True(t, pgxfence.Retryable(err))
			}
			return err
		})
	}
	errs := make(chan error, 2)
	go func() { errs <- run("account/1", "account/2") }()
	go func() { errs <- run("account/2", "account/1") }()
	require.NoError(t, errors.Join(<-errs, <-errs))
	require.Positive(t, deadlocks.Load())
}

var isolations = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// E10: token 30 commits while token 29 waits on the row.
func TestNewerTokenCommitsWhileOlderWaits(t *testing.T) {
	t.Parallel()
	for _, iso := range isolations {
		t.Run(fmt.Sprint("row fence ", iso), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			newer, err := b.pool.Begin(b.ctx)
			require.NoError(t, err)
			require.NoError(t, accounts.Update(b.at(30), newer, set(1, 30)))
			older, err := b.pool.BeginTx(b.ctx, pgx.TxOptions{IsoLevel: iso})
			require.NoError(t, err)
			done := make(chan error)
			go func() { done <- accounts.Update(b.at(29), older, set(1, 29)) }()
			b.waiting(1)
			require.NoError(t, newer.Commit(b.ctx))
			err = <-done
			if iso == pgx.ReadCommitted {
				requireStale(t, err, 29, 30)
			} else {
				requireState(t, err, "40001")
				require.True(t, pgxfence.Retryable(err))
			}
			require.NoError(t, older.Rollback(b.ctx))
			require.Equal(t, is(30, 30), b.account(1))
		})
		t.Run(fmt.Sprint("InTx ", iso), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			newer, err := b.pool.Begin(b.ctx)
			require.NoError(t, err)
			require.NoError(t, pgxfence.Seal(b.at(30), newer))
			done := make(chan error)
			go func() {
				done <- pgxfence.InTxOptions(b.at(29), b.pool, pgxfence.TxOptions{Tx: pgx.TxOptions{IsoLevel: iso}}, addOne(b.ctx))
			}()
			b.waiting(1)
			require.NoError(t, newer.Commit(b.ctx))
			requireStale(t, <-done, 29, 30)
		})
	}
}

// In a transaction of our own a conflict is tried again, a bounded number of times.
func TestConflictsAreRetriedBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for attempts, want := range map[int]int{0: 5, 1: 1, 3: 3} {
		runs := 0
		err := pgxfence.InTxOptions(b.at(5), b.pool, pgxfence.TxOptions{MaxAttempts: attempts}, func(tx pgx.Tx) error {
			runs++
			_, err := tx.Exec(b.ctx, "DO $$BEGIN RAISE SQLSTATE '40001'; END$$")
			return err
		})
		requireState(t, err, "40001")
		require.Equal(t, want, runs)
	}
}

// The reply to COMMIT is lost: unknown, and never run again.
func TestInTxLostReply(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied(one)
	var before int64
	lost := 0
	everyCut(t, proxy, func(string) {
		require.NoError(t, pool.Ping(b.ctx))
		before = b.account(1).Balance
	}, func(cut string) {
		runs := 0
		err := pgxfence.InTx(b.at(5), pool, func(tx pgx.Tx) error {
			runs++
			return addOne(b.ctx)(tx)
		})
		require.LessOrEqual(t, runs, 1, cut)
		require.NotErrorIs(t, err, fence.ErrStale, cut)
		require.NoError(t, pgxfence.Seal(b.at(5), b.pool), "the lost transaction has ended")
		after := b.account(1).Balance
		switch {
		case err == nil:
			require.Equal(t, before+1, after, cut)
		case errors.Is(err, pgxfence.ErrIndeterminate):
			lost++
			require.LessOrEqual(t, after, before+1, cut)
		default:
			require.Equal(t, before, after, "%s: %v says that nothing happened", cut, err)
		}
	})
	require.Positive(t, lost)
}

// A pgx.Tx is no Beginner, so that InTx cannot nest by mistake.
func TestTxIsNoBeginner(t *testing.T) {
	t.Parallel()
	var tx any = (*pgxpool.Tx)(nil)
	_, ok := tx.(pgxfence.Beginner)
	require.False(t, ok)
}

// COPY and batches commit under the fence.
func TestInTxCopyAndBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	load := func(tx pgx.Tx) error {
		_, err := tx.CopyFrom(b.ctx, accounts.Name, []string{"id"}, pgx.CopyFromRows([][]any{{int64(100)}, {int64(101)}}))
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		batch.Queue("UPDATE accounts SET balance = 7 WHERE id >= 100")
		return tx.SendBatch(b.ctx, batch).Close()
	}
	require.NoError(t, pgxfence.Seal(b.at(9), b.pool))
	requireStale(t, pgxfence.InTx(b.at(8), b.pool, load), 8, 9)
	require.NoError(t, pgxfence.InTx(b.at(9), b.pool, load))
	require.Equal(t, 2, get[int](b, "SELECT count(*) FROM accounts WHERE balance = 7"))
}
