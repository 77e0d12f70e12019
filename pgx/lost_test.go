package pgxfence_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// cutAt breaks the connection at the n-th message of one direction, once, and
// signals that.
func cutAt(proxy *devstack.PostgresProxy, fromServer bool, n int) (struck func() bool) {
	seen, done := 0, false
	proxy.CutWhen(func(m devstack.PostgresMessage) bool {
		if done || m.Type == 0 || m.FromServer != fromServer || m.Type == 'R' {
			return false
		}
		seen++
		done = seen == n
		return done
	})
	return func() bool { proxy.CutWhen(nil); return done }
}

// everyCut runs the step with the connection cut at its first message, its second,
// and so on, in both directions, until a run comes through uncut. prepare is told
// before each.
func everyCut(t *testing.T, proxy *devstack.PostgresProxy, prepare, step func(cut string)) {
	t.Helper()
	for _, fromServer := range []bool{true, false} {
		for n := 1; ; n++ {
			require.Less(t, n, 60, "the step ends some time")
			name := fmt.Sprintf("server=%v message %d", fromServer, n)
			prepare(name)
			struck := cutAt(proxy, fromServer, n)
			step(name)
			if !struck() {
				break
			}
		}
	}
}

func one(c *pgxpool.Config) { c.MaxConns = 1 }

// E03: a lost reply on a connection is unknown, never stale; the repeat with the
// same absolute values succeeds.
func TestLostReplyOnConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied(one)
	var token int64
	var conn *pgxpool.Conn
	prepare := func(string) {
		var err error
		conn, err = pool.Acquire(b.ctx)
		require.NoError(t, err)
		require.NoError(t, conn.Ping(b.ctx))
		token++
	}
	lost := 0
	everyCut(t, proxy, prepare, func(cut string) {
		defer conn.Release()
		err := accounts.Update(b.at(token), conn, set(1, token))
		if err == nil {
			return
		}
		lost++
		require.ErrorIs(t, err, pgxfence.ErrIndeterminate, cut)
		require.NotErrorIs(t, err, fence.ErrStale, cut)
		require.False(t, pgxfence.Retryable(err), "not marked safe to retry")
		require.NoError(t, accounts.Update(b.at(token), b.pool, set(1, token)), "the same again")
		require.Equal(t, is(token, token), b.account(1))
	})
	require.Greater(t, lost, 5)
}

// On a pool every helper that sends absolute values gets over one lost reply by
// itself, at whatever protocol message it is lost.
func TestLostReplyOnPool(t *testing.T) {
	t.Parallel()
	type write struct {
		name string
		do   func(ctx context.Context, pool *pgxpool.Pool, v int64) error
	}
	for _, w := range []write{
		{"update", func(ctx context.Context, pool *pgxpool.Pool, v int64) error {
			return accounts.Update(ctx, pool, set(1, v))
		}},
		{"upsert", func(ctx context.Context, pool *pgxpool.Pool, v int64) error {
			return accounts.Upsert(ctx, pool, set(1, v))
		}},
		{"returning", func(ctx context.Context, pool *pgxpool.Pool, v int64) error {
			m, err := pgxfence.UpdateReturning(ctx, pool, accounts, set(1, v), pgx.RowToMap)
			if err == nil && m["balance"] != v {
				return fmt.Errorf("the row is %v", m)
			}
			return err
		}},
		{"many", func(ctx context.Context, pool *pgxpool.Pool, v int64) error {
			outcomes, err := accounts.UpdateMany(ctx, pool, pgxfence.Changes{Key: []pgxfence.Column{{Name: "id", Values: []int64{1}}},
				Set: []pgxfence.Column{{Name: "balance", Values: []int64{v}}}})
			if err != nil {
				return err
			}
			return outcomes[0]
		}},
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			proxy, pool := b.proxied(one)
			var token int64
			everyCut(t, proxy, func(string) {
				require.NoError(t, pool.Ping(b.ctx))
				token++
			}, func(cut string) {
				require.NoError(t, w.do(b.at(token), pool, token), cut)
				require.Equal(t, is(token, token), b.account(1), cut)
			})
		})
	}
}

// A repeat that finds a newer token does not know whether the first try came before.
func TestLostReplyThenStale(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied(one)
	require.NoError(t, pool.Ping(b.ctx))
	proxy.CutWhen(func(m devstack.PostgresMessage) bool {
		if !m.FromServer || m.Type != 'C' {
			return false
		}
		b.exec("UPDATE accounts SET balance = 90, fence_token = 9 WHERE id = 2")
		return true
	})
	fail := make(chan error, 1)
	go func() { fail <- accounts.Update(b.at(5), pool, set(2, 5)) }()
	err := <-fail
	proxy.CutWhen(nil)
	require.ErrorIs(t, err, pgxfence.ErrIndeterminate)
	require.NotErrorIs(t, err, fence.ErrStale)
	var lost *pgxfence.IndeterminateError
	require.ErrorAs(t, err, &lost)
	require.Error(t, lost.Repeat)
	require.ErrorContains(t, err, "repeated")
}

// A repeat whose condition is false, because the first try may have made it so, does
// not know either.
func TestLostReplyWithCondition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied(one)
	require.NoError(t, pool.Ping(b.ctx))
	c := set(1, 5)
	c.Set["status"], c.Where = "closed", "status = 'open'"
	closes := true
	proxy.CutWhen(func(m devstack.PostgresMessage) bool {
		cut := closes && m.FromServer && m.Type == 'C'
		closes = closes && !cut
		return cut
	})
	// The proxy breaks the connection before the server has said that it is done, so
	// the first try ends either way.
	err := accounts.Update(b.at(5), pool, c)
	if err != nil {
		require.ErrorIs(t, err, pgxfence.ErrIndeterminate)
		require.NotErrorIs(t, err, pgxfence.ErrNotApplied)
	}
	require.Equal(t, is(5, 5), b.account(1))
}

// Own SQL may be relative: it is never repeated.
func TestLostReplyOfOwnSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied(one)
	require.NoError(t, pool.Ping(b.ctx))
	cutAt(proxy, true, 3)
	_, err := pgxfence.Exec(b.at(5), pool, ownSet(1, 5))
	require.ErrorIs(t, err, pgxfence.ErrIndeterminate)
}

// The context's end while the server works is a lost reply too.
func TestContextEndsWhileWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	require.NoError(t, accounts.Update(b.at(5), tx, set(1, 5)))
	ctx, cancel := context.WithCancel(b.at(6))
	done := make(chan error)
	go func() { done <- accounts.Update(ctx, b.pool, set(1, 6)) }()
	b.waiting(1)
	cancel()
	err = <-done
	require.ErrorIs(t, err, pgxfence.ErrIndeterminate)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, tx.Rollback(b.ctx))

	require.ErrorIs(t, accounts.Update(ctx, b.pool, set(1, 6)), pgxfence.ErrUnavailable, "a context that ended before")
}

// A transaction ends with its connection: nothing in it is unknown before COMMIT.
func TestLostReplyInTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied(one)
	tx, err := pool.Begin(b.ctx)
	require.NoError(t, err)
	cutAt(proxy, true, 2)
	err = accounts.Update(b.at(5), tx, set(1, 5))
	require.ErrorIs(t, err, pgxfence.ErrUnavailable)
	require.NotErrorIs(t, err, pgxfence.ErrIndeterminate)
	proxy.CutWhen(nil)
	require.Error(t, tx.Commit(b.ctx))
	require.Nil(t, b.account(1).Fence)
}

// E22: the backend of an idle connection was terminated.
func TestTerminatedWhileIdle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool := b.open(b.url, one)
	kill := func(q pgxfence.Querier) {
		rows, err := q.Query(b.ctx, "SELECT pg_backend_pid()")
		require.NoError(t, err)
		pid, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		require.NoError(t, err)
		b.exec("SELECT pg_terminate_backend($1, 10000)", pid)
	}
	kill(pool)
	require.NoError(t, accounts.Update(b.at(5), pool, set(1, 5)), "a pool repeats absolute values")
	conn := b.connect()
	kill(conn)
	err := accounts.Update(b.at(6), conn, set(1, 6))
	require.NotErrorIs(t, err, fence.ErrStale)
	require.ErrorIs(t, err, pgxfence.ErrIndeterminate, "nothing tells an idle backend's end from a busy one's")
	require.ErrorIs(t, accounts.Update(b.at(6), conn, set(1, 6)), pgxfence.ErrUnavailable, "nothing can be sent any more")
}

// A pool that cannot connect.
func TestNoServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied(func(c *pgxpool.Config) { c.ConnConfig.ConnectTimeout = 30 * time.Second })
	require.NoError(t, proxy.Refuse())
	require.ErrorIs(t, accounts.Update(b.at(5), pool, set(1, 5)), pgxfence.ErrUnavailable)
	err := pgxfence.InTx(b.at(5), pool, func(pgx.Tx) error { return nil })
	require.ErrorIs(t, err, pgxfence.ErrUnavailable)
	require.True(t, pgxfence.Retryable(err))
	require.NoError(t, proxy.Accept())
	require.NoError(t, accounts.Update(b.at(5), pool, set(1, 5)))
}

// The other writes, cut at every message: done, or unknown; never stale, never refused
// for what the lost attempt itself has done.
func TestLostReplyOfSealClaimAndDelete(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(b *bundle, ctx context.Context, pool *pgxpool.Pool) error{
		"seal": func(_ *bundle, ctx context.Context, pool *pgxpool.Pool) error { return pgxfence.Seal(ctx, pool) },
		"claim": func(_ *bundle, ctx context.Context, pool *pgxpool.Pool) error {
			_, err := pgxfence.Claim(ctx, pool, accounts, pgxfence.Change{Key: pgxfence.Values{"id": 1}}, pgx.RowToMap)
			return err
		},
		"delete": func(_ *bundle, ctx context.Context, pool *pgxpool.Pool) error {
			return accounts.Delete(ctx, pool, pgxfence.Change{Key: pgxfence.Values{"id": 1}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			proxy, pool := b.proxied(one)
			var token int64
			done := 0
			everyCut(t, proxy, func(string) {
				require.NoError(t, pool.Ping(b.ctx))
				b.exec("INSERT INTO accounts (id) VALUES (1) ON CONFLICT DO NOTHING")
				token++
			}, func(cut string) {
				err := do(b, b.at(token), pool)
				if err == nil {
					done++
					return
				}
				require.ErrorIs(t, err, pgxfence.ErrIndeterminate, cut)
				require.NotErrorIs(t, err, fence.ErrStale, cut)
			})
			require.Positive(t, done)
		})
	}
}
