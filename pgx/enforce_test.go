package pgxfence_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// guarded is accounts with the trigger on it.
var guarded = pgxfence.Table{Name: accounts.Name, Enforced: true}

func enforced(t testing.TB) *bundle {
	b := setup(t)
	require.NoError(t, pgxfence.Enforce(b.ctx, b.pool, guarded, ""))
	return b
}

func requireUnfenced(t testing.TB, err error) {
	t.Helper()
	requireState(t, err, "ZF002")
}

// G10: an old worker without the guard, a forgotten helper, psql by hand.
func TestEnforceRefusesUnfencedWrites(t *testing.T) {
	t.Parallel()
	b := enforced(t)
	require.NoError(t, guarded.Update(b.at(5), b.pool, set(1, 5)))
	for _, sql := range []string{
		"UPDATE accounts SET balance = 1 WHERE id = 1",
		"UPDATE accounts SET balance = 1, fence_token = 5 WHERE id = 1",
		"UPDATE accounts SET balance = 1, fence_token = 99 WHERE id = 1",
		"UPDATE accounts SET fence_token = NULL WHERE id = 1",
		"UPDATE accounts SET balance = 1 WHERE id = 2",
		"INSERT INTO accounts (id) VALUES (7)",
		"INSERT INTO accounts (id, fence_token) VALUES (7, 5)",
		"INSERT INTO accounts (id, fence_token) VALUES (1, 6) ON CONFLICT (id) DO UPDATE SET balance = 1",
		"DELETE FROM accounts WHERE id = 1",
		"TRUNCATE accounts",
	} {
		_, err := b.pool.Exec(b.ctx, sql)
		require.Error(t, err, sql)
		requireUnfenced(t, err)
	}
	require.Equal(t, is(5, 5), b.account(1))
	require.Nil(t, b.account(2).Fence)
	_, err := b.pool.CopyFrom(b.ctx, accounts.Name, []string{"id"}, pgx.CopyFromRows([][]any{{int64(100)}}))
	requireUnfenced(t, err)
}

// Every helper passes, in autocommit and in transactions, with the first token, the
// same and a higher one; a lower one is stale.
func TestEnforceLetsHelpersPass(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			b := enforced(t)
			conn := b.connect(mode.use)
			for _, token := range []int64{5, 5, 6} {
				useEveryHelper(b, conn, token)
				require.NoError(t, pgx.BeginFunc(b.ctx, conn, func(tx pgx.Tx) error {
					useEveryHelper(b, tx, token)
					return nil
				}))
				require.NoError(t, pgxfence.InTx(b.at(token), conn, addOne(b.ctx)))
				require.Equal(t, token, *b.account(1).Fence)
			}
			requireStale(t, guarded.Update(b.at(4), conn, set(1, 4)), 4, 6)
			_, err := conn.Exec(b.ctx, "UPDATE accounts SET balance = 1")
			requireUnfenced(t, err)
		})
	}
}

// useEveryHelper writes account 1 in every way, and deletes account 3.
func useEveryHelper(b *bundle, db pgxfence.Batcher, token int64) {
	b.t.Helper()
	ctx := b.at(token)
	require.NoError(b.t, guarded.Update(ctx, db, set(1, token)))
	require.NoError(b.t, guarded.Upsert(ctx, db, set(3, token)))
	require.NoError(b.t, guarded.Upsert(ctx, db, set(3, token)))
	require.NoError(b.t, guarded.Delete(ctx, db, pgxfence.Change{Key: pgxfence.Values{"id": 3}}))
	_, err := pgxfence.Claim(ctx, db, guarded, pgxfence.Change{Key: pgxfence.Values{"id": 1}}, pgx.RowToMap)
	require.NoError(b.t, err)
	_, err = pgxfence.Exec(ctx, db, ownSet(1, token))
	require.NoError(b.t, err)
	outcomes, err := guarded.UpdateMany(ctx, db, pgxfence.Changes{Key: []pgxfence.Column{{Name: "id", Values: []int64{1, 2}}},
		Set: []pgxfence.Column{{Name: "balance", Values: []int64{token, token}}}})
	require.NoError(b.t, err)
	require.Equal(b.t, []error{nil, nil}, outcomes)
}

// In a sealed transaction plain SQL takes the sealed token, COPY included; rows of a
// higher fence are refused.
func TestEnforceInSealedTransaction(t *testing.T) {
	t.Parallel()
	b := enforced(t)
	require.NoError(t, guarded.Update(withResource(b.ctx, "account/1", 9), b.pool, set(2, 9)))
	require.NoError(t, pgxfence.InTx(b.at(7), b.pool, func(tx pgx.Tx) error {
		_, err := tx.CopyFrom(b.ctx, accounts.Name, []string{"id"}, pgx.CopyFromRows([][]any{{int64(100)}, {int64(101)}}))
		require.NoError(t, err)
		_, err = tx.Exec(b.ctx, "DELETE FROM accounts WHERE id = 101")
		require.NoError(t, err)
		return addOne(b.ctx)(tx)
	}))
	require.Equal(t, []row{is(1, 7), is(0, 7)}, []row{b.account(1), b.account(100)})

	err := pgxfence.InTx(b.at(8), b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(b.ctx, "UPDATE accounts SET balance = 0")
		return err
	})
	requireState9(t, err)

	two := withResource(b.at(8), "account/2", 20)
	err = pgxfence.InTxOptions(two, b.pool, pgxfence.TxOptions{Resources: []string{"account/1", "account/2"}}, func(tx pgx.Tx) error {
		c := set(1, 3)
		c.Resource = "account/1"
		require.NoError(t, guarded.Update(two, tx, c))
		_, err := tx.Exec(b.ctx, "UPDATE accounts SET balance = 0 WHERE id = 100")
		return err
	})
	requireUnfenced(t, err)
}

func requireState9(t *testing.T, err error) {
	t.Helper()
	require.ErrorContains(t, err, "it has seen 9")
	require.ErrorContains(t, err, "ZF001")
}

// What the trigger refuses through a helper has the helper's errors.
func TestEnforceErrorsThroughHelpers(t *testing.T) {
	t.Parallel()
	b := enforced(t)
	b.exec(`CREATE FUNCTION lower_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.fence_token := NULL; RETURN NEW; END'`)
	b.exec("CREATE TRIGGER a_lower BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION lower_it()")
	err := guarded.Update(b.at(5), b.pool, set(1, 5))
	require.ErrorIs(t, err, pgxfence.ErrUnfenced)
}

// Only who has become the bypass role passes, superuser or not.
func TestEnforceBypass(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mechanic := b.role("mechanic")
	b.exec("GRANT ALL ON accounts TO " + mechanic)
	name := mechanic[1 : len(mechanic)-1]
	require.NoError(t, pgxfence.Enforce(b.ctx, b.pool, guarded, name))
	require.NoError(t, pgxfence.Enforce(b.ctx, b.pool, guarded, name), "twice is fine")
	_, err := b.pool.Exec(b.ctx, "UPDATE accounts SET balance = 1")
	requireUnfenced(t, err)
	conn := b.as(mechanic)
	for _, sql := range []string{"UPDATE accounts SET balance = 1", "DELETE FROM accounts WHERE id = 2", "INSERT INTO accounts (id) VALUES (3)", "TRUNCATE accounts"} {
		_, err = conn.Exec(b.ctx, sql)
		require.NoError(t, err)
	}

	require.NoError(t, pgxfence.Unenforce(b.ctx, b.pool, guarded))
	require.NoError(t, pgxfence.Unenforce(b.ctx, b.pool, guarded))
	b.exec("INSERT INTO accounts (id) VALUES (9)")
	for _, call := range []error{pgxfence.Enforce(b.ctx, b.pool, pgxfence.Table{}, ""), pgxfence.Enforce(b.ctx, b.pool, accounts, ""), pgxfence.Unenforce(b.ctx, b.pool, pgxfence.Table{})} {
		require.ErrorIs(t, call, pgxfence.ErrUsage)
	}
}

// TRUNCATE is refused on each partition by itself, at any depth.
func TestEnforceTruncateOfPartitions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("CREATE TABLE parts (id int, fence_token bigint) PARTITION BY RANGE (id)")
	b.exec("CREATE TABLE parts_a PARTITION OF parts FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)")
	b.exec("CREATE TABLE \"Parts b\" PARTITION OF parts_a FOR VALUES FROM (0) TO (5)")
	parts := pgxfence.Table{Name: pgx.Identifier{"parts"}, Enforced: true}
	refused := func(tables ...string) {
		for _, table := range tables {
			_, err := b.pool.Exec(b.ctx, "TRUNCATE "+table)
			requireState(t, err, "ZF002")
		}
	}
	require.NoError(t, pgxfence.Enforce(b.ctx, b.pool, parts, ""))
	refused("parts", "parts_a", `"Parts b"`)
	b.exec("CREATE TABLE parts_c PARTITION OF parts FOR VALUES FROM (10) TO (20)")
	require.NoError(t, pgxfence.Enforce(b.ctx, b.pool, parts, ""))
	refused("parts", "parts_a", `"Parts b"`, "parts_c")
	require.NoError(t, pgxfence.Unenforce(b.ctx, b.pool, parts))
	b.exec(`TRUNCATE parts_c, "Parts b", parts`)
}

// E09: partitions; a row that moves keeps its fence and is found again.
func TestPartitionMove(t *testing.T) {
	t.Parallel()
	for _, enforce := range []bool{false, true} {
		b := setup(t)
		b.exec("CREATE TABLE parts (id int, region text, \"the fence\" bigint) PARTITION BY LIST (region)")
		b.exec("CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a')")
		b.exec("CREATE TABLE parts_b PARTITION OF parts FOR VALUES IN ('b')")
		b.exec("INSERT INTO parts VALUES (1, 'a', NULL)")
		parts := pgxfence.Table{Name: pgx.Identifier{"parts"}, FenceColumn: "the fence", Enforced: enforce}
		if enforce {
			require.NoError(t, pgxfence.Enforce(b.ctx, b.pool, parts, ""))
		}
		to := func(region string) pgxfence.Change {
			return pgxfence.Change{Key: pgxfence.Values{"id": 1}, Set: pgxfence.Values{"region": region}}
		}
		require.NoError(t, parts.Update(b.at(5), b.pool, to("b")))
		require.Equal(t, int64(5), get[int64](b, `SELECT "the fence" FROM parts_b`))
		requireStale(t, parts.Update(b.at(4), b.pool, to("a")), 4, 5)
		require.NoError(t, parts.Update(b.at(5), b.pool, to("a")))
		require.NoError(t, pgxfence.InTx(b.at(6), b.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(b.ctx, "UPDATE parts SET region = 'b'")
			return err
		}))
		require.Equal(t, 1, get[int](b, "SELECT count(*) FROM parts_b"))
		if enforce {
			_, err := b.pool.Exec(b.ctx, "UPDATE parts_b SET id = 2")
			requireUnfenced(t, err)
		}
	}
}

// E09, E08, views and rules: what the database does with a write that passed.
func TestDatabaseInTheWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM accounts WHERE id = NEW.id; RETURN NULL; END'`)
	b.exec("CREATE TRIGGER gone AFTER UPDATE ON accounts FOR EACH ROW WHEN (new.id = 2) EXECUTE FUNCTION gone()")
	require.NoError(t, guarded.Update(b.at(5), b.pool, set(2, 5)), "applied, and then deleted by a trigger")
	require.ErrorIs(t, guarded.Update(b.at(5), b.pool, set(2, 5)), pgxfence.ErrNotFound)

	b.exec("CREATE VIEW shown AS SELECT id, balance, fence_token FROM accounts")
	b.exec(`CREATE FUNCTION through() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN UPDATE accounts SET balance = NEW.balance, fence_token = NEW.fence_token WHERE id = NEW.id; RETURN NULL; END'`)
	b.exec("CREATE TRIGGER through INSTEAD OF UPDATE ON shown FOR EACH ROW EXECUTE FUNCTION through()")
	shown := pgxfence.Table{Name: pgx.Identifier{"shown"}}
	require.NoError(t, shown.Update(b.at(6), b.pool, set(1, 6)), "applied, though the server counts no row")
	requireStale(t, shown.Update(b.at(5), b.pool, set(1, 5)), 5, 6)
	require.Equal(t, is(6, 6), b.account(1))

	b.exec("CREATE RULE nothing AS ON UPDATE TO accounts DO INSTEAD NOTHING")
	require.ErrorIs(t, guarded.Update(b.at(7), b.pool, set(1, 7)), pgxfence.ErrNotApplied)
	requireStale(t, guarded.Update(b.at(5), b.pool, set(1, 5)), 5, 6)
}

// The server counts the rows of a view that it updates by itself, so no row there
// means that nothing was applied, although the row carries the very token.
func TestViewNotApplied(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("CREATE VIEW plain AS SELECT * FROM accounts")
	b.exec("CREATE VIEW shown AS SELECT * FROM accounts")
	b.exec(`CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	b.exec("CREATE TRIGGER nothing INSTEAD OF UPDATE OR DELETE ON shown FOR EACH ROW EXECUTE FUNCTION nothing()")
	require.NoError(t, accounts.Update(b.at(5), b.pool, set(1, 5)))
	for _, name := range []string{"plain", "shown"} {
		view := pgxfence.Table{Name: pgx.Identifier{name}}
		c := set(1, 77)
		c.Where = "status = 'nope'"
		require.ErrorIs(t, view.Update(b.at(5), b.pool, c), pgxfence.ErrNotApplied, name)
		_, err := pgxfence.UpdateReturning(b.at(5), b.pool, view, c, pgx.RowToMap)
		require.ErrorIs(t, err, pgxfence.ErrNotApplied, name)
		c.Set = nil
		_, err = pgxfence.Claim(b.at(5), b.pool, view, c, pgx.RowToMap)
		require.ErrorIs(t, err, pgxfence.ErrNotApplied, name)
		require.ErrorIs(t, view.Delete(b.at(5), b.pool, c), pgxfence.ErrNotApplied, name)
	}
	shown := pgxfence.Table{Name: pgx.Identifier{"shown"}}
	require.ErrorIs(t, shown.Delete(b.at(5), b.pool, pgxfence.Change{Key: pgxfence.Values{"id": 1}}), pgxfence.ErrNotApplied)

	b.exec("CREATE TRIGGER nothing BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION nothing()")
	plain := pgxfence.Table{Name: pgx.Identifier{"plain"}}
	require.ErrorIs(t, plain.Update(b.at(5), b.pool, set(1, 99)), pgxfence.ErrNotApplied)
	require.Equal(t, is(5, 5), b.account(1))
}

// E08: row-level security.
func TestRowLevelSecurity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.role("rls")
	b.exec("GRANT SELECT, UPDATE ON accounts TO " + app)
	b.exec("ALTER TABLE accounts ENABLE ROW LEVEL SECURITY")
	b.exec("CREATE POLICY look ON accounts FOR SELECT USING (id = 1)")
	b.exec("CREATE POLICY touch ON accounts FOR UPDATE USING (id = 3)")
	conn := b.as(app)
	err := guarded.Update(b.at(5), conn, set(1, 5))
	require.ErrorIs(t, err, pgxfence.ErrNotApplied)
	require.NotErrorIs(t, err, fence.ErrStale)
	require.ErrorIs(t, guarded.Update(b.at(5), conn, set(2, 5)), pgxfence.ErrNotFound, "it may not even see the row")
}

// A write that waits for the row carries its token to the trigger all the same.
func TestEnforceAfterWaiting(t *testing.T) {
	t.Parallel()
	b := enforced(t)
	first, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	require.NoError(t, guarded.Update(b.at(30), first, set(1, 30)))
	results := make(chan error, 2)
	go func() { results <- guarded.Update(b.at(31), b.pool, set(1, 31)) }()
	b.waiting(1)
	go func() {
		_, err := guarded.UpdateMany(b.at(31), b.pool, pgxfence.Changes{
			Key: []pgxfence.Column{{Name: "id", Values: []int64{1}}}, Set: []pgxfence.Column{{Name: "balance", Values: []int64{31}}}})
		results <- err
	}()
	b.waiting(2)
	require.NoError(t, first.Commit(b.ctx))
	require.NoError(t, <-results)
	require.NoError(t, <-results)
	require.Equal(t, is(31, 31), b.account(1))
}
