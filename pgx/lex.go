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

	unterminated bool // a string, quoted name or comment had no end
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
		l.skipLine()
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

// skipLine goes to the end of the line. To Postgres a carriage return is one.
func (l *lexer) skipLine() {
	at := strings.IndexAny(l.sql[l.pos:], "\r\n")
	if at < 0 {
		l.pos = len(l.sql)
		return
	}
	l.pos += at
}

// skipTo goes behind the next end, or to the end of everything.
func (l *lexer) skipTo(end string, start int) {
	at := strings.Index(l.sql[l.pos+start:], end)
	if at < 0 {
		l.runOut()
		return
	}
	l.pos += start + at + len(end)
}

// runOut goes to the end of everything, where an end was missing.
func (l *lexer) runOut() {
	l.pos = len(l.sql)
	l.unterminated = true
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
	l.runOut() // an escape may have gone beyond
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
	l.runOut()
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

	writes bool // some statement changes data, as far as words can tell
	ends   bool // some statement ends the transaction
	broken bool // a parenthesis, string or comment has no end, or no beginning

	at    string // verb of the statement that is being read
	depth int    // of parentheses
	withs []int  // depths at which WITH has opened a parenthesis and waits for its verb
}

var dml = map[string]bool{"insert": true, "update": true, "delete": true, "merge": true}

// shapeOf reads sql once.
func shapeOf(sql string) (s shape) {
	l := lexer{sql: sql}
	ended, opened := false, false
	for {
		t, ok := l.next()
		if !ok {
			s.broken = s.broken || l.unterminated || s.depth != 0
			return s
		}
		s.several = s.several || ended
		ended = ended || t.kind == ';'
		s.token(t, opened)
		opened = t.kind == '('
	}
}

// token takes one piece into account; opened says that it follows a parenthesis.
func (s *shape) token(t sqlToken, opened bool) {
	switch t.kind {
	case '(':
		s.depth++
	case ')':
		s.depth--
		s.broken = s.broken || s.depth < 0
		if n := len(s.withs); n > 0 && s.withs[n-1] > s.depth {
			s.withs = s.withs[:n-1]
		}
	case ';':
		s.at = ""
	case '@':
		s.parameters = append(s.parameters, t)
	case 'w':
		if s.depth == 0 {
			s.top(t.text)
		} else {
			s.inner(t.text, opened)
		}
		if s.at == "explain" && (t.text == "analyze" || t.text == "analyse") {
			s.at = "with" // what follows is carried out: wait for its verb
		}
	}
}

// top is for a word outside of parentheses: the first one is the verb, or, behind
// WITH, the first that is one.
func (s *shape) top(w string) {
	switch {
	case s.at == "", s.at == "with" && endsWith(w):
		s.setVerb(w)
	case s.at == "rollback" && w == "to":
		s.ends = false // to a savepoint
	}
}

func (s *shape) setVerb(w string) {
	s.at = w
	if !s.several && (s.verb == "" || s.verb == "with") {
		s.verb = w
	}
	s.writes = s.writes || dml[w]
	switch w {
	case "commit", "end", "rollback", "abort":
		s.ends = true
	}
}

// inner is for a word in parentheses: a verb that opens them, or that follows the
// WITH that opens them, changes data inside.
func (s *shape) inner(w string, opened bool) {
	n := len(s.withs)
	waiting := n > 0 && s.withs[n-1] == s.depth
	switch {
	case opened && w == "with":
		s.withs = append(s.withs, s.depth)
	case (opened || waiting) && dml[w]:
		s.nested = true
		s.writes = s.writes || s.at != "explain"
	case waiting && endsWith(w):
		s.withs = s.withs[:n-1]
	}
}

// endsWith reports whether w is the verb that a WITH belongs to. VALUES is left out,
// because it can also be a name in the WITH.
func endsWith(w string) bool { return dml[w] || w == "select" || w == "table" }
