package pgxfence_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
)

// bare is a database without the schema.
func bare(t testing.TB) *bundle {
	b := setup(t)
	b.exec("DROP SCHEMA fencekit CASCADE")
	return b
}

func TestMigrateIsIdempotent(t *testing.T) {
	t.Parallel()
	b := bare(t)
	require.ErrorIs(t, pgxfence.CheckSchema(b.ctx, b.pool), pgxfence.ErrSchema)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { require.NoError(t, pgxfence.Migrate(b.ctx, b.pool)) })
	}
	wg.Wait()
	require.NoError(t, pgxfence.CheckSchema(b.ctx, b.pool))
	require.NoError(t, pgxfence.Seal(b.at(5), b.pool))
	runSchemaFiles(b)
	requireStale(t, pgxfence.Seal(b.at(4), b.pool), 4, 5)
}

// runSchemaFiles does what a migration tool does.
func runSchemaFiles(b *bundle) {
	names, err := fs.Glob(pgxfence.Schema(), "*.sql")
	require.NoError(b.t, err)
	require.Len(b.t, names, 2)
	for _, name := range names {
		text, err := fs.ReadFile(pgxfence.Schema(), name)
		require.NoError(b.t, err)
		b.exec(string(text), pgx.QueryExecModeSimpleProtocol)
		for line := range strings.Lines(string(text)) { // goose takes every comment with the word for an order
			require.Equal(b.t, strings.HasPrefix(line, "-- +goose "), strings.Contains(line, "+goose"), line)
		}
		require.NotContains(b.t, string(text), "{{", "tern takes it for a template")
	}
}

func TestMissingSchemaIsNamed(t *testing.T) {
	t.Parallel()
	b := bare(t)
	require.NoError(t, accounts.Update(b.at(5), b.pool, set(1, 5)), "the row fence needs no schema")
	kept := accounts
	kept.NeverDeleted = true
	require.NoError(t, kept.Upsert(b.at(5), b.pool, set(1, 5)))
	_, once := pgxfence.Once(b.at(5), b.pool, effect("k"), debit(b.ctx))
	_, epoch := pgxfence.NewEpochStore(b.pool).Epoch(b.ctx, "id")
	for _, err := range []error{pgxfence.Seal(b.at(5), b.pool), once, epoch, accounts.Upsert(b.at(5), b.pool, set(1, 5)),
		pgxfence.InTx(b.at(5), b.pool, addOne(b.ctx)), pgxfence.Enforce(b.ctx, b.pool, guarded, "")} {
		require.ErrorIs(t, err, pgxfence.ErrSchema)
		require.ErrorContains(t, err, "Migrate")
	}
	runSchemaFiles(b)
	b.exec("CREATE OR REPLACE FUNCTION fencekit.version() RETURNS integer LANGUAGE sql AS 'SELECT 0'")
	require.ErrorContains(t, pgxfence.CheckSchema(b.ctx, b.pool), "it has version 0, this code needs 1")
	b.exec("CREATE OR REPLACE FUNCTION fencekit.version() RETURNS integer LANGUAGE sql AS 'SELECT 99'")
	require.NoError(t, pgxfence.Migrate(b.ctx, b.pool), "newer than the code is fine")
}

// appGrants are what an application's role needs; DESIGN.md lists them.
const appGrants = `
GRANT USAGE ON SCHEMA fencekit TO app;
GRANT SELECT, INSERT, UPDATE ON fencekit.fence TO app;
GRANT SELECT, INSERT ON fencekit.ledger TO app;
GRANT SELECT, INSERT ON fencekit.epoch TO app;
GRANT SELECT, INSERT, UPDATE, DELETE ON accounts TO app;`

var roles sync.Mutex // roles belong to the server, not to one database

// role makes a role that the test drops.
func (b *bundle) role(name string) string {
	b.t.Helper()
	roles.Lock()
	defer roles.Unlock()
	name = fmt.Sprintf("%s_%s", name, strings.ToLower(strings.NewReplacer("/", "_", " ", "_").Replace(b.t.Name())))
	name = name[:min(len(name), 60)]
	quoted := pgx.Identifier{name}.Sanitize()
	b.exec("DROP ROLE IF EXISTS " + quoted)
	b.exec("CREATE ROLE " + quoted)
	b.t.Cleanup(func() { b.exec("DROP OWNED BY " + quoted); b.exec("DROP ROLE " + quoted) })
	return quoted
}

// as is a connection in a role.
func (b *bundle) as(role string) *pgx.Conn {
	conn := b.connect()
	_, err := conn.Exec(b.ctx, "SET ROLE "+role)
	require.NoError(b.t, err)
	return conn
}

// An application's role without DDL rights has enough with the documented grants.
func TestGrantsOfTheApplication(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.role("app")
	b.exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	conn := b.as(app)
	require.ErrorIs(t, pgxfence.CheckSchema(b.ctx, conn), pgxfence.ErrSchema, "it may not look inside")
	b.exec(strings.ReplaceAll(appGrants, "app;", app+";"))
	require.NoError(t, pgxfence.Enforce(b.ctx, b.pool, guarded, ""))

	require.NoError(t, pgxfence.Migrate(b.ctx, conn), "it is there already")
	require.NoError(t, guarded.Update(b.at(5), conn, set(1, 5)))
	require.NoError(t, guarded.Upsert(b.at(5), conn, set(3, 5)))
	require.NoError(t, guarded.Delete(b.at(5), conn, pgxfence.Change{Key: pgxfence.Values{"id": 3}}))
	require.NoError(t, pgxfence.InTx(b.at(5), conn, addOne(b.ctx)))
	_, err := pgxfence.Once(b.at(5), conn, effect("k"), debit(b.ctx))
	require.NoError(t, err)
	epoch, err := pgxfence.NewEpochStore(conn).Epoch(b.ctx, "id")
	require.NoError(t, err)
	require.Equal(t, int64(1), epoch)
	_, err = pgxfence.Prune(b.ctx, conn, 0, 0)
	requireState(t, err, "42501")
	b.exec("GRANT UPDATE, DELETE ON fencekit.ledger TO " + app)
	n, err := pgxfence.Prune(b.ctx, conn, 0, 0)
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
}

var update = flag.Bool("update", false, "rewrite golden files")

// The SQL schema is a storage format: a change is a release with a note.
func TestSchemaGolden(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := get[string](b, `SELECT string_agg(line, E'\n' ORDER BY line) FROM (
		SELECT format('table %s.%s %s %s', table_name, column_name, data_type, CASE is_nullable WHEN 'NO' THEN 'not null' ELSE 'null' END) AS line
		FROM information_schema.columns WHERE table_schema = 'fencekit'
		UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'fencekit'
		UNION ALL SELECT 'function ' || p.oid::regprocedure FROM pg_proc p WHERE pronamespace = 'fencekit'::regnamespace) x`)
	const path = "testdata/schema.golden"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got+"\n"), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got+"\n")
}

// Functions pin their search path and run with the caller's rights.
func TestFunctionsAreSafe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, pgxfence.Enforce(b.ctx, b.pool, guarded, ""))
	require.Equal(t, 0, get[int](b, `SELECT count(*) FROM pg_proc WHERE pronamespace = 'fencekit'::regnamespace
		AND (prosecdef OR proname <> 'version' AND NOT coalesce(proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}')`))

	// Look-alikes that come first on the caller's path change nothing.
	b.exec(`CREATE SCHEMA evil; CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT '1' $$;
		CREATE FUNCTION evil.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT '1' $$`, pgx.QueryExecModeSimpleProtocol)
	conn := b.connect(func(c *pgx.ConnConfig) { c.RuntimeParams["search_path"] = "evil, public, pg_catalog" })
	require.NoError(t, guarded.Update(b.at(5), conn, set(1, 5)))
	require.NoError(t, pgxfence.InTx(b.at(6), conn, addOne(b.ctx)))
	require.Equal(t, is(6, 6), b.account(1))
}
