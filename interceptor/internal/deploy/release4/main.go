// Release4 is the fourth release. It takes a payment by pointer, with types that read the
// same text, and has a second argument.
package main

import "github.com/fencekit/fencekit-go/interceptor/internal/deploy"

// Number is the number of an order.
type Number string

// Payment is the input of its activities.
type Payment struct {
	Order  Number `json:"Order,omitempty"`
	Amount int64
	Note   *string
}

func main() {
	deploy.Release[*Payment]{
		Name:    "release4",
		Number:  func(p *Payment) string { return string(p.Order) },
		Moved:   func(p *Payment) any { return p.Order },
		Another: true,
	}.Main()
}
