package devstack_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

// pgConnect opens a connection that the test closes.
func pgConnect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestPostgresDatabasesFromTemplate(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := devstack.PostgresForTest(t)
	template := p.DatabaseForTest(t, "")
	conn := pgConnect(t, p.URL(template))
	_, err := conn.Exec(ctx, "CREATE TABLE t AS SELECT 7 AS n")
	require.NoError(t, err)
	require.NoError(t, conn.Close(ctx))

	a, b := pgConnect(t, p.URL(p.DatabaseForTest(t, template))), pgConnect(t, p.URL(p.DatabaseForTest(t, template)))
	_, err = a.Exec(ctx, "UPDATE t SET n = 8")
	require.NoError(t, err)
	var n int
	require.NoError(t, b.QueryRow(ctx, "SELECT n FROM t").Scan(&n))
	require.Equal(t, 7, n, "each test has a database of its own")
}

func TestPostgresConfAndStop(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := devstack.PostgresForTest(t, devstack.PostgresConfig{Conf: []string{"work_mem=5MB"}})
	var mem string
	require.NoError(t, pgConnect(t, p.URL("")).QueryRow(ctx, "SHOW work_mem").Scan(&mem))
	require.Equal(t, "5MB", mem)

	require.NoError(t, p.Stop(), "open sessions do not hold it up")
	require.NoError(t, p.Stop(), "twice is fine")
	require.False(t, listens(p.Addr()))
}

func TestPostgresRefusesBadConf(t *testing.T) {
	t.Parallel()
	devstack.PostgresForTest(t) // skips where there is no server
	_, err := devstack.StartPostgres(testContext(t), devstack.PostgresConfig{Conf: []string{"no_such_setting=1"}})
	require.ErrorContains(t, err, "no_such_setting", "the server's own words are in the error")
}

func TestPostgresAtDatabaseURL(t *testing.T) {
	p := devstack.PostgresForTest(t, devstack.PostgresConfig{Own: true})
	t.Setenv("DATABASE_URL", p.URL(""))
	found, err := devstack.StartPostgres(testContext(t), devstack.PostgresConfig{})
	require.NoError(t, err)
	require.Equal(t, p.Addr(), found.Addr())
	require.NoError(t, found.Stop())
	require.True(t, listens(p.Addr()), "a server that was found is left alone")

	t.Setenv("DATABASE_URL", "postgres://127.0.0.1:1/x")
	_, err = devstack.StartPostgres(testContext(t), devstack.PostgresConfig{})
	require.ErrorContains(t, err, "DATABASE_URL")
}

func TestPostgresProxyCountsAndCuts(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := devstack.PostgresForTest(t)
	proxy := devstack.PostgresProxyForTest(t, p.Addr())
	u, err := url.Parse(p.URL(""))
	require.NoError(t, err)
	u.Host = proxy.Addr()

	conn := pgConnect(t, u.String())
	require.Zero(t, proxy.RoundTrips(), "connecting is not counted")
	_, err = conn.Exec(ctx, "SELECT $1::int", pgx.QueryExecModeExec, 1)
	require.NoError(t, err)
	require.Equal(t, 1, proxy.RoundTrips())

	proxy.CutWhen(func(m devstack.PostgresMessage) bool { return m.FromServer && m.Type == 'C' })
	_, err = conn.Exec(ctx, "CREATE TABLE lost_reply ()")
	require.Error(t, err)
	require.True(t, conn.IsClosed())
	proxy.CutWhen(nil)
	again := pgConnect(t, u.String())
	eventually(t, func() bool {
		var there bool
		require.NoError(t, again.QueryRow(ctx, "SELECT to_regclass('lost_reply') IS NOT NULL").Scan(&there))
		return there
	}, "only the reply was lost")
}

func TestPgBouncerSharesOneConnection(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := devstack.PostgresForTest(t)
	b := devstack.PgBouncerForTest(t, p.Addr(), "")
	pids := map[int]bool{}
	for range 2 {
		var pid int
		require.NoError(t, pgConnect(t, b.URL("postgres")).QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid))
		pids[pid] = true
	}
	require.Len(t, pids, 1, "two clients, one server connection")
}
