package testsuite_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/testsuite"
)

// server is shared by the tests of this package; each takes a database of its own.
// It is nil where there is no Postgres.
var (
	server   *devstack.Postgres
	template string
)

func TestMain(m *testing.M) {
	code, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withServer(run func() int) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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
CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL DEFAULT 0, status text NOT NULL DEFAULT 'open', fence_token bigint);
CREATE TABLE marks (id bigint PRIMARY KEY, v text NOT NULL, fence_token bigint);
INSERT INTO accounts (id) VALUES (1), (2);
INSERT INTO marks (id, v) VALUES (1, 'first');`

func makeTemplate(ctx context.Context) (err error) {
	if template, err = server.CreateDatabase(ctx, ""); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, server.URL(template))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if err := pgxfence.Migrate(ctx, conn); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, tables)
	return err
}

// database is a pool on a database of the test's own.
func database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	if server == nil {
		t.Skip("skipped: no Postgres")
	}
	pool, err := pgxpool.New(context.Background(), server.URL(server.DatabaseForTest(t, template)))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// resetTables brings back what the template has.
func resetTables(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `UPDATE accounts SET balance = 0, status = 'open', fence_token = NULL;
		DELETE FROM marks; INSERT INTO marks (id, v) VALUES (1, 'first');
		DELETE FROM fencekit.fence; DELETE FROM fencekit.ledger`)
	return err
}

// fakeT is a test that may fail.
type fakeT struct {
	real    *testing.T // nil if there is none
	mu      sync.Mutex
	text    string
	failed  bool
	skipped bool
	cleanup []func()
}

func (f *fakeT) Helper()           {}
func (f *fakeT) T() *testing.T     { return f.real }
func (f *fakeT) Cleanup(fn func()) { f.cleanup = append(f.cleanup, fn) }

func (f *fakeT) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = true
	f.text += fmt.Sprintf(format, args...) + "\n"
}

func (f *fakeT) FailNow() { runtime.Goexit() }

func (f *fakeT) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	f.FailNow()
}

func (f *fakeT) Skipf(string, ...any) {
	f.skipped = true
	runtime.Goexit()
}

// tried runs what may fail, and returns what it said.
func tried(do func(t *fakeT)) *fakeT {
	f := &fakeT{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(f)
	}()
	<-done
	for i := len(f.cleanup) - 1; i >= 0; i-- {
		f.cleanup[i]()
	}
	return f
}

// requireFails asserts that something has failed and said so.
func requireFails(t testing.TB, f *fakeT, parts ...string) {
	t.Helper()
	require.True(t, f.failed, "it has passed")
	for _, part := range parts {
		require.Contains(t, f.text, part)
	}
}

// requirePasses asserts that it has not.
func requirePasses(t testing.TB, f *fakeT) {
	t.Helper()
	require.False(t, f.failed, "%s", f.text)
}

// firstLines are for the log.
func firstLines(s string) string { return strings.TrimSpace(s) }

var _ testsuite.T = (*fakeT)(nil)
