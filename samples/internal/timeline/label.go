package timeline

import "slices"

// label is a text that belongs to a place on the time axis.
type label struct {
	x     float64 // what it is about
	text  string
	class string

	left float64 // where it stands
	row  int
}

const (
	charWidth = 6.4 // of the 11px font, on the generous side
	labelGap  = 10
)

func (l label) width() float64 { return float64(len([]rune(l.text))) * charWidth }

// pack puts labels into as few rows as it takes for none to overlap, within left and
// right, and returns how many that are.
func pack(labels []label, left, right float64) (rows int) {
	slices.SortStableFunc(labels, func(a, b label) int {
		switch {
		case a.x < b.x:
			return -1
		case a.x > b.x:
			return 1
		}
		return 0
	})
	var ends []float64 // of each row
	for i := range labels {
		l := &labels[i]
		l.left = max(left, min(l.x, right-l.width()))
		l.row = slices.IndexFunc(ends, func(end float64) bool { return end+labelGap <= l.left })
		if l.row < 0 {
			l.row = len(ends)
			ends = append(ends, 0)
		}
		ends[l.row] = l.left + l.width()
	}
	return len(ends)
}
