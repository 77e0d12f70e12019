package pgxfence

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A lexer finds the words, parentheses, semicolons and named parameters of SQL, and
// passes over what hides them: strings, quoted names, dollar quotes and comments.
type lexer struct {
	sql string
	pos int
}

// token is one piece of SQL. Its text is in lower case if it is a word.
type sqlToken struct {
	kind     byte // 'w' word, '@' parameter, or the character itself
	text     string
	from, to int
}

// next returns the next piece, or false at the end.
func (l *lexer) next() (sqlToken, bool) {
	for l.pos < len(l.sql) {
		from := l.pos
		if l.skipHidden() {
			continue
		}
		r, size := utf8.DecodeRuneInString(l.sql[from:])
		l.pos += size
		switch {
		case r == '@' && l.startsWord():
			l.word()
			return sqlToken{kind: '@', text: l.sql[from+1 : l.pos], from: from, to: l.pos}, true
		case isWordStart(r):
			l.word()
			return sqlToken{kind: 'w', text: strings.ToLower(l.sql[from:l.pos]), from: from, to: l.pos}, true
		case r == '(' || r == ')' || r == ';':
			return sqlToken{kind: byte(r), text: string(r), from: from, to: l.pos}, true
		case unicode.IsDigit(r):
			l.word()
		}
	}
	return sqlToken{}, false
}

func isWordStart(r rune) bool { return r == '_' || unicode.IsLetter(r) }

func (l *lexer) startsWord() bool {
	r, _ := utf8.DecodeRuneInString(l.sql[l.pos:])
	return isWordStart(r)
}

// word goes to the end of a name; a dollar sign may be inside.
func (l *lexer) word() {
	for l.pos < len(l.sql) {
		r, size := utf8.DecodeRuneInString(l.sql[l.pos:])
		if !isWordStart(r) && !unicode.IsDigit(r) && r != '$' {
			return
		}
		l.pos += size
	}
}

// skipHidden passes over one string, quoted name, dollar quote or comment, and
// reports whether there was one.
func (l *lexer) skipHidden() bool {
	rest := l.sql[l.pos:]
	switch {
	case strings.HasPrefix(rest, "--"):
		l.skipTo("\n", 2)
	case strings.HasPrefix(rest, "/*"):
		l.skipComment()
	case rest[0] == '\'':
		l.skipQuoted('\'', false)
	case rest[0] == '"':
		l.skipQuoted('"', false)
	case len(rest) > 1 && (rest[0] == 'e' || rest[0] == 'E') && rest[1] == '\'':
		l.pos++
		l.skipQuoted('\'', true)
	case rest[0] == '$':
		return l.skipDollar()
	default:
		return false
	}
	return true
}

// skipTo goes behind the next end, or to the end of everything.
func (l *lexer) skipTo(end string, start int) {
	at := strings.Index(l.sql[l.pos+start:], end)
	if at < 0 {
		l.pos = len(l.sql)
		return
	}
	l.pos += start + at + len(end)
}

// skipQuoted is at the opening quote. A doubled quote does not end it; with escapes
// a backslash hides the next character.
func (l *lexer) skipQuoted(quote byte, escapes bool) {
	l.pos++
	for ; l.pos < len(l.sql); l.pos++ {
		switch c := l.sql[l.pos]; {
		case escapes && c == '\\':
			l.pos++
		case c == quote:
			l.pos++
			if l.pos >= len(l.sql) || l.sql[l.pos] != quote {
				return
			}
		}
	}
	l.pos = len(l.sql) // an escape may have gone beyond
}

// skipComment is at a comment that can hold others.
func (l *lexer) skipComment() {
	depth := 0
	for l.pos < len(l.sql) {
		rest := l.sql[l.pos:]
		switch {
		case strings.HasPrefix(rest, "/*"):
			depth++
			l.pos += 2
		case strings.HasPrefix(rest, "*/"):
			depth--
			l.pos += 2
			if depth == 0 {
				return
			}
		default:
			l.pos++
		}
	}
}

// skipDollar is at a dollar sign, which may open a dollar quote or be part of $1.
func (l *lexer) skipDollar() bool {
	end := strings.IndexByte(l.sql[l.pos+1:], '$')
	if end < 0 {
		return false
	}
	tag := l.sql[l.pos : l.pos+end+2]
	for i, r := range tag[1 : len(tag)-1] {
		if !isWordStart(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	l.skipTo(tag, len(tag))
	return true
}

// shape is what can be told of SQL without parsing it.
type shape struct {
	verb       string     // what the command tag will be about; "" if nothing is there
	nested     bool       // another part changes data too
	several    bool       // more than one statement
	parameters []sqlToken // those named @...
}

var dml = map[string]bool{"insert": true, "update": true, "delete": true, "merge": true}

// shapeOf reads sql once.
func shapeOf(sql string) (s shape) {
	l := lexer{sql: sql}
	depth, ended, opened := 0, false, false
	for {
		t, ok := l.next()
		if !ok {
			return s
		}
		s.several = s.several || ended
		switch t.kind {
		case '(':
			depth++
		case ')':
			depth--
		case ';':
			ended = true
		case '@':
			s.parameters = append(s.parameters, t)
		case 'w':
			s.word(t.text, depth, opened)
		}
		opened = t.kind == '('
	}
}

// word takes a word into account: the first one at the top is the verb, or, behind
// WITH, the first that is one; a verb that opens a parenthesis changes data inside.
func (s *shape) word(w string, depth int, opened bool) {
	switch {
	case depth == 0 && s.verb == "":
		s.verb = w
	case depth == 0 && s.verb == "with" && (dml[w] || w == "select" || w == "values" || w == "table"):
		s.verb = w
	case depth > 0 && opened && dml[w]:
		s.nested = true
	}
}

// writes reports whether the statement changes data, as far as words can tell.
func (s shape) writes() bool { return dml[s.verb] || s.nested }
