package pgxfence_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// server is shared by the tests of this package; each takes a database of its own.
// It is nil where there is no Postgres.
var (
	server   *devstack.Postgres
	template string
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		playChild()
		return
	}
	code, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withServer(run func() int) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	server, err = devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if errors.Is(err, devstack.ErrNoPostgres) && !devstack.RequireReal() {
		server = nil
		if err := flag.Set("test.run", "^Test"); err != nil { // an example cannot be skipped
			return 1, err
		}
		return run(), nil
	}
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if err := makeTemplate(ctx); err != nil {
		return 1, err
	}
	code = run()
	return code, server.DropDatabase(context.Background(), template)
}

const tables = `
CREATE TABLE accounts (
	id bigint PRIMARY KEY, owner text NOT NULL DEFAULT '', balance bigint NOT NULL DEFAULT 0,
	status text NOT NULL DEFAULT 'open', fence_token bigint);
INSERT INTO accounts (id, balance) VALUES (1, 0), (2, 0);
CREATE TABLE owned (id bigint PRIMARY KEY, v text, fence_token bigint, holder text);
INSERT INTO owned (id) VALUES (1);`

// makeTemplate prepares what every test finds in its database.
func makeTemplate(ctx context.Context) (err error) {
	if template, err = server.CreateDatabase(ctx, ""); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, server.URL(template))
	if err != nil {
		return err
	}
	if err = pgxfence.Migrate(ctx, conn); err == nil {
		_, err = conn.Exec(ctx, tables)
	}
	return errors.Join(err, conn.Close(ctx))
}

// accounts is the table of most tests.
var accounts = pgxfence.Table{Name: pgx.Identifier{"accounts"}}

// bundle is what a test gets: a database of its own, and a pool on it.
type bundle struct {
	t    testing.TB
	ctx  context.Context
	url  string
	pool *pgxpool.Pool
}

func setup(t testing.TB) *bundle {
	t.Helper()
	if server == nil {
		t.Skip("skipped: no Postgres")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	b := &bundle{t: t, ctx: ctx, url: server.URL(server.DatabaseForTest(t, template))}
	b.pool = b.open(b.url)
	return b
}

// open opens a pool that the test closes.
func (b *bundle) open(address string, edits ...func(*pgxpool.Config)) *pgxpool.Pool {
	b.t.Helper()
	config, err := pgxpool.ParseConfig(address)
	require.NoError(b.t, err)
	for _, edit := range edits {
		edit(config)
	}
	pool, err := pgxpool.NewWithConfig(b.ctx, config)
	require.NoError(b.t, err)
	b.t.Cleanup(pool.Close)
	return pool
}

func (b *bundle) connect(edits ...func(*pgx.ConnConfig)) *pgx.Conn {
	b.t.Helper()
	config, err := pgx.ParseConfig(b.url)
	require.NoError(b.t, err)
	for _, edit := range edits {
		edit(config)
	}
	conn, err := pgx.ConnectConfig(b.ctx, config)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// proxied is a pool behind a proxy.
func (b *bundle) proxied(edits ...func(*pgxpool.Config)) (*devstack.PostgresProxy, *pgxpool.Pool) {
	b.t.Helper()
	proxy := devstack.PostgresProxyForTest(b.t, server.Addr())
	return proxy, b.open(through(b.t, b.url, proxy.Addr()), edits...)
}

func through(t testing.TB, raw, addr string) string {
	u, err := url.Parse(raw)
	require.NoError(t, err)
	u.Host = addr
	return u.String()
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.ctx, sql, args...)
	require.NoError(b.t, err)
}

// get reads one value.
func get[T any](b *bundle, sql string, args ...any) (v T) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.ctx, sql, args...).Scan(&v))
	return v
}

// row is an account as it is.
type row struct {
	Balance int64
	Fence   *int64
}

func (b *bundle) account(id int) row {
	b.t.Helper()
	rows, err := b.pool.Query(b.ctx, "SELECT balance, fence_token FROM accounts WHERE id = $1", id)
	require.NoError(b.t, err)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
	require.NoError(b.t, err)
	return r
}

// is builds the row to compare with.
func is(balance, token int64) row { return row{balance, &token} }

// with puts a token of account/1 into ctx.
func with(ctx context.Context, token int64) context.Context {
	return withResource(ctx, "account/1", token)
}

func withResource(ctx context.Context, resource string, token int64) context.Context {
	return fence.NewContext(ctx, fence.Token{Resource: resource, Value: fence.Value(token), Owner: fmt.Sprint("owner-", token)})
}

// at is a context of the test with a token.
func (b *bundle) at(token int64) context.Context { return with(b.ctx, token) }

// set writes a balance to an account.
func set(id int, balance int64) pgxfence.Change {
	return pgxfence.Change{Key: pgxfence.Values{"id": id}, Set: pgxfence.Values{"balance": balance}}
}

func requireStale(t testing.TB, err error, token, current int64) {
	t.Helper()
	require.Equal(t, &fence.StaleError{Resource: "account/1", Token: fence.Value(token), Current: fence.Value(current)}, err)
	require.ErrorIs(t, err, fence.ErrStale)
}

// eventually is for what the server does in its own time.
func eventually(t testing.TB, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 2*time.Millisecond, what)
}

// waiting returns when n sessions of the database wait for a lock.
func (b *bundle) waiting(n int) {
	b.t.Helper()
	eventually(b.t, func() bool {
		return get[int](b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") >= n
	}, "sessions wait for a lock")
}
