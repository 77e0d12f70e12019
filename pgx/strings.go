package pgxfence

import "strings"

func join(list []string) string { return strings.Join(list, ", ") }

func quoteAll(list []string) []string {
	quoted := make([]string, len(list))
	for i, column := range list {
		quoted[i] = quote(column)
	}
	return quoted
}
