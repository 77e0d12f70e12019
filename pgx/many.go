package pgxfence

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Column is one column of many rows.
type Column struct {
	// Name of the column. Required.
	Name string

	// Values is a slice with an element for each row: []int64, []string, or of
	// pointers where NULL occurs. Required.
	Values any

	// Type is the elements' Postgres type, such as "uuid" or "numeric(12,2)".
	// Default by the Go type: bigint, integer, smallint, double precision, real,
	// boolean, text, timestamptz, bytea, jsonb (json.RawMessage). A value must be
	// assignable from it to the column: text is not to uuid, jsonb or an enum.
	Type string
}

// Changes is a write to many rows, column by column.
type Changes struct {
	// Resource names the one token to write with. Default: the only one there.
	Resource string

	// Key holds the columns that identify a row; no combination may come twice.
	// Required.
	Key []Column

	// Set holds the new values. All columns have equally many values.
	Set []Column
}

// UpdateMany is [Table.Update] of many rows in one statement. It returns an outcome
// for each row, in order: nil, or an error as of Update. The error is about the
// whole call, and then no row has changed unless it is [ErrIndeterminate].
//
// If not all rows changed, a second statement asks for the reasons, under the same
// races as that of Update. Rows are locked in the order in which Postgres comes
// across them, so two calls over the same rows can deadlock (40P01): [Retryable].
func (t Table) UpdateMany(ctx context.Context, db Querier, c Changes) ([]error, error) {
	tok, err := t.token(ctx, c.Resource)
	if err != nil {
		return nil, err
	}
	n, err := t.checkMany(c)
	if err != nil || n == 0 {
		return nil, err
	}
	var outcomes []error
	err = attempt(ctx, db, func(s *session) error {
		outcomes, err = s.updateMany(ctx, t, c, tok, n)
		return err
	})
	return outcomes, err
}

func (s *session) updateMany(ctx context.Context, t Table, c Changes, tok fence.Token, n int) ([]error, error) {
	outcomes := make([]error, n)
	for i := range outcomes {
		outcomes[i] = ErrNotFound
	}
	changed := 0
	_, err := s.query(ctx, t.manySQL(c, tok), tok, eachOrdinal(n, func(i int, _ pgx.Rows) error {
		outcomes[i] = nil
		changed++
		return nil
	}))
	if err != nil {
		return nil, s.blame(ctx, t, err)
	}
	if changed == n {
		return outcomes, nil
	}
	_, err = s.query(ctx, t.manyProbeSQL(c, tok), tok, eachOrdinal(n, func(i int, rows pgx.Rows) error {
		var p probe
		var ord string
		if err := rows.Scan(&ord, &p.token, &p.owner, &p.view); err != nil || outcomes[i] == nil {
			return err
		}
		outcomes[i] = t.judge(p, tok)
		return nil
	}))
	if err != nil {
		return nil, &IndeterminateError{Err: fmt.Errorf("%d of %d rows changed, and asking which failed: %w", changed, n, notLost(err))}
	}
	return outcomes, nil
}

// eachOrdinal calls f with the index of the row that each result is about.
func eachOrdinal(n int, f func(int, pgx.Rows) error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			ord, err := strconv.Atoi(string(rows.RawValues()[0]))
			if err != nil || ord < 1 || ord > n {
				return fmt.Errorf("pgxfence: row number %q of %d", rows.RawValues()[0], n)
			}
			if err := f(ord-1, rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// manySQL joins the table with the unnested arrays.
func (t Table) manySQL(c Changes, tok fence.Token) statement {
	b := t.build(tok)
	b.write("UPDATE ", t.sql(), " AS target SET ")
	for i, column := range c.Set {
		b.write(quote(column.Name), " = input.s", strconv.Itoa(i), ", ")
	}
	b.fenceAssignments()
	b.write(" FROM ")
	b.input(c.Key, c.Set)
	b.write(" WHERE ")
	b.joinKey(c.Key)
	b.write(" AND ")
	b.fresh("target.")
	b.write(" RETURNING input.ord::text")
	return b.statement()
}

func (t Table) manyProbeSQL(c Changes, tok fence.Token) statement {
	b := t.build(tok)
	b.write("SELECT input.ord::text, ")
	b.highest("target.")
	b.write(", ", t.ownerText("target."), ", ", t.isView(), " FROM ")
	b.input(c.Key, nil)
	b.write(" JOIN ", t.sql(), " AS target ON ")
	b.joinKey(c.Key)
	return b.statement()
}

// input writes the arrays as a table input(k0, ..., s0, ..., ord).
func (b *builder) input(key, set []Column) {
	names := make([]string, 0, len(key)+len(set))
	b.write("unnest(")
	for i, column := range key {
		names = append(names, "k"+strconv.Itoa(i))
		b.array(column, len(names))
	}
	for i, column := range set {
		names = append(names, "s"+strconv.Itoa(i))
		b.array(column, len(names))
	}
	b.write(") WITH ORDINALITY AS input(", join(names), ", ord)")
}

func (b *builder) array(c Column, n int) {
	if n > 1 {
		b.write(", ")
	}
	b.bind(c.Values)
	b.write("::", c.sqlType(), "[]")
}

func (b *builder) joinKey(key []Column) {
	for i, column := range key {
		if i > 0 {
			b.write(" AND ")
		}
		b.write("target.", quote(column.Name), " = input.k", strconv.Itoa(i))
	}
}

// checkMany returns how many rows there are.
func (t Table) checkMany(c Changes) (int, error) {
	if len(c.Key) == 0 {
		return 0, usage("Changes.Key: it is empty, which would match every row")
	}
	n := -1
	for _, column := range append(append([]Column{}, c.Key...), c.Set...) {
		length, err := column.check()
		if err != nil {
			return 0, err
		}
		if n >= 0 && length != n {
			return 0, usage("Column %q: it has %d values, another has %d", column.Name, length, n)
		}
		n = length
	}
	set := Values{}
	for _, column := range c.Set {
		set[column.Name] = nil
	}
	return n, t.checkSet(set)
}

// plainType keeps what is written into the SQL to names and a modifier.
var plainType = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_. ]*(\([0-9, ]+\))?[A-Za-z ]*$`)

func (c Column) check() (length int, err error) {
	v := reflect.ValueOf(c.Values)
	switch {
	case c.Name == "":
		return 0, usage("Column.Name: it is empty")
	case v.Kind() != reflect.Slice:
		return 0, usage("Column %q: Values is a %T and no slice", c.Name, c.Values)
	case c.Type != "" && !plainType.MatchString(c.Type):
		return 0, usage("Column %q: Type %q is no plain type name", c.Name, c.Type)
	case c.sqlType() == "":
		return 0, usage("Column %q: Type is needed for %T", c.Name, c.Values)
	}
	return v.Len(), nil
}

func (c Column) sqlType() string {
	if c.Type != "" {
		return c.Type
	}
	elem := reflect.TypeOf(c.Values).Elem()
	if elem.Kind() == reflect.Pointer {
		elem = elem.Elem()
	}
	if name, ok := exactTypes[elem]; ok {
		return name
	}
	return kindTypes[elem.Kind()]
}

var exactTypes = map[reflect.Type]string{
	reflect.TypeFor[time.Time]():       "timestamptz",
	reflect.TypeFor[[]byte]():          "bytea",
	reflect.TypeFor[json.RawMessage](): "jsonb",
}

var kindTypes = map[reflect.Kind]string{
	reflect.Int: "bigint", reflect.Int64: "bigint", reflect.Int32: "integer", reflect.Int16: "smallint",
	reflect.Float64: "double precision", reflect.Float32: "real", reflect.Bool: "boolean", reflect.String: "text",
}
