package testsuite

import "fmt"

// Point is a place in a run at which it can be frozen, or its process die.
type Point struct {
	kind pointKind
	n    int
}

type pointKind int

const (
	nowhere pointKind = iota
	beforeBody
	beforeStep
	afterStep
	afterEffect
	beforeComplete
	afterComplete
)

// The points. If a run has no such point it goes on to its end.
var (
	// BeforeBody: the operation has begun and the body not.
	BeforeBody = Point{kind: beforeBody}
	// BeforeComplete: the body has returned a result, and it is not stored.
	BeforeComplete = Point{kind: beforeComplete}
	// AfterComplete: the result is stored, and Temporal has not been told.
	AfterComplete = Point{kind: afterComplete}
)

// BeforeStep is the point before the n-th step is sent, from 1. See [Run.Steps].
func BeforeStep(n int) Point { return Point{kind: beforeStep, n: n} }

// AfterStep is the point after the n-th step has happened, with its reply unread.
func AfterStep(n int) Point { return Point{kind: afterStep, n: n} }

// AfterEffect is the point after the n-th step of the body that changed something, from
// 1. A change in a transaction is none before that has committed; then the point is after
// the COMMIT, for each of them.
func AfterEffect(n int) Point { return Point{kind: afterEffect, n: n} }

// String is the point for messages.
func (p Point) String() string {
	switch p.kind {
	case beforeBody:
		return "before the body"
	case beforeComplete:
		return "before complete"
	case afterComplete:
		return "after complete"
	case beforeStep:
		return fmt.Sprintf("before statement %d", p.n)
	case afterStep:
		return fmt.Sprintf("after statement %d", p.n)
	case afterEffect:
		return fmt.Sprintf("after effect %d", p.n)
	}
	return "nowhere"
}
