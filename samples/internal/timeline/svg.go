package timeline

import (
	"fmt"
	"html"
	"strings"
	"time"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Picture is what to draw.
type Picture struct {
	Title    string
	Subtitle string
	Total    int // the progress at which the work is done
	Events   []Event
	Verdicts []Verdict // for the page
}

// Verdict is a check of what was promised.
type Verdict struct {
	OK   bool
	Text string
}

const (
	width   = 1200
	gutter  = 118.0 // holds the names of the lanes
	margin  = 24.0
	tail    = 190.0 // to the right of the last event, for its label
	barHigh = 26.0
	rowHigh = 15.0
)

const style = `
text { font: 11px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); }
.title { font-size: 17px; font-weight: 600; } .lane { font-size: 12.5px; font-weight: 600; } .soft { fill: var(--soft); }
.bad { fill: var(--bad); font-weight: 600; } .good { fill: var(--good); } .num { font-size: 10px; text-anchor: middle; fill: var(--paper); font-weight: 600; }
.rule { stroke: var(--rule); } .lead { stroke: var(--soft); stroke-width: .7; } .paper { fill: var(--paper); }
.lease0 { fill: var(--lease0); } .lease1 { fill: var(--lease1); } .lease2 { fill: var(--lease2); } .none { fill: none; stroke: var(--soft); stroke-dasharray: 4 3; }
.ice { fill: url(#ice); stroke: var(--ice); } .tick { fill: var(--good); } .cross { fill: var(--bad); } .event { fill: var(--ink); }
.step { fill: none; stroke: var(--good); stroke-width: 2; } .drop { stroke: var(--bad); stroke-width: 2.5; } .strike { fill: none; stroke: var(--paper); stroke-width: 2.2; }
svg { --paper:#ffffff; --ink:#1f2430; --soft:#687083; --rule:#e3e6ec; --good:#1a7f4b; --bad:#c62828; --ice:#5b8fd6; --lease0:#f2cf8f; --lease1:#b8d5f5; --lease2:#d9c7ef; }
@media (prefers-color-scheme: dark) { svg { --paper:#12151c; --ink:#e6e9f0; --soft:#9aa3b5; --rule:#2a303c; --good:#4cc38a; --bad:#ff7b72; --ice:#7fb0ee; --lease0:#6b5222; --lease1:#28486e; --lease2:#4d3a6b; } }
`

// canvas is an SVG under construction, from top to bottom.
type canvas struct {
	strings.Builder
	m *model
	y float64
}

// SVG is the picture as one self-contained file, light or dark as its reader likes.
func (p Picture) SVG() string {
	c := &canvas{m: understand(p.Events, p.Total), y: 30}
	c.text(margin, c.y, "title", p.Title)
	c.y += 19
	c.text(margin, c.y, "soft", p.Subtitle)
	c.y += 18
	c.legend()
	top := c.y
	c.events("Temporal", c.m.temporal, func(e Event) string { return e.Text })
	for _, l := range c.m.lanes {
		c.worker(l)
	}
	c.events("Redis", c.m.redis, leaseText)
	c.progress()
	return c.finish(top)
}

func (c *canvas) finish(top float64) string {
	var out strings.Builder
	axis := c.axis(top)
	height := c.y + 14
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img">`+"\n", width, height, width, height)
	out.WriteString("<style>" + style + "</style>\n")
	out.WriteString(`<defs><pattern id="ice" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
		`<rect width="7" height="7" style="fill:var(--paper);opacity:.55"/><line x1="0" y1="0" x2="0" y2="7" style="stroke:var(--ice);stroke-width:3;opacity:.55"/></pattern></defs>` + "\n")
	fmt.Fprintf(&out, `<rect class="paper" width="%d" height="%.0f"/>`+"\n", width, height)
	out.WriteString(axis + c.String() + "</svg>\n")
	return out.String()
}

// x is the place of a moment.
func (c *canvas) x(at time.Time) float64 {
	whole := max(c.m.end.Sub(c.m.begin), time.Millisecond)
	return gutter + (width-gutter-tail)*max(0, float64(at.Sub(c.m.begin))/float64(whole))
}

func (c *canvas) text(x, y float64, class, text string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" class="%s">%s</text>`+"\n", x, y, class, html.EscapeString(text))
}

func (c *canvas) rule() {
	fmt.Fprintf(c, `<line class="rule" x1="%.0f" y1="%.1f" x2="%.0f" y2="%.1f"/>`+"\n", margin, c.y, width-margin, c.y)
}

// labels draws packed labels below y, each with a line to what it is about, and
// returns how high they are.
func (c *canvas) labels(all []label, y float64) float64 {
	rows := pack(all, gutter, width-margin)
	for _, l := range all {
		base := y + rowHigh*float64(l.row) + 11
		fmt.Fprintf(c, `<line class="lead" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", l.x, y-3, l.x, base-9)
		c.text(l.left, base, l.class, l.text)
	}
	return rowHigh * float64(rows)
}

// events is a lane of things that happened at a moment.
func (c *canvas) events(name string, events []Event, text func(Event) string) {
	if len(events) == 0 {
		return
	}
	c.rule()
	c.text(margin, c.y+22, "lane", name)
	var all []label
	for _, e := range events {
		x := c.x(e.At)
		fmt.Fprintf(c, `<circle class="event" cx="%.1f" cy="%.1f" r="3.5"/>`+"\n", x, c.y+17)
		all = append(all, label{x: x, text: text(e)})
	}
	c.y += 26
	c.y += c.labels(all, c.y) + 10
}

var grants = map[string]struct{}{"begun": {}, "takeover": {}, "reclaimed": {}}

func leaseText(e Event) string {
	text := map[string]string{
		"begun": "lease granted", "takeover": "lease taken over", "reclaimed": "lease reclaimed",
		"completed": "result stored", "replayed": "result replayed", "failed": "given up",
		"lost": "lease lost",
	}[e.Text]
	if text == "" {
		text = e.Text
	}
	if e.Who != "" {
		text += ", " + e.Who
	}
	if _, grant := grants[e.Text]; grant && e.Token.Valid() {
		text += ", " + short(e.Token)
	}
	return text
}

// short is a token's end: enough to tell it from its neighbours.
func short(v fence.Value) string {
	s := v.String()
	return "…" + s[max(0, len(s)-7):]
}

// axis is the grid of seconds behind the lanes from top to here.
func (c *canvas) axis(top float64) string {
	var grid canvas
	whole := max(c.m.end.Sub(c.m.begin), time.Millisecond)
	step := time.Second
	for whole/step > 16 {
		step *= 2
	}
	for d := time.Duration(0); d <= whole; d += step {
		x := c.x(c.m.begin.Add(d))
		fmt.Fprintf(&grid, `<line class="rule" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", x, top, x, c.y)
		grid.text(x+3, c.y+11, "soft", d.String())
	}
	return grid.String()
}

func (c *canvas) legend() {
	x, y := margin, c.y
	item := func(shape, text string) {
		fmt.Fprintf(c, `<g transform="translate(%.1f %.1f)">%s</g>`+"\n", x, y-8, shape)
		c.text(x+30, y, "soft", text)
		x += 30 + float64(len(text))*charWidth + 18
	}
	item(`<rect class="lease0" width="24" height="10" rx="3"/>`, "holds the lease")
	item(`<rect class="none" width="24" height="10" rx="3"/>`, "runs without one")
	item(`<rect class="ice" width="24" height="10"/>`, "process frozen")
	item(`<circle class="tick" cx="12" cy="5" r="6"/>`, "write accepted")
	item(`<rect class="cross" x="5" y="-2" width="14" height="14" rx="3"/><path class="strike" d="M8 1l8 8m0 -8l-8 8"/>`, "write refused")
	item(`<rect class="cross" x="5" y="-2" width="14" height="14" rx="3"/>`, "write that undoes another")
	c.y += 14
}
