package crash_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
)

// The servers of the tests that do not break them.
var (
	sharedRedis = devstack.Shared(func(ctx context.Context) (*devstack.Redis, error) {
		return devstack.StartRedis(ctx, devstack.RedisConfig{})
	})
	sharedTemporal = devstack.Shared(func(ctx context.Context) (*devstack.Temporal, error) {
		return devstack.StartTemporal(ctx, devstack.TemporalConfig{})
	})
	sharedPostgres = devstack.Shared(func(ctx context.Context) (*devstack.Postgres, error) {
		return devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	})
)

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	_ = devstack.StopShared()
	os.Exit(code)
}

// long reports whether make fault asked for the tests at full length.
func long() bool { return os.Getenv("FENCEKIT_FAULT") == "long" }

// schema is what the activities write to. A writer that is not the newest one takes a
// batch back to an earlier step; the trigger sees it, whatever is written after that.
const schema = `
CREATE TABLE accounts (batch int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0);
CREATE TABLE progress (batch int PRIMARY KEY, step int NOT NULL DEFAULT 0, total bigint NOT NULL DEFAULT 0, fence_token bigint);
CREATE TABLE lost (batch int, from_step int, to_step int);
CREATE FUNCTION note_lost() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO lost VALUES (new.batch, old.step, new.step);
	RETURN NULL;
END $$;
CREATE TRIGGER lost AFTER UPDATE ON progress FOR EACH ROW WHEN (new.step < old.step) EXECUTE FUNCTION note_lost();
CREATE TABLE runs (
	id bigserial PRIMARY KEY, batch int, step int, worker int, attempt int, outcome text, token bigint,
	began timestamptz NOT NULL DEFAULT clock_timestamp(), ended timestamptz);
CREATE TABLE points (name text PRIMARY KEY);`

// database makes a database with the schema and returns its address.
func database(t *testing.T) string {
	t.Helper()
	server, err := sharedPostgres()
	require.NoError(t, err)
	url := server.URL(server.DatabaseForTest(t, ""))
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	require.NoError(t, pgxfence.Migrate(t.Context(), conn))
	_, err = conn.Exec(t.Context(), schema)
	require.NoError(t, err)
	return url
}
