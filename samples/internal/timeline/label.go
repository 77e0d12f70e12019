package timeline

import (
	"cmp"
	"slices"
)

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
	boldWidth = 7.4
	labelGap  = 10
)

func (l label) width() float64 {
	if l.class == "bad" {
		return float64(len([]rune(l.text))) * boldWidth
	}
	return float64(len([]rune(l.text))) * charWidth
}

// pack puts labels into rows, within left and right, and returns how many rows it
// takes. Neither do labels overlap, nor does a text cover the line that leads from the
// top to a label below it: from right to left, each goes below all that it reaches
// under.
func pack(labels []label, left, right float64) (rows int) {
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.x, b.x) })
	for i := range slices.Backward(labels) {
		l := &labels[i]
		l.left = max(left, min(l.x, right-l.width()))
		for _, other := range labels[i+1:] {
			if l.left+l.width()+labelGap > min(other.left, other.x) {
				l.row = max(l.row, other.row+1)
			}
		}
		rows = max(rows, l.row+1)
	}
	return rows
}
