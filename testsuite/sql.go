package testsuite

import (
	"regexp"
	"strings"
)

// Statements that write, or may, and neither say so by their command tag nor begin with
// one of the verbs that pgxfence.Tracer looks for.
var (
	hidden = regexp.MustCompile(`(?s)'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\r\n]*|/\*.*?\*/|\$(?:[A-Za-z_]\w*)?\$.*?\$(?:[A-Za-z_]\w*)?\$`)

	commands = regexp.MustCompile(`(?i)(?:^|;)\s*(?:do|call|truncate)\b`)
	createAs = regexp.MustCompile(`(?i)(?:^|;)\s*create\s+(?:unlogged\s+)?table\b[^;]*?\bas\s*\(?\s*(?:select|with|table|values|execute)\b`)
	into     = regexp.MustCompile(`(?i)(?:^|;)\s*(?:with\b[^;]*?\b)?select\b[^;]*?\binto\s+(\w+)`)
)

// shown stands for what hides words: nothing for a comment, some name for others.
func shown(s string) string {
	if strings.HasPrefix(s, "--") || strings.HasPrefix(s, "/*") {
		return " "
	}
	return " x "
}

// writesUntold reports whether some statement of sql is one of these. Temporary tables
// end with their session, and are nobody else's.
func writesUntold(sql string) bool {
	sql = strings.TrimSpace(hidden.ReplaceAllStringFunc(sql, shown))
	if commands.MatchString(sql) || createAs.MatchString(sql) {
		return true
	}
	for _, m := range into.FindAllStringSubmatch(sql, -1) {
		if target := strings.ToLower(m[1]); target != "temp" && target != "temporary" {
			return true
		}
	}
	return false
}
