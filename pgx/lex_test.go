package pgxfence

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShapeOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sql             string
		verb            string
		nested, several bool
		parameters      string
	}{
		{"", "", false, false, ""},
		{"  -- only a comment", "", false, false, ""},
		{"Update t SET a=@a WHERE b=@b", "update", false, false, "a b"},
		{"SELECT 1;", "select", false, false, ""},
		{"SELECT 1; -- more", "select", false, false, ""},
		{"SELECT 1; ;", "select", false, true, ""},
		{"SELECT ';' ; SELECT 2", "select", false, true, ""},
		{"SELECT 'it''s; @x', \"@y\"\";\", $$;@z$$, $tag$ $$ ; $tag$, E'\\';@w'", "select", false, false, ""},
		{"SELECT $1, a$b$c, @d /* ; /* nested */ @e */", "select", false, false, "d"},
		{"WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", "insert", false, false, ""},
		{"WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", "select", true, false, ""},
		{"with recursive x as (select 1 union select 2) table x", "table", false, false, ""},
		{"SELECT * FROM t WHERE updated = (SELECT max(update_at) FROM u)", "select", false, false, ""},
		{"SELECT 'unterminated ; @x", "select", false, false, ""},
		{"SELECT $tag$ unterminated ; @x", "select", false, false, ""},
		{"SELECT /* unterminated ; @x", "select", false, false, ""},
		{"SELECT e'ends in a backslash\\", "select", false, false, ""},
		{"SELECT a @> b, a @@ c, @ -5, d@e", "select", false, false, "e"},
		{"ÜPDATE x; SELECT ä@ö", "üpdate", false, true, "ö"},
	} {
		s := shapeOf(c.sql)
		var names []string
		for _, p := range s.parameters {
			names = append(names, p.text)
			require.Equal(t, "@"+p.text, c.sql[p.from:p.to])
		}
		require.Equal(t, c.verb, s.verb, c.sql)
		require.Equal(t, c.nested, s.nested, c.sql)
		require.Equal(t, c.several, s.several, c.sql)
		require.Equal(t, c.parameters, strings.Join(names, " "), c.sql)
	}
}

// Whatever the text, the lexer ends, and finds each parameter where it says.
func FuzzShapeOf(f *testing.F) {
	for _, sql := range []string{"UPDATE t SET a=@a; --", "$$", "$a$;$a", "e'\\", "/*/**/", "\"", "@", "\xff@\xff"} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		last := 0
		for _, p := range shapeOf(sql).parameters {
			if p.from < last || sql[p.from:p.to] != "@"+p.text {
				t.Fatalf("%q: %+v", sql, p)
			}
			last = p.to
		}
	})
}
