package timeline

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"
)

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<style>
:root { color-scheme: light dark; --paper:#fff; --ink:#1f2430; --soft:#687083; --rule:#e3e6ec; --good:#1a7f4b; --bad:#c62828; }
@media (prefers-color-scheme: dark) { :root { --paper:#12151c; --ink:#e6e9f0; --soft:#9aa3b5; --rule:#2a303c; --good:#4cc38a; --bad:#ff7b72; } }
body { margin: 0 auto; max-width: 1240px; padding: 12px 20px 40px; background: var(--paper); color: var(--ink); font: 14px/1.5 system-ui, "DejaVu Sans", sans-serif; }
svg { max-width: 100%; height: auto; }
h2 { font-size: 16px; margin: 24px 0 6px; }
table { border-collapse: collapse; font-size: 13px; }
td, th { white-space: nowrap; padding: 2px 14px 2px 0; text-align: left; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.t { text-align: right; font-variant-numeric: tabular-nums; color: var(--soft); }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
ul { list-style: none; padding: 0; margin: 0; }
</style>
{{.SVG}}
<h2>What was promised</h2>
<ul>{{range .Verdicts}}<li>{{if .OK}}<span class="good">kept</span>{{else}}<span class="bad">broken</span>{{end}} {{.Text}}</li>{{end}}</ul>
<h2>Every event</h2>
<table><tr><th>ms</th><th>who</th><th>what</th><th>attempt</th><th>write</th><th>done</th><th>token</th><th></th></tr>
{{range .Rows}}<tr><td class="t">{{.Ms}}</td><td>{{.Who}}</td><td{{if eq .Kind "refused"}} class="bad"{{end}}>{{.Kind}}</td><td>{{.Attempt}}</td><td>{{.Step}}</td><td>{{.Done}}</td><td>{{.Token}}</td><td>{{.Text}}</td></tr>
{{end}}</table>
</html>
`))

type row struct{ Ms, Who, Kind, Attempt, Step, Done, Token, Text string }

// Page writes the picture as a page, with the checks and every event below it.
func (p Picture) Page(w io.Writer) error {
	events := slices.Clone(p.Events)
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	begin := understand(events, p.Total).begin
	var rows []row
	for _, e := range events {
		rows = append(rows, rowOf(e, begin))
	}
	return page.Execute(w, map[string]any{
		"Title": p.Title, "Verdicts": p.Verdicts, "Rows": rows,
		"SVG": template.HTML(p.SVG()), //nolint:gosec // escaped where it was made
	})
}

func rowOf(e Event, begin time.Time) row {
	r := row{
		Ms: fmt.Sprintf("%.1f", float64(e.At.Sub(begin).Microseconds())/1000), Who: e.Who, Kind: string(e.Kind),
		Attempt: number(e.Attempt), Step: number(e.Step), Done: number(e.Done), Text: e.Text,
	}
	if e.Token.Valid() {
		r.Token = e.Token.String()
	}
	if e.Current.Valid() {
		r.Text += "the database has seen " + e.Current.String()
	}
	return r
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
