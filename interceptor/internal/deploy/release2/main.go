// Release2 is the second release. A payment has a note, and the key of one activity
// holds the amount as well.
package main

import "github.com/fencekit/fencekit-go/interceptor/internal/deploy"

// Payment is the input of its activities.
type Payment struct {
	Order  string
	Amount int
	Note   string
}

func main() {
	deploy.Release[Payment]{
		Name:   "release2",
		Number: func(p Payment) string { return p.Order },
		Moved:  func(p Payment) any { return []any{p.Order, p.Amount} },
	}.Main()
}
