package testsuite

import (
	"testing"
	"testing/synctest"

	commonpb "go.temporal.io/api/common/v1"
	"google.golang.org/protobuf/proto"
)

const causeClock = "the policy takes something else from the same input at another time: Key, Compare and Resource must be functions of " +
	"the input alone. Let the workflow put the time into the input (workflow.Now), or give the key by interceptor.WithKey"

// testOf is the test behind t, also where t is a suite of testify, or nil.
func testOf(t any) *testing.T {
	switch t := t.(type) {
	case *testing.T:
		return t
	case interface{ T() *testing.T }:
		return t.T()
	}
	return nil
}

// timeless looks for functions of the policy that look at a clock, rounded or not: what the
// policy takes from the input must be the same in the year 2000, which is when the clock
// of a synctest bubble starts. In a bubble nothing can be sent, so this is asked of the
// call's header, for which nothing is.
func (pr *prover) timeless(t T) *finding {
	test := testOf(t)
	if test == nil {
		test = testOf(pr.kit.t)
	}
	if test == nil { // a benchmark or a fuzz target has no bubble
		return nil
	}
	now, err := pr.kit.headerOfLocal(pr.proof.Activity, pr.args())
	if err != nil {
		return found("", "%v", err)
	}
	var then map[string]*commonpb.Payload
	synctest.Test(test, func(*testing.T) { then, err = pr.kit.headerOfLocal(pr.proof.Activity, pr.args()) })
	if err != nil {
		return found("", "%v", err)
	}
	for name := range now {
		if !proto.Equal(now[name], then[name]) {
			return found(causeClock, "its key, or what is compared or locked beside it, is another one in the year 2000")
		}
	}
	return nil
}
