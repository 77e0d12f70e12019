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
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

type receipt struct {
	ID      string
	Balance int64
}

// debit adds 100 and returns a receipt.
func debit(ctx context.Context) func(pgx.Tx) (receipt, error) {
	return func(tx pgx.Tx) (r receipt, err error) {
		r.ID = "r-1"
		err = tx.QueryRow(ctx, "UPDATE accounts SET balance = balance + 100 WHERE id = 1 RETURNING balance").Scan(&r.Balance)
		return r, err
	}
}

func effect(key string) pgxfence.Effect { return pgxfence.Effect{Key: key, Name: "debit"} }

// E04, C05: a relative update under a newer token, after the first one's lost reply
// or crash, nets +100, and the second attempt learns that it is done.
func TestOnceUnderANewerToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := pgxfence.Once(b.at(5), b.pool, effect("k"), debit(b.ctx))
	require.NoError(t, err)
	require.False(t, first.Replayed)
	second, err := pgxfence.Once(b.at(6), b.pool, effect("k"), debit(b.ctx))
	require.NoError(t, err)
	require.True(t, second.Replayed)
	second.Replayed = false
	require.Equal(t, first.At.UTC(), second.At.UTC())
	second.At = first.At
	require.Equal(t, first, second)
	require.Equal(t, pgxfence.Result[receipt]{Value: receipt{"r-1", 100}, Token: 5, At: first.At}, first)
	require.Equal(t, int64(100), b.account(1).Balance)

	stale, err := pgxfence.Once(b.at(4), b.pool, effect("k"), debit(b.ctx))
	require.NoError(t, err, "what has happened is told to a stale holder too")
	require.True(t, stale.Replayed)
}

// E04's trap, as documented: the plain form applies twice.
func TestRelativeUpdateWithoutOnceAppliesTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	relative := pgxfence.Own{SQL: "UPDATE accounts SET balance = balance + 100, fence_token = @fence_token WHERE id = 1 AND coalesce(fence_token, 0) <= @fence_token"}
	for _, token := range []int64{5, 6} {
		_, err := pgxfence.Exec(b.at(token), b.pool, relative)
		require.NoError(t, err)
	}
	require.Equal(t, int64(200), b.account(1).Balance)
}

// A10: an effect is bound to its name, so one key serves several.
func TestOnceNamesAreApart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{"debit", "notify"} {
		r, err := pgxfence.Once(b.at(5), b.pool, pgxfence.Effect{Key: "ref-1", Name: name}, debit(b.ctx))
		require.NoError(t, err)
		require.False(t, r.Replayed, name)
	}
	for _, e := range []pgxfence.Effect{{Key: "k"}, {Name: "n"}} {
		_, err := pgxfence.Once(b.at(5), b.pool, e, debit(b.ctx))
		require.ErrorIs(t, err, pgxfence.ErrUsage)
		_, err = pgxfence.Lookup[receipt](b.ctx, b.pool, e)
		require.ErrorIs(t, err, pgxfence.ErrUsage)
	}
}

func TestOnceStaleDoesNotRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, pgxfence.Seal(b.at(9), b.pool))
	_, err := pgxfence.Once(b.at(8), b.pool, effect("k"), debit(b.ctx))
	requireStale(t, err, 8, 9)
	require.Zero(t, b.account(1).Balance)
}

func TestOnceFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	own := errors.New("own")
	_, err := pgxfence.Once(b.at(5), b.pool, effect("k"), func(tx pgx.Tx) (receipt, error) {
		r, err := debit(b.ctx)(tx)
		require.NoError(t, err)
		return r, own
	})
	require.Equal(t, own, err)
	_, err = pgxfence.Lookup[receipt](b.ctx, b.pool, effect("k"))
	require.ErrorIs(t, err, pgxfence.ErrNotFound)
	require.Zero(t, b.account(1).Balance)
}

// Many at once, with one token and with many: one effect.
func TestOnceConcurrently(t *testing.T) {
	t.Parallel()
	for _, iso := range isolations {
		t.Run(string(iso), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			e := effect("k")
			e.Tx = pgxfence.TxOptions{Tx: pgx.TxOptions{IsoLevel: iso}, MaxAttempts: 100}
			var wg sync.WaitGroup
			var ran atomic.Int32
			for i := range 12 {
				wg.Go(func() {
					r, err := pgxfence.Once(b.at(5+int64(i%3)), b.pool, e, debit(b.ctx))
					if errors.Is(err, fence.ErrStale) {
						return // refused before the effect had happened
					}
					require.NoError(t, err)
					require.Equal(t, int64(100), r.Value.Balance)
					if !r.Replayed {
						ran.Add(1)
					}
				})
			}
			wg.Wait()
			require.Equal(t, int32(1), ran.Load())
			require.Equal(t, int64(100), b.account(1).Balance)
		})
	}
}

// The same key under two resources: the ledger's own key decides.
func TestOnceUnderTwoResources(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inner := withResource(b.ctx, "account/2", 6)
	r, err := pgxfence.Once(b.at(5), b.pool, effect("k"), func(tx pgx.Tx) (receipt, error) {
		got, err := debit(b.ctx)(tx)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback(b.ctx))
		return got, errors.New("rolled back by hand")
	})
	require.Error(t, err)
	require.Zero(t, r.Value)
	first := true
	r, err = pgxfence.Once(b.at(5), b.pool, effect("k"), func(tx pgx.Tx) (receipt, error) {
		if first {
			first = false
			_, err := pgxfence.Once(inner, b.pool, effect("k"), func(pgx.Tx) (receipt, error) { return receipt{ID: "other"}, nil })
			require.NoError(t, err)
		}
		return debit(b.ctx)(tx)
	})
	require.NoError(t, err)
	require.Equal(t, "other", r.Value.ID)
	require.True(t, r.Replayed)
	require.Zero(t, b.account(1).Balance, "what this attempt did was rolled back")
}

// A lost reply at every protocol message: never a double effect, and resolved.
func TestOnceLostReply(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied(one)
	n := 0
	everyCut(t, proxy, func(string) {
		require.NoError(t, pool.Ping(b.ctx))
		n++
	}, func(cut string) {
		before := b.account(1).Balance
		e := effect(fmt.Sprint("k", n))
		r, err := pgxfence.Once(b.at(5), pool, e, debit(b.ctx))
		if err != nil {
			require.NotErrorIs(t, err, pgxfence.ErrIndeterminate, cut)
			require.NotErrorIs(t, err, fence.ErrStale, cut)
			require.NoError(t, pgxfence.Seal(b.at(5), b.pool))
			require.Equal(t, before, b.account(1).Balance, cut)
			return
		}
		require.Equal(t, before+100, b.account(1).Balance, cut)
		require.Equal(t, before+100, r.Value.Balance, cut)
	})
}

// The commit is unknown and cannot be looked up either.
func TestOnceUnresolved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := b.connect()
	_, err := pgxfence.Once(b.at(5), conn, effect("k"), func(tx pgx.Tx) (receipt, error) {
		r, err := debit(b.ctx)(tx)
		// The constraint holds the commit up until the backend is gone.
		_, fail := tx.Exec(b.ctx, `CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); RETURN NULL; END'`)
		require.NoError(t, fail)
		_, fail = tx.Exec(b.ctx, `CREATE CONSTRAINT TRIGGER hang AFTER INSERT ON fencekit.ledger
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hang()`)
		require.NoError(t, fail)
		return r, err
	})
	require.ErrorIs(t, err, pgxfence.ErrIndeterminate)
	require.NotErrorIs(t, err, fence.ErrStale)
	require.False(t, pgxfence.Retryable(err))
}

// A hit is one round trip.
func TestOnceHitIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied(one)
	for range 2 {
		_, err := pgxfence.Once(b.at(5), pool, effect("k"), debit(b.ctx))
		require.NoError(t, err)
	}
	proxy.RoundTrips()
	r, err := pgxfence.Once(b.at(5), pool, effect("k"), debit(b.ctx))
	require.NoError(t, err)
	require.True(t, r.Replayed)
	require.Equal(t, 1, proxy.RoundTrips())
}

// C15: results come back as they were, the first time too.
func TestOnceResults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	requireResult(b, "string", "ä\x00\"")
	requireResult(b, "int", int64(1)<<62+1)
	requireResult(b, "nil", (*receipt)(nil))
	requireResult(b, "struct", receipt{"x", 1})
	requireResult(b, "map", map[string]any{"a": "b"})
	requireResult(b, "raw", []byte{0, 255, 7})
	requireResult(b, "time", time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))

	_, err := pgxfence.Once(b.at(5), b.pool, effect("chan"), func(pgx.Tx) (chan int, error) { return nil, nil })
	require.ErrorIs(t, err, pgxfence.ErrResult)
	_, err = pgxfence.Lookup[chan int](b.ctx, b.pool, effect("chan"))
	require.ErrorIs(t, err, pgxfence.ErrNotFound, "what cannot be stored has not happened")
	_, err = pgxfence.Lookup[int](b.ctx, b.pool, effect("string"))
	require.ErrorIs(t, err, pgxfence.ErrResult)
	_, err = pgxfence.Lookup[[]byte](b.ctx, b.pool, effect("string"))
	require.ErrorIs(t, err, pgxfence.ErrResult)
}

func requireResult[T any](b *bundle, key string, value T) {
	b.t.Helper()
	for _, replayed := range []bool{false, true} {
		r, err := pgxfence.Once(b.at(5), b.pool, effect(key), func(pgx.Tx) (T, error) { return value, nil })
		require.NoError(b.t, err, key)
		require.Equal(b.t, value, r.Value, key)
		require.Equal(b.t, replayed, r.Replayed, key)
	}
	r, err := pgxfence.Lookup[T](b.ctx, b.pool, effect(key))
	require.NoError(b.t, err)
	require.Equal(b.t, value, r.Value)
}

func TestPrune(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("INSERT INTO fencekit.ledger SELECT 'k' || i, 'n', 'r', 1, 'json', '1', now() - i * interval '1 hour' FROM generate_series(1, 10) i")
	tx, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(b.ctx, "SELECT FROM fencekit.ledger WHERE key = 'k10' FOR UPDATE")
	require.NoError(t, err)
	for _, step := range []struct {
		age   time.Duration
		limit int
		want  int64
	}{{100 * time.Hour, 0, 0}, {9 * time.Hour, 0, 1}, {5 * time.Hour, 2, 2}, {5 * time.Hour, 0, 2}} {
		n, err := pgxfence.Prune(b.ctx, b.pool, step.age, step.limit)
		require.NoError(t, err)
		require.Equal(t, step.want, n, "%+v: the row that another holds is passed over", step)
	}
	require.NoError(t, tx.Rollback(b.ctx))
	require.Equal(t, 5, get[int](b, "SELECT count(*) FROM fencekit.ledger"))
	_, err = pgxfence.Prune(b.ctx, b.pool, -1, 0)
	require.ErrorIs(t, err, pgxfence.ErrUsage)
}
