package pgxfence_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// E01: no row changed for one of three reasons.
func TestUpdateTellsWhy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("UPDATE accounts SET fence_token = 7 WHERE id = 1")
	require.ErrorIs(t, accounts.Update(b.at(8), b.pool, set(99, 1)), pgxfence.ErrNotFound)

	closed := set(1, 1)
	closed.Where, closed.Args = "status = @status -- a comment", pgx.NamedArgs{"status": "closed"}
	require.ErrorIs(t, accounts.Update(b.at(8), b.pool, closed), pgxfence.ErrNotApplied)
	require.Equal(t, is(0, 7), b.account(1))

	closed.Args["status"] = "open"
	require.NoError(t, accounts.Update(b.at(9), b.pool, closed))
	require.Equal(t, is(1, 9), b.account(1))
	requireStale(t, accounts.Update(b.at(8), b.pool, set(1, 2)), 8, 9)
	require.Equal(t, is(1, 9), b.account(1))
}

// E02: a column that a migration added is NULL.
func TestUpdateNullFence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Nil(t, b.account(1).Fence)
	require.NoError(t, accounts.Update(b.at(1), b.pool, set(1, 5)))
	require.Equal(t, is(5, 1), b.account(1))
	require.NoError(t, accounts.Update(b.at(1), b.pool, set(1, 6)), "the same token again")
}

// E26, E28: no token, several tokens; nothing is sent.
func TestTokenComesFromContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy, pool := b.proxied()
	require.NoError(t, pool.Ping(b.ctx))
	proxy.RoundTrips()
	two := withResource(b.at(5), "account/2", 9)
	for _, ctx := range []context.Context{b.ctx, fence.WithoutTokens(b.at(5)), with(b.ctx, 0)} {
		require.ErrorIs(t, accounts.Update(ctx, pool, set(1, 1)), fence.ErrNoToken)
		require.ErrorIs(t, accounts.Upsert(ctx, pool, set(1, 1)), fence.ErrNoToken)
		require.ErrorIs(t, accounts.Delete(ctx, pool, pgxfence.Change{Key: pgxfence.Values{"id": 1}}), fence.ErrNoToken)
		require.ErrorIs(t, pgxfence.Seal(ctx, pool), fence.ErrNoToken)
		require.ErrorIs(t, pgxfence.InTx(ctx, pool, nil), fence.ErrNoToken)
		_, err := pgxfence.Once(ctx, pool, pgxfence.Effect{Key: "k", Name: "n"}, func(pgx.Tx) (int, error) { return 0, nil })
		require.ErrorIs(t, err, fence.ErrNoToken)
		_, err = pgxfence.Exec(ctx, pool, pgxfence.Own{SQL: "DELETE FROM accounts WHERE fence_token <= @fence_token"})
		require.ErrorIs(t, err, fence.ErrNoToken)
		_, err = accounts.UpdateMany(ctx, pool, pgxfence.Changes{Key: []pgxfence.Column{{Name: "id", Values: []int64{1}}}})
		require.ErrorIs(t, err, fence.ErrNoToken)
	}
	require.ErrorIs(t, accounts.Update(two, pool, set(1, 1)), fence.ErrAmbiguous)
	require.Zero(t, proxy.RoundTrips(), "nothing was sent")

	for id, resource := range map[int]string{1: "account/1", 2: "account/2"} {
		c := set(id, 10)
		c.Resource = resource
		require.NoError(t, accounts.Update(two, pool, c))
	}
	require.Equal(t, []row{is(10, 5), is(10, 9)}, []row{b.account(1), b.account(2)})
	c := set(1, 1)
	c.Resource = "account/3"
	require.ErrorIs(t, accounts.Update(two, pool, c), fence.ErrNoToken)
}

func TestUpdateRefusesBadCalls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := pgxfence.Values{"id": 1}
	for name, c := range map[string]pgxfence.Change{
		"no key":            {Set: pgxfence.Values{"balance": 1}},
		"nil in the key":    {Key: pgxfence.Values{"id": nil}},
		"the fence column":  {Key: key, Set: pgxfence.Values{"fence_token": 1}},
		"args for nothing":  {Key: key, Args: pgx.NamedArgs{"x": 1}},
		"a missing arg":     {Key: key, Where: "status = @status"},
		"one arg too many":  {Key: key, Where: "true", Args: pgx.NamedArgs{"x": 1}},
		"columns to return": {Key: key, Returning: []string{"id"}},
		"two statements":    {Key: key, Where: "true); DELETE FROM accounts; SELECT (1"},
	} {
		require.ErrorIs(t, accounts.Update(b.at(1), b.pool, c), pgxfence.ErrUsage, name)
	}
	require.ErrorIs(t, pgxfence.Table{}.Update(b.at(1), b.pool, set(1, 1)), pgxfence.ErrUsage)
	require.ErrorIs(t, pgxfence.Table{Name: pgx.Identifier{"a"}, OwnerColumn: "fence_token"}.Update(b.at(1), b.pool, set(1, 1)), pgxfence.ErrUsage)
	require.Nil(t, b.account(1).Fence)
}

// Names are quoted, whatever is in them.
func TestUpdateStrangeNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`CREATE SCHEMA "s'x"; CREATE TABLE "s'x"."T ""; DROP" ("K;" int PRIMARY KEY, "V'" text, "Fence Col" bigint);
		INSERT INTO "s'x"."T ""; DROP" VALUES (1, '', 3)`)
	strange := pgxfence.Table{Name: pgx.Identifier{"s'x", `T "; DROP`}, FenceColumn: "Fence Col"}
	c := pgxfence.Change{Key: pgxfence.Values{"K;": 1}, Set: pgxfence.Values{"V'": "a'); --"}}
	require.NoError(t, strange.Update(b.at(4), b.pool, c))
	require.Equal(t, "a'); --", get[string](b, `SELECT "V'" FROM "s'x"."T ""; DROP"`))
	requireStale(t, strange.Update(b.at(3), b.pool, c), 3, 4)
	require.NoError(t, strange.Upsert(b.at(4), b.pool, c))
	require.NoError(t, strange.Delete(b.at(4), b.pool, pgxfence.Change{Key: c.Key}))
}

type account struct {
	ID      int64
	Balance int64
}

// E18: RETURNING into a struct, and what can go wrong with it.
func TestUpdateReturning(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := set(1, 7)
	c.Returning = []string{"id", "balance"}
	a, err := pgxfence.UpdateReturning(b.at(5), b.pool, accounts, c, pgx.RowToStructByName[account])
	require.NoError(t, err)
	require.Equal(t, account{1, 7}, a)

	_, err = pgxfence.UpdateReturning(b.at(4), b.pool, accounts, c, pgx.RowToStructByName[account])
	requireStale(t, err, 4, 5)
	c.Key = pgxfence.Values{"id": 99}
	_, err = pgxfence.UpdateReturning(b.at(5), b.pool, accounts, c, pgx.RowToStructByName[account])
	require.ErrorIs(t, err, pgxfence.ErrNotFound)

	c = set(1, 8)
	all, err := pgxfence.UpdateReturning(b.at(5), b.pool, accounts, c, pgx.RowToMap)
	require.NoError(t, err)
	require.Equal(t, int64(5), all["fence_token"])
	_, err = pgxfence.UpdateReturning(b.at(5), b.pool, accounts, c, pgx.RowToStructByName[account])
	require.ErrorContains(t, err, "corresponding row field", "a mapper that does not fit")
	c.Where = "1 / (balance - 8) > 0"
	_, err = pgxfence.UpdateReturning(b.at(5), b.pool, accounts, c, pgx.RowToMap)
	requireState(t, err, "22012")
}

func requireState(t testing.TB, err error, state string) {
	t.Helper()
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, state, pg.Code)
	require.NotErrorIs(t, err, fence.ErrStale)
}

func TestOwnerColumn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owned := pgxfence.Table{Name: pgx.Identifier{"owned"}, OwnerColumn: "holder"}
	c := pgxfence.Change{Key: pgxfence.Values{"id": 1}, Set: pgxfence.Values{"v": "a"}}
	as := func(token int64, owner string) context.Context {
		return fence.NewContext(b.ctx, fence.Token{Resource: "account/1", Value: fence.Value(token), Owner: owner})
	}
	for _, write := range []func(context.Context) error{
		func(ctx context.Context) error { return owned.Update(ctx, b.pool, c) },
		func(ctx context.Context) error { return owned.Upsert(ctx, b.pool, c) },
		func(ctx context.Context) error {
			outcomes, err := owned.UpdateMany(ctx, b.pool, pgxfence.Changes{
				Key: []pgxfence.Column{{Name: "id", Values: []int64{1}}}, Set: []pgxfence.Column{{Name: "v", Values: []string{"a"}}}})
			if err != nil {
				return err
			}
			return outcomes[0]
		},
	} {
		b.exec("UPDATE owned SET fence_token = 5, holder = NULL")
		b.exec("DELETE FROM fencekit.fence")
		require.NoError(t, write(as(5, "me")), "a fence from before the column was there")
		require.NoError(t, write(as(5, "me")))
		requireStale(t, write(as(5, "you")), 5, 5)
		require.NoError(t, write(as(6, "you")))
		requireStale(t, write(as(5, "me")), 5, 6)
		require.ErrorIs(t, write(as(7, "")), pgxfence.ErrUsage)
	}
	gone := pgxfence.Change{Key: c.Key}
	for _, enforced := range []bool{false, true} { // the token is sent in another way
		owned.Enforced = enforced
		b.exec("DELETE FROM fencekit.fence")
		b.exec("INSERT INTO owned (id, fence_token, holder) VALUES (1, 5, 'me') ON CONFLICT (id) DO UPDATE SET fence_token = 5, holder = 'me'")
		requireStale(t, owned.Delete(as(5, "you"), b.pool, gone), 5, 5)
		b.exec("DELETE FROM fencekit.fence") // which the refused one has sealed
		require.ErrorIs(t, owned.Delete(as(5, ""), b.pool, gone), pgxfence.ErrUsage)
		require.NoError(t, owned.Delete(as(5, "me"), b.pool, gone))
		require.Zero(t, get[int](b, "SELECT count(*) FROM owned"))
	}
}

// E12: a fence column that is too narrow is named.
func TestNarrowFenceColumn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("CREATE TABLE narrow (id int PRIMARY KEY, v int, fence_token int); INSERT INTO narrow VALUES (1, 0, 0)")
	narrow := pgxfence.Table{Name: pgx.Identifier{"narrow"}}
	c := pgxfence.Change{Key: pgxfence.Values{"id": 1}, Set: pgxfence.Values{"v": 1}}
	for _, mode := range modes {
		conn := b.connect(mode.use)
		err := narrow.Update(b.at(1<<50), conn, c)
		require.ErrorIs(t, err, pgxfence.ErrFenceColumn, mode.name)
		require.ErrorContains(t, err, `"narrow"."fence_token" is integer`)
		requireState(t, err, "22003")
	}
	tx, err := b.connect().Begin(b.ctx)
	require.NoError(t, err)
	requireState(t, narrow.Update(b.at(1<<50), tx, c), "22003")
	require.NoError(t, tx.Rollback(b.ctx))
	c.Set["v"] = 1 << 40
	err = narrow.Update(b.at(5), b.pool, c)
	require.NotErrorIs(t, err, fence.ErrStale)
	require.Equal(t, 0, get[int](b, "SELECT v FROM narrow"))

	require.NoError(t, accounts.Update(b.at(1<<63-1), b.pool, set(1, 1)), "the highest token")
	require.Equal(t, is(1, 1<<63-1), b.account(1))
}

// A condition that could reach out of its parentheses is refused.
func TestWhereMustBeClosed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, where := range []string{
		"false) OR (id = 1", ")(", "(true", "true)", "owner = 'x", `"owner = 'x'`, "true /* x", "owner = $$x", "owner = e'x\\'",
	} {
		c := set(1, 9)
		c.Where = where
		for _, err := range []error{
			accounts.Update(b.at(9), b.pool, c),
			accounts.Upsert(b.at(9), b.pool, c),
			accounts.Delete(b.at(9), b.pool, pgxfence.Change{Key: c.Key, Where: where}),
		} {
			require.ErrorIs(t, err, pgxfence.ErrUsage, where)
			require.ErrorContains(t, err, "Where", where)
		}
	}
	c := set(1, 9)
	c.Where = "((owner IS NULL) OR owner <> ')') /* ) */ -- ("
	require.NoError(t, accounts.Update(b.at(9), b.pool, c))
}
