package pgxfence

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// DefaultFenceColumn is the name that [Table.FenceColumn] stands for when empty.
const DefaultFenceColumn = "fence_token"

// Values maps the names of columns to values. Names are quoted, values are sent as
// parameters.
type Values map[string]any

// Table describes a table or view whose rows carry a fence. Copy it freely.
type Table struct {
	// Name of the table, with its schema if the search path does not lead to it:
	// pgx.Identifier{"bank", "accounts"}. Required. It is quoted, so its case counts.
	Name pgx.Identifier

	// FenceColumn is the bigint column that holds the highest token that wrote the
	// row. NULL takes the first token. Default [DefaultFenceColumn].
	FenceColumn string

	// OwnerColumn is a text column for the owner nonce. With it an equal token
	// passes for the same owner only, which tells two holders apart if a lock server
	// has ever handed out a token twice. Default none: an equal token passes.
	OwnerColumn string

	// NeverDeleted says that rows of this table are never deleted under a fence.
	// [Table.Upsert] then needs no schema fencekit, and [Table.Delete] refuses.
	// Default false: Upsert seals the resource too, so that a stale holder cannot
	// bring back a row that a newer one deleted. All programs that write the table
	// must agree.
	NeverDeleted bool
}

func (t Table) check() error {
	if len(t.Name) == 0 || slices.Contains(t.Name, "") {
		return usage("Table.Name: %q has an empty part", []string(t.Name))
	}
	if t.OwnerColumn == t.fenceColumn() {
		return usage("Table.OwnerColumn: %q is the fence column", t.OwnerColumn)
	}
	return nil
}

func (t Table) fenceColumn() string {
	if t.FenceColumn == "" {
		return DefaultFenceColumn
	}
	return t.FenceColumn
}

func (t Table) sql() string   { return t.Name.Sanitize() }
func (t Table) fence() string { return quote(t.fenceColumn()) }

func quote(column string) string { return pgx.Identifier{column}.Sanitize() }

// builder writes one statement. Columns go in alphabetical order, so that equal
// calls have equal text and a prepared statement is found again.
type builder struct {
	strings.Builder
	args  []any
	table Table
	tok   fence.Token
	token string // placeholder of the token, as bigint
	owner string // placeholder of the owner, as text; "" without an owner column
}

func (t Table) build(tok fence.Token) *builder {
	b := &builder{table: t, tok: tok}
	return b
}

func (b *builder) statement() statement { return statement{sql: b.String(), args: b.args} }

func (b *builder) write(parts ...string) *builder {
	for _, p := range parts {
		b.WriteString(p)
	}
	return b
}

// arg adds a parameter and returns its placeholder.
func (b *builder) arg(v any) string {
	b.args = append(b.args, v)
	return "$" + strconv.Itoa(len(b.args))
}

// bindToken makes placeholders of the token and the owner, once.
func (b *builder) bindToken() {
	if b.token != "" {
		return
	}
	b.token = b.arg(int64(b.tok.Value)) + "::bigint"
	if b.table.OwnerColumn != "" {
		b.owner = b.arg(b.tok.Owner) + "::text"
	}
}

// carry is the token as an expression that also leaves it, until the end of the
// transaction, where the enforcement trigger looks. An uncorrelated subselect is
// evaluated once per statement.
func (b *builder) carry() string { return carrySQL(b.arg(b.tok.Value.String())) }

func carrySQL(placeholder string) string {
	return "(SELECT pg_catalog.set_config('fencekit.token', " + placeholder + "::text, true)::bigint)"
}

// assignments writes "a" = $1, ... and the fence.
func (b *builder) assignments(set Values) {
	b.bindToken()
	for _, column := range columns(set) {
		b.write(quote(column), " = ", b.arg(set[column]), ", ")
	}
	if b.owner != "" {
		b.write(quote(b.table.OwnerColumn), " = ", b.owner, ", ")
	}
	b.write(b.table.fence(), " = ", b.carry())
}

// key writes the condition that finds the row. prefix names the table where
// several are in scope.
func (b *builder) key(key Values, prefix string) {
	for i, column := range columns(key) {
		if i > 0 {
			b.write(" AND ")
		}
		b.write(prefix, quote(column), " = ", b.arg(key[column]))
	}
}

// fresh writes the condition that lets the token pass.
func (b *builder) fresh(prefix string) {
	b.bindToken()
	f := prefix + b.table.fence()
	b.write("coalesce(", f, ", 0) <= ", b.token)
	if b.owner != "" {
		o := prefix + quote(b.table.OwnerColumn)
		b.write(" AND (", f, " IS DISTINCT FROM ", b.token, " OR coalesce(", o, ", ", b.owner, ") = ", b.owner, ")")
	}
}

// condition is the caller's own one as SQL with its arguments. They must come before
// all others, because pgx numbers the named ones from $1.
func condition(ctx context.Context, where string, named pgx.NamedArgs) (sql string, args []any, err error) {
	if where == "" {
		if len(named) > 0 {
			return "", nil, usage("Args: there is no Where that could use them")
		}
		return "", nil, nil
	}
	if shapeOf(where + "\nx").several {
		return "", nil, usage("Where: it holds a semicolon")
	}
	sql, args, err = pgx.StrictNamedArgs(named).RewriteQuery(ctx, nil, where, nil)
	if err != nil {
		return "", nil, usage("Where: %w", err)
	}
	// The line break ends a comment at the condition's end.
	return " AND (" + sql + "\n)", args, nil
}

func columns(v Values) []string { return slices.Sorted(maps.Keys(v)) }

// checkKey refuses keys that match nothing, or everything.
func (t Table) checkKey(key Values) error {
	if len(key) == 0 {
		return usage("Key: it is empty, which would match every row")
	}
	for column, v := range key {
		if v == nil {
			return usage("Key: column %q is nil, which matches no row", column)
		}
	}
	return nil
}

// checkSet refuses what only the helper may set.
func (t Table) checkSet(set Values) error {
	for _, reserved := range []string{t.fenceColumn(), t.OwnerColumn} {
		if _, ok := set[reserved]; ok && reserved != "" {
			return usage("Set: column %q is set by the helper", reserved)
		}
	}
	return nil
}

// token checks the call so far and takes the token.
func (t Table) token(ctx context.Context, resource string) (fence.Token, error) {
	if err := t.check(); err != nil {
		return fence.Token{}, err
	}
	tok, err := tokenFor(ctx, resource)
	if err == nil && t.OwnerColumn != "" && tok.Owner == "" {
		err = usage("Table.OwnerColumn: the token of %q has no owner", tok.Resource)
	}
	return tok, err
}
