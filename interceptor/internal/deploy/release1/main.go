// Release1 is the first release.
package main

import "github.com/fencekit/fencekit-go/interceptor/internal/deploy"

// Payment is the input of its activities.
type Payment struct {
	Order  string
	Amount int
}

func main() {
	deploy.Release[Payment]{
		Name:   "release1",
		Number: func(p Payment) string { return p.Order },
		Moved:  func(p Payment) any { return p.Order },
	}.Main()
}
