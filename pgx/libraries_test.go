package pgxfence_test

import (
	"database/sql"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/pgx/internal/bankdb"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// sqlc's code runs in a sealed transaction as it is.
func TestWithSqlc(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, pgxfence.Enforce(b.ctx, b.pool, guarded, ""))
	add := func(tx pgx.Tx) (int64, error) {
		return bankdb.New(tx).AddToBalance(b.ctx, bankdb.AddToBalanceParams{ID: 1, Amount: 100})
	}
	r, err := pgxfence.Once(b.at(5), b.pool, effect("k"), add)
	require.NoError(t, err)
	require.Equal(t, int64(100), r.Value)
	r, err = pgxfence.Once(b.at(6), b.pool, effect("k"), add)
	require.NoError(t, err)
	require.Equal(t, int64(100), r.Value)

	require.NoError(t, pgxfence.InTx(b.at(7), b.pool, func(tx pgx.Tx) error {
		n, err := bankdb.New(tx).SetBalanceFenced(b.ctx, bankdb.SetBalanceFencedParams{ID: 1, Balance: 7, Token: 7})
		require.Equal(t, int64(1), n)
		return err
	}))
	_, err = bankdb.New(b.pool).AddToBalance(b.ctx, bankdb.AddToBalanceParams{ID: 1, Amount: 1})
	requireUnfenced(t, err)
	requireStale(t, pgxfence.InTx(b.at(6), b.pool, func(tx pgx.Tx) error { _, err := add(tx); return err }), 6, 7)
	require.Equal(t, is(7, 7), b.account(1))
}

// database/sql: its connection gives pgx's out, and fencekit.seal is plain SQL.
func TestWithDatabaseSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := stdlib.OpenDBFromPool(b.pool)
	t.Cleanup(func() { _ = db.Close() })

	conn, err := db.Conn(b.ctx)
	require.NoError(t, err)
	require.NoError(t, conn.Raw(func(driver any) error {
		conn, ok := driver.(*stdlib.Conn)
		require.True(t, ok)
		return pgxfence.InTx(b.at(5), conn.Conn(), addOne(b.ctx))
	}))
	require.NoError(t, conn.Close())

	sealed := func(token int64) error {
		tx, err := db.BeginTx(b.ctx, nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		if err := sealSQL(tx, b, token); err != nil {
			return err
		}
		_, err = tx.ExecContext(b.ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = 1")
		require.NoError(t, err)
		return tx.Commit()
	}
	require.NoError(t, sealed(6))
	require.ErrorContains(t, sealed(5), "ZF001")
	require.Equal(t, int64(2), b.account(1).Balance)
}

// sealSQL is what code without pgx writes.
func sealSQL(tx *sql.Tx, b *bundle, token int64) error {
	tok, err := fence.ForResource(b.at(token), "account/1")
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(b.ctx, "SELECT fencekit.seal($1, $2, $3)", tok.Resource, tok.Value, tok.Owner)
	return err
}

// The package links neither Redis nor Temporal.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	for _, path := range strings.Fields(string(out)) {
		require.NotContains(t, path, "go-redis")
		require.NotContains(t, path, "temporal")
		require.NotContains(t, path, "testify")
		require.NotEqual(t, "github.com/fencekit/fencekit-go/primitives", path)
	}
}

// onlyQuery hides the connection, as a user's wrapper does.
type onlyQuery struct{ pgxfence.Querier }

// A wrapper that has nothing but Query will do for all that needs no batch.
func TestWrapper(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied(one)
	db := onlyQuery{pool}
	require.NoError(t, accounts.Update(b.at(5), db, set(1, 5)))
	requireStale(t, accounts.Update(b.at(4), db, set(1, 4)), 4, 5)
	require.NoError(t, pgxfence.Seal(b.at(5), db))
	require.NoError(t, pool.Ping(b.ctx))
	cutAt(proxy, true, 2)
	require.ErrorIs(t, accounts.Update(b.at(6), db, set(1, 6)), pgxfence.ErrIndeterminate, "not repeated")
	c := set(1, 7)
	c.Set["balance"] = make(chan int)
	err := accounts.Update(b.at(7), db, c)
	require.Error(t, err)
	require.NotErrorIs(t, err, pgxfence.ErrIndeterminate)
}
