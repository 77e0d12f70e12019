package pgxfence_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Each of many rows has an outcome of its own.
func TestUpdateManyOutcomes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 2000
	b.exec("DELETE FROM accounts")
	b.exec("INSERT INTO accounts (id, fence_token) SELECT i, i % 3 + 7 FROM generate_series(1, $1::int) i", n)
	ids, balances := make([]int64, n+1), make([]int64, n+1)
	for i := range ids {
		ids[i], balances[i] = int64(i), int64(i)*10 // id 0 is not there
	}
	outcomes, err := accounts.UpdateMany(b.at(8), b.pool, pgxfence.Changes{
		Key: []pgxfence.Column{{Name: "id", Values: ids}}, Set: []pgxfence.Column{{Name: "balance", Values: balances}}})
	require.NoError(t, err)
	for i, outcome := range outcomes {
		switch {
		case i == 0:
			require.ErrorIs(t, outcome, pgxfence.ErrNotFound)
		case i%3 == 2:
			requireStale(t, outcome, 8, 9)
		default:
			require.NoError(t, outcome)
		}
	}
	require.Zero(t, get[int](b, "SELECT count(*) FROM accounts WHERE (balance = id * 10 AND fence_token = 8) <> (id % 3 <> 2)"))
}

// A row that a condition of the database's keeps from changing, and a key that
// comes twice.
func TestUpdateManyNotApplied(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER skip BEFORE UPDATE ON accounts FOR EACH ROW WHEN (old.id = 2) EXECUTE FUNCTION skip()`)
	outcomes, err := accounts.UpdateMany(b.at(8), b.pool, pgxfence.Changes{
		Key: []pgxfence.Column{{Name: "id", Values: []int32{1, 2, 1}}}, Set: []pgxfence.Column{{Name: "balance", Values: []int32{5, 5, 5}}}})
	require.NoError(t, err)
	require.ErrorIs(t, outcomes[1], pgxfence.ErrNotApplied)
	require.ElementsMatch(t, []error{nil, pgxfence.ErrNotApplied}, []error{outcomes[0], outcomes[2]})
}

func TestUpdateManyTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`CREATE TABLE wide (a uuid, b int, t text, f real, ok boolean, at timestamptz, raw bytea, j jsonb, n numeric(9,2), fence_token bigint);
		INSERT INTO wide (a, b) VALUES ('00000000-0000-0000-0000-000000000001', 1), ('00000000-0000-0000-0000-000000000002', 1)`)
	wide := pgxfence.Table{Name: pgx.Identifier{"wide"}}
	text := "it's"
	now := time.Now().Truncate(time.Microsecond)
	for i, mode := range modes {
		outcomes, err := wide.UpdateMany(b.at(int64(i+1)), b.connect(mode.use), pgxfence.Changes{
			Key: []pgxfence.Column{
				{Name: "a", Type: "uuid", Values: []string{"00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"}},
				{Name: "b", Values: []int16{1, 1}}},
			Set: []pgxfence.Column{
				{Name: "t", Values: []*string{&text, nil}},
				{Name: "f", Values: []float64{1.5, 2}},
				{Name: "ok", Values: []bool{true, false}},
				{Name: "at", Values: []time.Time{now, now}},
				{Name: "raw", Values: [][]byte{{0, 1}, nil}},
				{Name: "n", Type: "numeric(9,2)", Values: []string{"1.25", "2"}}}})
		require.NoError(t, err, mode.name)
		require.Equal(t, []error{nil, nil}, outcomes, mode.name)
	}
	require.Equal(t, "it's 1.5 true \\x0001 1.25", get[string](b, "SELECT t || ' ' || f || ' ' || ok || ' ' || raw::text || ' ' || n FROM wide WHERE ok"))
	require.True(t, get[time.Time](b, "SELECT at FROM wide WHERE ok").Equal(now))
	outcomes, err := wide.UpdateMany(b.at(9), b.pool, pgxfence.Changes{Key: []pgxfence.Column{{Name: "b", Values: []int{1}}},
		Set: []pgxfence.Column{{Name: "j", Values: []json.RawMessage{json.RawMessage(`{"a":1}`)}}}})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, outcomes)
}

func TestUpdateManyRefusesBadCalls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := []pgxfence.Column{{Name: "id", Values: []int64{1, 2}}}
	for name, c := range map[string]pgxfence.Changes{
		"no key":           {},
		"unequal":          {Key: id, Set: []pgxfence.Column{{Name: "balance", Values: []int64{1}}}},
		"no slice":         {Key: id, Set: []pgxfence.Column{{Name: "balance", Values: 1}}},
		"no name":          {Key: id, Set: []pgxfence.Column{{Values: []int64{1, 2}}}},
		"unknown type":     {Key: id, Set: []pgxfence.Column{{Name: "balance", Values: []struct{}{{}, {}}}}},
		"type with quotes": {Key: id, Set: []pgxfence.Column{{Name: "balance", Type: `int[]) x; "`, Values: []int64{1, 2}}}},
		"the fence column": {Key: id, Set: []pgxfence.Column{{Name: "fence_token", Values: []int64{1, 2}}}},
	} {
		_, err := accounts.UpdateMany(b.at(1), b.pool, c)
		require.ErrorIs(t, err, pgxfence.ErrUsage, name)
	}
	outcomes, err := accounts.UpdateMany(b.at(1), b.pool, pgxfence.Changes{Key: []pgxfence.Column{{Name: "id", Values: []int64{}}}})
	require.NoError(t, err)
	require.Empty(t, outcomes)
	_, err = accounts.UpdateMany(b.at(1), b.pool, pgxfence.Changes{Key: id, Set: []pgxfence.Column{{Name: "no_such", Values: []int64{1, 2}}}})
	requireState(t, err, "42703")
	require.NotErrorIs(t, err, fence.ErrStale)
}
