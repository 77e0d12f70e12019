package pgxfence

import (
	"context"
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

	// Enforced says that the trigger of [Enforce] is on the table, so that every
	// statement must carry its token to it. That costs some 5 microseconds. Default
	// false: on a table that has the trigger, writes are then [ErrUnfenced].
	Enforced bool

	// Sealed says that writes obey the fence table too: a token lower than what the
	// resource has been sealed with ([Seal], the guard's Seal hook) is refused also on
	// rows that the newer holder has not written yet. Unless it is a resource's very
	// first, a seal waits for the writes that are under way, so none comes after it. It needs the schema fencekit and
	// costs a lock on the resource's row there. SQL of your own ([Exec]) does not
	// look. Default false: a write looks at its own row alone.
	Sealed bool

	// NeverDeleted says that rows of this table are never deleted under a fence.
	// [Table.Upsert] then needs no schema fencekit (unless Sealed), and [Table.Delete] refuses.
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

func (t Table) sql() string {
	if len(t.Name) == 1 {
		return quote(t.Name[0])
	}
	return t.Name.Sanitize()
}

func (t Table) fence() string { return quote(t.fenceColumn()) }

// quote is pgx's quoting of an identifier.
func quote(column string) string {
	var b strings.Builder
	writeQuoted(&b, column)
	return b.String()
}

// writeQuoted has a short way for plain names.
func writeQuoted(b *strings.Builder, column string) {
	if strings.ContainsAny(column, "\"\x00") {
		b.WriteString(pgx.Identifier{column}.Sanitize())
		return
	}
	b.WriteByte('"')
	b.WriteString(column)
	b.WriteByte('"')
}

// builder writes one statement. Columns go in alphabetical order, so that equal
// calls have equal text and a prepared statement is found again.
type builder struct {
	strings.Builder
	args  []any
	table Table
	tok   fence.Token

	token, owner int // numbers of their parameters; 0 before they are bound
}

// What most statements keep within.
const (
	usualArgs   = 8
	usualLength = 256
)

func (t Table) build(tok fence.Token, args ...any) *builder {
	b := &builder{table: t, tok: tok, args: append(make([]any, 0, usualArgs), args...)}
	b.Grow(usualLength)
	return b
}

func (b *builder) statement() statement { return statement{sql: b.String(), args: b.args} }

func (b *builder) write(parts ...string) {
	for _, p := range parts {
		b.WriteString(p)
	}
}

// name writes a quoted column.
func (b *builder) name(column string) { writeQuoted(&b.Builder, column) }

// bind adds a parameter and writes its placeholder.
func (b *builder) bind(v any) { b.place(b.add(v)) }

func (b *builder) add(v any) int {
	b.args = append(b.args, v)
	return len(b.args)
}

func (b *builder) place(n int) { b.write("$", strconv.Itoa(n)) }

// placeToken and placeOwner bind their parameter the first time.
func (b *builder) placeToken() {
	if b.token == 0 {
		b.token = b.add(int64(b.tok.Value))
	}
	b.place(b.token)
	b.write("::bigint")
}

func (b *builder) placeOwner() {
	if b.owner == 0 {
		b.owner = b.add(b.tok.Owner)
	}
	b.place(b.owner)
	b.write("::text")
}

func (b *builder) hasOwner() bool { return b.table.OwnerColumn != "" }

// carry writes the token as a value. Where the enforcement trigger is, it also
// leaves it where that looks, until the end of the transaction.
func (b *builder) carry() {
	if !b.table.Enforced {
		b.placeToken()
		return
	}
	b.write("(SELECT pg_catalog.set_config('fencekit.token', ")
	b.bind(b.tok.Value.String())
	b.write("::text, true)::bigint)")
}

// fenceAssignments writes the columns that every write sets.
func (b *builder) fenceAssignments() {
	if b.hasOwner() {
		b.name(b.table.OwnerColumn)
		b.write(" = ")
		b.placeOwner()
		b.write(", ")
	}
	b.name(b.table.fenceColumn())
	b.write(" = ")
	b.carry()
}

// assignments writes "a" = $1, ... and the fence.
func (b *builder) assignments(set Values) {
	for _, column := range columns(set) {
		b.name(column)
		b.write(" = ")
		b.bind(set[column])
		b.write(", ")
	}
	b.fenceAssignments()
}

// key writes the condition that finds the row.
func (b *builder) key(key Values) {
	for i, column := range columns(key) {
		if i > 0 {
			b.write(" AND ")
		}
		b.name(column)
		b.write(" = ")
		b.bind(key[column])
	}
}

// fresh writes the condition that lets the token pass. prefix names the table where
// several are in scope.
func (b *builder) fresh(prefix string) {
	b.write("coalesce(", prefix)
	b.name(b.table.fenceColumn())
	b.write(", 0) <= ")
	b.placeToken()
	if b.hasOwner() {
		f, o := prefix+b.table.fence(), prefix+quote(b.table.OwnerColumn)
		b.write(" AND (", f, " IS DISTINCT FROM ")
		b.placeToken()
		b.write(" OR coalesce(", o, ", '') = '' OR ", o, " = ")
		b.placeOwner()
		b.write(")")
	}
	b.unsealed()
}

// unsealed writes the condition that no newer token has been sealed. It locks the
// resource's row, so it waits for a seal under way and holds up the next. Being the
// same for all rows, it is looked at once and first.
func (b *builder) unsealed() {
	if b.table.Sealed {
		b.write(" AND coalesce((SELECT f.token FROM fencekit.fence f WHERE f.resource = ")
		b.bind(b.tok.Resource)
		b.write("::text FOR SHARE), 0) <= ")
		b.placeToken()
	}
}

// highest is the row's token for a question; where seals count, the resource's if
// that is higher.
func (b *builder) highest(prefix string) {
	b.write("greatest(coalesce(", prefix, b.table.fence(), ", 0), ")
	if b.table.Sealed {
		b.write("(SELECT f.token FROM fencekit.fence f WHERE f.resource = ")
		b.bind(b.tok.Resource)
		b.write("::text), ")
	}
	b.write("0)::bigint")
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
	shape := shapeOf(where + "\nx")
	if shape.several {
		return "", nil, usage("Where: it holds a semicolon")
	}
	if shape.broken {
		return "", nil, usage("Where: a parenthesis, string, quoted name or comment has no end or no beginning")
	}
	sql, args, err = pgx.StrictNamedArgs(named).RewriteQuery(ctx, nil, where, nil)
	if err != nil {
		return "", nil, usage("Where: %w", err)
	}
	// The line break ends a comment at the condition's end.
	return " AND (" + sql + "\n)", args, nil
}

// columns lists the names in order.
func columns(v Values) []string {
	list := make([]string, 0, len(v))
	for column := range v {
		list = append(list, column)
	}
	slices.Sort(list)
	return list
}

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
