// Release3 is the third release. A payment has fields of all kinds, before, between and
// behind those that it had.
package main

import (
	"time"

	"github.com/fencekit/fencekit-go/interceptor/internal/deploy"
)

// Address is where the bill goes.
type Address struct {
	Street string
	Lines  []string
	Since  time.Time
}

// Audit is who has looked at the payment.
type Audit struct {
	By string
	At time.Time
}

// Payment is the input of its activities.
type Payment struct {
	Due     time.Time
	Order   string
	Items   []string
	Amount  int
	Labels  map[string]string
	Rate    *float64
	Address Address
	Note    string
	Audit
	Urgent bool
}

func main() {
	deploy.Release[Payment]{
		Name:   "release3",
		Number: func(p Payment) string { return p.Order },
		Moved:  func(p Payment) any { return p.Order },
	}.Main()
}
