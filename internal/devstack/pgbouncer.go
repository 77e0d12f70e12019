package devstack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// ErrNoPgBouncer says that the machine has no pgbouncer. Its text names the
// install command.
var ErrNoPgBouncer = errors.New("devstack: pgbouncer is not on PATH; install it: apt-get install pgbouncer, brew install pgbouncer")

// PgBouncer is a running PgBouncer in transaction mode: between two transactions a
// client's server connection may be anybody's.
type PgBouncer struct {
	dir  string
	port int
	proc *process
}

// StartPgBouncer starts a PgBouncer before the Postgres server at addr, with at
// most one server connection per database, so that clients do take turns on it.
// ini holds further lines of the [pgbouncer] section.
func StartPgBouncer(ctx context.Context, addr, ini string) (*PgBouncer, error) {
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		if binary, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return nil, ErrNoPgBouncer
		}
	}
	dir, err := os.MkdirTemp("", "fencekit-pgbouncer-")
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{dir: dir}
	if b.port, err = takePort(); err == nil {
		err = b.start(ctx, binary, addr, ini)
	}
	if err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

// PgBouncerForTest is [StartPgBouncer] for a test, which stops it at its end and is
// skipped where there is none, unless [RequireReal] says to fail.
func PgBouncerForTest(t TB, addr, ini string) *PgBouncer {
	t.Helper()
	return startForTest(t, func(ctx context.Context, addr string) (*PgBouncer, error) {
		return StartPgBouncer(ctx, addr, ini)
	}, addr)
}

func (b *PgBouncer) start(ctx context.Context, binary, addr, ini string) error {
	attr, err := serviceAttributes(b.dir)
	if err != nil {
		return err
	}
	server := url.URL{Host: addr}
	path := filepath.Join(b.dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=%s port=%s user=postgres\n[pgbouncer]\nlisten_addr=%s\nlisten_port=%d\n"+
		"auth_type=any\npool_mode=transaction\ndefault_pool_size=1\nmax_client_conn=200\nunix_socket_dir=\n"+
		"ignore_startup_parameters=extra_float_digits\n%s\n", server.Hostname(), server.Port(), localhost, b.port, ini)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	if b.proc, err = startProcessWith(b.dir, attr, binary, path); err != nil {
		return err
	}
	return b.awaitReady(ctx)
}

func (b *PgBouncer) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return waitFor(ctx, "pgbouncer answers", func() error {
		if b.proc.ended() {
			err := fmt.Errorf("pgbouncer ended: %s", b.proc.lastWords())
			cancel(err)
			return err
		}
		conn, err := pgx.Connect(ctx, b.URL("postgres"))
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
}

// URL is the connection string of a database through the pooler.
func (b *PgBouncer) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: localAddr(b.port), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Stop ends the pooler and deletes its folder. Stopping twice is fine.
func (b *PgBouncer) Stop() error {
	var err error
	if b.proc != nil {
		err = stopGently(b.proc)
	}
	returnPort(b.port)
	return errors.Join(err, os.RemoveAll(b.dir))
}
