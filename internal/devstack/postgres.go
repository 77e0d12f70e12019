package devstack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresConfig says what kind of Postgres is needed. The zero value takes any.
type PostgresConfig struct {
	// Own asks for a server process that nobody else uses; DATABASE_URL is passed
	// over. Default false; true whenever Conf is not empty.
	Own bool

	// Conf holds settings such as "log_statement=all", given to the server as its
	// command line. They come after the dev stack's own (no fsync, local
	// connections only), so they win. Default none.
	Conf []string
}

// ErrNoPostgres says that the machine has no Postgres server to run. Its text
// names the install command.
var ErrNoPostgres = errors.New("devstack: no postgres server found in FENCEKIT_POSTGRES_BIN, on PATH or in the usual folders; " +
	"install one: apt-get install postgresql, brew install postgresql, docker compose up, or set DATABASE_URL")

// Postgres is one running Postgres server. Its methods may be called from several
// goroutines.
type Postgres struct {
	url  *url.URL // of the maintenance database
	dir  string   // empty unless it is a process of ours
	port int
	proc *process
}

// StartPostgres starts a Postgres server or finds one (DATABASE_URL, then
// FENCEKIT_POSTGRES_BIN, then the installed ones, the newest first) and returns
// when it answers. The caller stops it with [Postgres.Stop]. ctx bounds the start
// only. As root it runs the server as user postgres, or else as nobody.
func StartPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	if raw := os.Getenv("DATABASE_URL"); raw != "" && !cfg.Own && len(cfg.Conf) == 0 {
		return connectPostgres(ctx, raw)
	}
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	for {
		p, err := startPostgresServer(ctx, bin, cfg.Conf)
		if !errors.Is(err, errPortTaken) || ctx.Err() != nil {
			return p, err
		}
	}
}

// PostgresForTest is [StartPostgres] for a test, which stops the server at its end
// and is skipped where there is none, unless [RequireReal] says to fail. It takes
// at most one config.
func PostgresForTest(t TB, cfg ...PostgresConfig) *Postgres {
	t.Helper()
	return startForTest(t, StartPostgres, one(t, cfg))
}

func connectPostgres(ctx context.Context, raw string) (*Postgres, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("devstack: DATABASE_URL: %w", err)
	}
	p := &Postgres{url: u}
	if err := p.Exec(ctx, "SELECT 1"); err != nil {
		return nil, fmt.Errorf("devstack: DATABASE_URL: %w", err)
	}
	return p, nil
}

// postgresBin is the folder that holds initdb and postgres.
func postgresBin() (string, error) {
	for _, dir := range postgresFolders() {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", ErrNoPostgres
}

func startPostgresServer(ctx context.Context, bin string, conf []string) (p *Postgres, err error) {
	port, err := takePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fencekit-postgres-")
	if err != nil {
		returnPort(port)
		return nil, err
	}
	p = &Postgres{dir: dir, port: port, url: &url.URL{
		Scheme: "postgres", User: url.User("postgres"), Host: localAddr(port), Path: "/postgres", RawQuery: "sslmode=disable",
	}}
	if err := p.start(ctx, bin, conf); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Postgres) start(ctx context.Context, bin string, conf []string) error {
	attr, err := serviceAttributes(p.dir)
	if err != nil {
		return err
	}
	data := filepath.Join(p.dir, "data")
	initdb, err := startProcessWith(p.dir, attr, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres",
		"-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if err != nil {
		return err
	}
	<-initdb.done
	if initdb.err != nil {
		return fmt.Errorf("devstack: initdb: %w: %s", initdb.err, initdb.lastWords())
	}
	args := []string{"-D", data, "-p", strconv.Itoa(p.port), "-k", p.dir}
	for _, setting := range append([]string{"listen_addresses=" + localhost, "fsync=off", "full_page_writes=off",
		"max_connections=200", "shared_buffers=64MB", "max_wal_size=1GB"}, conf...) {
		args = append(args, "-c", setting)
	}
	if p.proc, err = startProcessWith(p.dir, attr, filepath.Join(bin, "postgres"), args...); err != nil {
		return err
	}
	return p.awaitReady(ctx)
}

// awaitReady returns when the child itself has said that it is ready (another
// server may have won the port) and answers a query.
func (p *Postgres) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return waitFor(ctx, "postgres answers", func() error {
		if p.proc.ended() {
			err := fmt.Errorf("postgres ended (%w): %s", endOf(p.proc), p.proc.lastWords())
			cancel(err)
			return err
		}
		if !strings.Contains(p.proc.output(), "ready to accept connections") {
			return fmt.Errorf("it is not ready yet: %s", p.proc.lastWords())
		}
		return p.Exec(ctx, "SELECT 1")
	})
}

// Addr is the server's host:port.
func (p *Postgres) Addr() string { return p.url.Host }

// URL is the connection string of a database on the server; "" is the maintenance
// database.
func (p *Postgres) URL(database string) string {
	u := *p.url
	if database != "" {
		u.Path = "/" + database
	}
	return u.String()
}

// Output is what the server has logged so far; empty if it is not ours.
func (p *Postgres) Output() string {
	if p.proc == nil {
		return ""
	}
	return p.proc.output()
}

// Exec runs one statement in the maintenance database, on a connection of its own.
func (p *Postgres) Exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, p.url.String())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

var databases atomic.Int64

// CreateDatabase makes a database out of a template ("" is Postgres's own) and
// returns its name. Nobody may be connected to the template.
func (p *Postgres) CreateDatabase(ctx context.Context, template string) (string, error) {
	if template == "" {
		template = "template1"
	}
	name := fmt.Sprintf("fencekit_%d_%d", os.Getpid(), databases.Add(1))
	sql := fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", pgx.Identifier{name}.Sanitize(), pgx.Identifier{template}.Sanitize())
	return name, p.Exec(ctx, sql)
}

// DropDatabase ends the connections to a database and removes it.
func (p *Postgres) DropDatabase(ctx context.Context, name string) error {
	return p.Exec(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", pgx.Identifier{name}.Sanitize()))
}

// DatabaseForTest is [Postgres.CreateDatabase] for a test, which drops it at its
// end; it returns the name.
func (p *Postgres) DatabaseForTest(t TB, template string) string {
	t.Helper()
	name, err := p.CreateDatabase(context.Background(), template)
	if err != nil {
		t.Fatalf("devstack: create database: %v", err)
	}
	t.Cleanup(func() {
		if err := p.DropDatabase(context.Background(), name); err != nil {
			t.Errorf("devstack: drop database: %v", err)
		}
	})
	return name
}

// stopPatience is how long a server may take to end its sessions.
const stopPatience = 5 * time.Second

// Stop ends the server if it is ours and deletes its folder. Stopping twice is
// fine.
func (p *Postgres) Stop() error {
	if p.dir == "" {
		return nil
	}
	var err error
	if p.proc != nil {
		err = stopGently(p.proc)
	}
	returnPort(p.port)
	return errors.Join(err, os.RemoveAll(p.dir))
}

// stopGently asks first: a server that is killed leaves shared memory behind.
func stopGently(proc *process) error {
	if err := proc.signal(stopSignal); err == nil {
		select {
		case <-proc.done:
			return nil
		case <-time.After(stopPatience):
		}
	}
	return proc.kill()
}
