package conformance

import (
	"context"
	"testing"
)

// Case is one rule of the protocol.
type Case struct {
	// Name is unique and stable.
	Name string
	// Run checks the rule on a store of its own.
	Run func(t T, s Store)
}

// Cases are all rules, in the order in which a new store best learns them.
func Cases() []Case {
	var all []Case
	for _, group := range [][]rule{leaseRules, recordRules, guardRules, gateRules, failureRules, suspendRules, optionRules, lossRules} {
		for _, r := range group {
			all = append(all, Case{Name: r.name, Run: func(t T, s Store) { r.run(t, s) }})
		}
	}
	return all
}

// Run runs all cases as parallel subtests, each on a store that open makes for it.
func Run(t *testing.T, open func(t testing.TB) Store) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, open(t))
		})
	}
}

// rule is a case before it is wrapped.
type rule struct {
	name string
	do   func(c *check)
}

func (r rule) run(t T, s Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	r.do(&check{T: t, ctx: ctx, s: s})
}
