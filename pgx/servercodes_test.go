package pgxfence_test

import (
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

// E13: all five exec modes, with the value types that all of them know.
func TestExecModes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("CREATE TABLE wide (id bigint PRIMARY KEY, t text, raw bytea, j jsonb, list int[], at timestamptz, n int, fence_token bigint)")
	wide := pgxfence.Table{Name: pgx.Identifier{"wide"}}
	now := time.Now().Truncate(time.Microsecond)
	for i, mode := range modes {
		conn := b.connect(mode.use)
		id, token := int64(i), int64(i+5)
		c := pgxfence.Change{Key: pgxfence.Values{"id": id}, Set: pgxfence.Values{
			"t": "it's", "raw": []byte{0, 255}, "list": []int32{1, 2}, "at": now, "n": int64(7)}}
		if i < 3 { // exec and simple_protocol do not ask the server for types, and pgx has none for a map
			c.Set["j"] = map[string]any{"a": 1}
		}
		for range 2 { // the second time from the cache
			require.NoError(t, wide.Upsert(b.at(token), conn, c), mode.name)
			require.NoError(t, wide.Update(b.at(token), conn, c), mode.name)
		}
		c.Where, c.Args = "n = @n AND t = @t", pgx.NamedArgs{"n": 7, "t": "it's"}
		row, err := pgxfence.UpdateReturning(b.at(token), conn, wide, c, pgx.RowToMap)
		require.NoError(t, err, mode.name)
		require.Equal(t, []any{"it's", []byte{0, 255}, []any{int32(1), int32(2)}, int32(7), token},
			[]any{row["t"], row["raw"], row["list"], row["n"], row["fence_token"]}, mode.name)
		require.WithinDuration(t, now, get[time.Time](b, "SELECT at FROM wide WHERE id = $1", id), 0, mode.name)
		require.Equal(t, i < 3, row["j"] != nil, mode.name)
		requireStale(t, wide.Update(b.at(token-1), conn, pgxfence.Change{Key: c.Key, Set: c.Set}), token-1, token)
	}
}

// E13: a value of the wrong type is an error of its own, in every mode.
func TestTypeErrorIsNotStale(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, mode := range modes {
		conn := b.connect(mode.use)
		for _, v := range []any{"no number", []byte("x"), make(chan int)} {
			c := set(1, 0)
			c.Set["balance"] = v
			err := accounts.Update(b.at(5), conn, c)
			require.Error(t, err, mode.name)
			require.NotErrorIs(t, err, fence.ErrStale, mode.name)
			require.NotErrorIs(t, err, pgxfence.ErrIndeterminate, mode.name)
			require.NotErrorIs(t, err, pgxfence.ErrNotApplied, mode.name)
		}
	}
	require.Nil(t, b.account(1).Fence)
}

// raise makes every update of accounts fail with a state, as other databases do.
func (b *bundle) raise(state, message string) {
	b.exec(fmt.Sprintf(`CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN RAISE EXCEPTION USING ERRCODE = '%s', MESSAGE = '%s'; END$$`, state, message))
	b.exec("CREATE OR REPLACE TRIGGER refuse BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION refuse()")
}

// E21, E30 and the codes of CockroachDB and YugabyteDB.
func TestServerCodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		state                              string
		retryable, unavailable, indefinite bool
	}{
		{"40001", true, false, false},
		{"40P01", true, false, false},
		{"55P03", true, false, false},
		{"57014", true, false, false},
		{"40003", false, false, true},
		{"XX000", false, false, false},
		{"23505", false, false, false},
		{"22012", false, false, false},
		{"53300", true, true, false},
		{"57P03", true, true, false},
		{"08006", true, true, false},
		{"08P01", true, true, false}, // only FATAL does it end the connection
		{"08007", false, false, true},
		{"25006", true, true, false},
		{"26000", true, true, false},
		{"42P05", true, true, false},
	} {
		b.raise(c.state, "Try again")
		err := accounts.Update(b.at(5), b.connect(), set(1, 5))
		requireState(t, err, c.state)
		require.Equal(t, c.retryable, pgxfence.Retryable(err), c.state)
		if c.unavailable {
			require.ErrorIs(t, err, pgxfence.ErrUnavailable, c.state)
		}
		if c.indefinite {
			require.ErrorIs(t, err, pgxfence.ErrIndeterminate, c.state)
		} else {
			require.NotErrorIs(t, err, pgxfence.ErrIndeterminate, c.state)
		}
	}
	b.raise("40003", "unknown")
	require.ErrorIs(t, accounts.Update(b.at(5), b.pool, set(1, 5)), pgxfence.ErrIndeterminate, "the pool's repeat ends the same")
	require.Nil(t, b.account(1).Fence)
}

// E30: a lock and a statement timeout, real ones.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	require.NoError(t, accounts.Update(b.at(9), tx, set(1, 9)))
	for setting, state := range map[string]string{"lock_timeout": "55P03", "statement_timeout": "57014"} {
		conn := b.connect(func(c *pgx.ConnConfig) { c.RuntimeParams[setting] = "20" })
		err := accounts.Update(b.at(5), conn, set(1, 5))
		requireState(t, err, state)
		require.True(t, pgxfence.Retryable(err))
	}
	require.NoError(t, tx.Rollback(b.ctx))
	require.Nil(t, b.account(1).Fence)
}

// E19: a server that takes no writes is unavailable, and the pool gives up the
// connection that leads there.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool := b.open(b.url, one, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on" })
	pid := func() (pid int) {
		require.NoError(t, pool.QueryRow(b.ctx, "SELECT pg_backend_pid()").Scan(&pid))
		return pid
	}
	for _, write := range []func() error{
		func() error { return accounts.Update(b.at(5), pool, set(1, 5)) },
		func() error { return accounts.Upsert(b.at(5), pool, set(1, 5)) },
		func() error { return pgxfence.Seal(b.at(5), pool) },
		func() error { return pgxfence.InTx(b.at(5), pool, addOne(b.ctx)) },
	} {
		before := pid()
		err := write()
		require.ErrorIs(t, err, pgxfence.ErrUnavailable)
		requireState(t, err, "25006")
		require.NotEqual(t, before, pid(), "the connection was discarded")
	}
}

// E14: PgBouncer in transaction mode. Nothing is left in the session, and what does
// not fit the pooler is a matter of configuration and not a stale token.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	for _, mode := range modes[1:] { // with cache_statement see TestPgBouncerMixesUpStatements
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			bouncer := devstack.PgBouncerForTest(t, server.Addr(), "")
			database := get[string](b, "SELECT current_database()")
			url := bouncer.URL(database)
			edit := func(p *pgxpool.Config) { p.ConnConfig.DefaultQueryExecMode = mode.mode; p.MaxConns = 4 }
			pools := []*pgxpool.Pool{b.open(url, edit), b.open(url, edit)}
			require.NoError(t, pgxfence.Enforce(b.ctx, b.pool, guarded, ""))
			for i, pool := range pools {
				token := int64(i + 5)
				useEveryHelper(b, pool, token)
				require.NoError(t, pgxfence.InTx(b.at(token), pool, addOne(b.ctx)))
				_, err := pgxfence.Once(b.at(token), pool, effect("k"), debit(b.ctx))
				require.NoError(t, err)
				_, err = pool.Exec(b.ctx, "UPDATE accounts SET balance = 0")
				requireUnfenced(t, err)
			}
			requireStale(t, accounts.Update(b.at(5), pools[0], set(1, 1)), 5, 6)
			var left string
			require.NoError(t, pools[0].QueryRow(b.ctx, `SELECT coalesce(current_setting('fencekit.token', true), '') ||
				coalesce(current_setting('fencekit.sealed', true), '') || current_setting('idle_in_transaction_session_timeout')`).Scan(&left))
			require.Equal(t, "0", left, "no session state")
			require.Zero(t, get[int](b, `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
				WHERE locktype = 'advisory' AND datname = current_database()`))
		})
	}
}

// E14: a pooler that loses its server answers with an error of its own (FATAL 08P01).
// It does not say that nothing has happened: here the commit has.
func TestPgBouncerLosesItsServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := devstack.PostgresProxyForTest(t, server.Addr())
	bouncer := devstack.PgBouncerForTest(t, proxy.Addr(), "")
	pool := b.open(bouncer.URL(get[string](b, "SELECT current_database()")), one, func(p *pgxpool.Config) {
		p.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	})
	require.NoError(t, pool.Ping(b.ctx))
	runs := 0
	err := pgxfence.InTx(b.at(5), pool, func(tx pgx.Tx) error {
		runs++
		err := addOne(b.ctx)(tx)
		cutAt(proxy, true, 1)
		return err
	})
	require.ErrorIs(t, err, pgxfence.ErrIndeterminate)
	require.False(t, pgxfence.Retryable(err))
	require.Equal(t, 1, runs)
	eventually(t, func() bool { return b.account(1).Balance == 1 }, "it was committed")

	conn, err := pool.Acquire(b.ctx)
	require.NoError(t, err)
	defer conn.Release()
	require.NoError(t, conn.Ping(b.ctx))
	cutAt(proxy, true, 1)
	require.ErrorIs(t, accounts.Update(b.at(6), conn, set(2, 6)), pgxfence.ErrIndeterminate)
}

// E14: the default mode behind a pooler that does not know prepared statements.
func TestPgBouncerMixesUpStatements(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bouncer := devstack.PgBouncerForTest(t, server.Addr(), "")
	url := bouncer.URL(get[string](b, "SELECT current_database()"))
	failed := 0
	for i := range 4 {
		pool := b.open(url)
		err := accounts.Update(b.at(int64(i+5)), pool, set(1, 1))
		if err != nil {
			failed++
			require.ErrorIs(t, err, pgxfence.ErrUnavailable)
			require.NotErrorIs(t, err, fence.ErrStale)
		}
	}
	t.Logf("%d of 4 clients were refused", failed)
}
