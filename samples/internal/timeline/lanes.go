package timeline

import (
	"fmt"
	"strconv"
	"time"
)

// worker is the lane of a worker: its leases, its freezes, its writes.
func (c *canvas) worker(l *lane) {
	c.rule()
	var above, below []label
	for _, r := range l.runs {
		above = append(above, label{x: c.x(r.At), text: r.describe()})
	}
	for _, w := range l.writes {
		if text := w.trouble(); text != "" {
			below = append(below, label{x: c.x(w.At), text: text, class: "bad"})
		}
	}
	rows := pack(above, gutter, width-margin)
	c.y += 6
	bar := c.y + rowHigh*float64(rows) + 4
	for _, a := range above {
		c.text(a.left, c.y+rowHigh*float64(a.row)+11, a.class, a.text)
	}
	c.text(margin, bar+17, "lane", l.name)
	for _, r := range l.runs {
		c.lease(r, bar)
	}
	for _, f := range l.frozen {
		c.ice(f, bar)
	}
	for _, w := range l.writes {
		c.mark(w, bar+barHigh/2)
	}
	c.y = bar + barHigh + 6
	c.y += c.labels(below, c.y) + 8
}

func (r *run) describe() string {
	if r.Token.Valid() {
		return fmt.Sprintf("attempt %d, token %s", r.Attempt, r.Token)
	}
	return fmt.Sprintf("attempt %d, no token", r.Attempt)
}

// trouble is what has to be said about a write, if anything.
func (w write) trouble() string {
	switch {
	case w.Kind == Refused:
		return fmt.Sprintf("write %d refused: %s < %s", w.Step, w.Token, w.Current)
	case w.backwards && w.was > w.Done:
		return fmt.Sprintf("stale write %d accepted: progress goes from %d back to %d", w.Step, w.was, w.Done)
	case w.backwards:
		return fmt.Sprintf("write %d done again", w.Step)
	}
	return ""
}

// lease draws a run: solid while it holds the lease, an outline without.
func (c *canvas) lease(r *run, y float64) {
	end := r.end
	if end.IsZero() {
		end = c.m.end
	}
	held := end
	if !r.expired.IsZero() && r.expired.Before(held) {
		held = r.expired
	}
	if !r.Token.Valid() {
		held = r.At
	}
	c.bar("none", r.At, end, y)
	if held.After(r.At) {
		c.bar(fmt.Sprintf("lease%d", c.grant(r)%3), r.At, held, y)
	}
}

// grant counts the grants before this one: each has a colour of its own.
func (c *canvas) grant(r *run) (n int) {
	for _, l := range c.m.lanes {
		for _, other := range l.runs {
			if other.At.Before(r.At) {
				n++
			}
		}
	}
	return n
}

func (c *canvas) bar(class string, from, to time.Time, y float64) {
	left := c.x(from)
	fmt.Fprintf(c, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.0f" rx="5"/>`+"\n",
		class, left, y, max(c.x(to)-left, 3), barHigh)
}

func (c *canvas) ice(f span, y float64) {
	if f.to.IsZero() {
		f.to = c.m.end
	}
	left, right := c.x(f.from), c.x(f.to)
	fmt.Fprintf(c, `<rect class="ice" x="%.1f" y="%.1f" width="%.1f" height="%.0f"/>`+"\n", left, y-2, right-left, barHigh+4)
	const text = "frozen (SIGSTOP)"
	if wide := float64(len(text)) * charWidth; right-left > wide+20 {
		fmt.Fprintf(c, `<rect class="paper" x="%.1f" y="%.1f" width="%.1f" height="16" rx="3"/>`+"\n", (left+right-wide)/2-4, y+5, wide+8)
		c.text((left+right-wide)/2, y+17, "", text)
	}
}

// mark is a write, with the number of its step.
func (c *canvas) mark(w write, y float64) {
	x := c.x(w.At)
	if w.Kind == Refused || w.backwards {
		fmt.Fprintf(c, `<rect class="cross" x="%.1f" y="%.1f" width="18" height="18" rx="3"/>`+"\n", x-9, y-9)
	} else {
		fmt.Fprintf(c, `<circle class="tick" cx="%.1f" cy="%.1f" r="9"/>`+"\n", x, y)
	}
	if w.Kind == Refused {
		fmt.Fprintf(c, `<path class="strike" d="M%.1f %.1fl10 10m0 -10l-10 10"/>`+"\n", x-5, y-5)
		return
	}
	c.text(x, y+3.5, "num", strconv.Itoa(w.Step))
}

const chartHigh = 70.0

// progress is the batch's row in the database, after each write that it took.
func (c *canvas) progress() {
	if c.m.total == 0 {
		return
	}
	c.rule()
	base := c.y + 18 + chartHigh
	c.text(margin, c.y+24, "lane", "Postgres")
	c.text(margin, c.y+40, "soft", "row: done")
	height := func(done int) float64 { return base - chartHigh*float64(done)/float64(c.m.total) }
	x, y := gutter, base
	lastNumber := -100.0
	for _, w := range c.m.writes {
		nx, ny := c.x(w.At), height(w.Done)
		fmt.Fprintf(c, `<path class="step" d="M%.1f %.1f H%.1f V%.1f"/>`+"\n", x, y, nx, min(y, ny))
		class := "soft"
		if ny > y {
			fmt.Fprintf(c, `<path class="drop" d="M%.1f %.1f V%.1f"/>`+"\n", nx, y, ny)
			class = "bad"
		}
		if nx-lastNumber > 14 || class == "bad" {
			c.text(nx+3, ny-4, class, strconv.Itoa(w.Done))
			lastNumber = nx
		}
		x, y = nx, ny
	}
	fmt.Fprintf(c, `<path class="step" d="M%.1f %.1f H%.1f"/>`+"\n", x, y, c.x(c.m.end))
	c.y = base + 10
}
