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
		{"SELECT 1 -- c\r; SELECT @a", "select", false, true, "a"},
		{"-- c\rUPDATE t SET a = 1", "update", false, false, ""},
		{"WITH u AS (WITH v AS (SELECT 1) UPDATE t SET a = 1 RETURNING 1) UPDATE t SET a = 2", "update", true, false, ""},
		{"WITH u AS (WITH v AS (WITH values AS (SELECT 1) DELETE FROM t RETURNING 1) SELECT 1) SELECT 1", "select", true, false, ""},
		{"WITH u AS (WITH v AS (SELECT 1) SELECT 1 FROM t FOR UPDATE) UPDATE t SET a = 2", "update", false, false, ""},
		{"WITH values AS (SELECT 1) UPDATE t SET a = 2", "update", false, false, ""},
		{"EXPLAIN ANALYZE UPDATE t SET a = 1", "explain", false, false, ""},
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

func TestShapeWritesAndEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sql          string
		writes, ends bool
	}{
		{"SELECT 1", false, false},
		{"SELECT 1 FOR UPDATE", false, false},
		{"SELECT 1; UPDATE t SET a = 1", true, false},
		{"BEGIN; UPDATE t SET a = 1; COMMIT", true, true},
		{"SELECT 1; WITH u AS (WITH v AS (SELECT 1) UPDATE t SET a = 1 RETURNING 1) SELECT 1", true, false},
		{"EXPLAIN UPDATE t SET a = 1", false, false},
		{"EXPLAIN WITH u AS (UPDATE t SET a = 1 RETURNING 1) SELECT 1", false, false},
		{"EXPLAIN ANALYZE VERBOSE UPDATE t SET a = 1", true, false},
		{"EXPLAIN (BUFFERS, ANALYSE) WITH x AS (SELECT 1) DELETE FROM t", true, false},
		{"EXPLAIN ANALYZE SELECT 1 FOR UPDATE", false, false},
		{"commit work", false, true},
		{"/* x */ END;", false, true},
		{"ABORT", false, true},
		{"SELECT 1; rollback and chain", false, true},
		{"rollback to savepoint x", false, false},
		{"ROLLBACK WORK TO x", false, false},
		{"SELECT CASE WHEN true THEN 1 END", false, false},
	} {
		s := shapeOf(c.sql)
		require.Equal(t, c.writes, s.writes, c.sql)
		require.Equal(t, c.ends, s.ends, c.sql)
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
