package pgxfence_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
)

const ownUpdate = `UPDATE accounts SET balance = @balance, fence_token = @fence_token
	WHERE id = @id AND coalesce(fence_token, 0) <= @fence_token`

func ownSet(id int, balance int64) pgxfence.Own {
	return pgxfence.Own{SQL: ownUpdate, Args: pgx.NamedArgs{"id": id, "balance": balance},
		Table: accounts, Key: pgxfence.Values{"id": id}}
}

func TestExec(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, mode := range modes {
		conn := b.connect(mode.use)
		token := int64(10 * (i + 1))
		changed, err := pgxfence.Exec(b.at(token), conn, ownSet(1, token))
		require.NoError(t, err, mode.name)
		require.Equal(t, int64(1), changed)
		require.Equal(t, is(token, token), b.account(1))
		_, err = pgxfence.Exec(b.at(token-1), conn, ownSet(1, 0))
		requireStale(t, err, token-1, token)
		_, err = pgxfence.Exec(b.at(token), conn, ownSet(99, 0))
		require.ErrorIs(t, err, pgxfence.ErrNotFound, mode.name)

		o := ownSet(1, 1)
		o.Key = nil
		_, err = pgxfence.Exec(b.at(token-1), conn, o)
		require.ErrorIs(t, err, pgxfence.ErrNotApplied, "nothing says which row to ask")
	}
}

// E18: QueryRow maps "no rows" to a reason and reads late errors.
func TestQueryRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := ownSet(1, 5)
	o.SQL += " RETURNING id, balance"
	a, err := pgxfence.QueryRow(b.at(5), b.pool, o, pgx.RowToStructByName[account])
	require.NoError(t, err)
	require.Equal(t, account{1, 5}, a)
	_, err = pgxfence.QueryRow(b.at(4), b.pool, o, pgx.RowToStructByName[account])
	requireStale(t, err, 4, 5)

	late := pgxfence.Own{SQL: "UPDATE accounts SET fence_token = @fence_token WHERE coalesce(fence_token, 0) <= @fence_token RETURNING 1 / (2 - id)"}
	_, err = pgxfence.QueryRow(b.at(6), b.pool, late, pgx.RowTo[int64])
	requireState(t, err, "22012")
	require.Equal(t, is(5, 5), b.account(1))
}

func TestExecForms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, sql := range []string{
		"INSERT INTO accounts (id, fence_token) VALUES (7, @fence_token) ON CONFLICT (id) DO UPDATE SET fence_token = @fence_token WHERE coalesce(accounts.fence_token, 0) <= @fence_token",
		"WITH x AS (SELECT 7 AS id) UPDATE accounts SET balance = 1, fence_token = @fence_token FROM x WHERE accounts.id = x.id AND fence_token <= @fence_token",
		`MERGE INTO accounts a USING (SELECT 7 AS id) s ON a.id = s.id AND a.fence_token <= @fence_token WHEN MATCHED THEN UPDATE SET fence_token = @fence_token, balance = 2`,
		"/* ; */ UPDATE accounts SET owner = 'it''s; @nobody' || $x$;@fence$x$, fence_token = @fence_token WHERE id = 7 AND fence_token <= @fence_token; -- done",
		"DELETE FROM accounts WHERE id = 7 AND fence_token <= @fence_token",
	} {
		changed, err := pgxfence.Exec(b.at(5), b.pool, pgxfence.Own{SQL: sql})
		require.NoError(t, err, sql)
		require.Equal(t, int64(1), changed, sql)
	}
}

// E05, E24: SQL whose result cannot tell, several statements, no token. Nothing is
// sent.
func TestExecRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, sql := range []string{
		"",
		"UPDATE accounts SET balance = 1",
		"UPDATE accounts SET balance = 1 WHERE owner <> '@fence_token' -- @fence_token",
		`UPDATE accounts SET balance = 1 WHERE "@fence_token" = 1 /* /* */ @fence_token */`,
		"UPDATE accounts SET balance = 1 WHERE owner = $$@fence_token$$ OR owner = e'\\'@fence_token'",
		"WITH u AS (UPDATE accounts SET fence_token = @fence_token WHERE fence_token <= @fence_token RETURNING 1) SELECT count(*) FROM u",
		"WITH u AS (DELETE FROM accounts WHERE fence_token <= @fence_token RETURNING id) UPDATE accounts SET balance = 1 FROM u",
		"SELECT * FROM accounts WHERE fence_token <= @fence_token FOR UPDATE",
		"UPDATE accounts SET fence_token = @fence_token; DELETE FROM accounts",
		"EXPLAIN ANALYZE UPDATE accounts SET fence_token = @fence_token",
		"CALL p(@fence_token)",
		"COPY accounts FROM '/x' WHERE fence_token <= @fence_token",
		"DO $$BEGIN UPDATE accounts SET fence_token = 1; END$$",
		ownUpdate + " AND @missing",
		ownUpdate + " -- c\r; UPDATE accounts SET balance = 666",
		"WITH u AS (WITH v AS (SELECT 1) UPDATE accounts SET balance = 666 RETURNING 1) UPDATE accounts SET fence_token = @fence_token WHERE fence_token <= @fence_token",
		"WITH u AS (WITH v AS (WITH w AS (SELECT 1) DELETE FROM accounts RETURNING 1) SELECT 1) UPDATE accounts SET fence_token = @fence_token WHERE fence_token <= @fence_token",
	} {
		_, err := pgxfence.Exec(b.at(5), b.pool, pgxfence.Own{SQL: sql, Args: pgx.NamedArgs{"id": 1, "balance": 1}})
		require.ErrorIs(t, err, pgxfence.ErrUsage, sql)
		_, err = pgxfence.QueryRow(b.at(5), b.pool, pgxfence.Own{SQL: sql, Args: pgx.NamedArgs{"id": 1, "balance": 1}}, pgx.RowToMap)
		require.ErrorIs(t, err, pgxfence.ErrUsage, sql)
	}
	o := ownSet(1, 1)
	o.Args["fence_token"] = 99
	_, err := pgxfence.Exec(b.at(5), b.pool, o)
	require.ErrorIs(t, err, pgxfence.ErrUsage)
	require.Nil(t, b.account(1).Fence)
}
