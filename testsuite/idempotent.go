package testsuite

import (
	"fmt"
	"reflect"
)

// ProveIdempotent proves that an activity's effects are those of one run, whenever its
// process dies. Before every step that it sends, in turn, and after the last one, the
// process dies, as by [Call.CrashAt]; the activity is redelivered until it ends well,
// and the state is compared with that of one undisturbed run.
//
// What the policy takes from the input (Key, Compare, Resource) is taken once more under a
// clock that is years away: a function that looks at a clock, rounded or not, is found.
// This needs t, or that of the kit, to be a *testing.T or a suite of testify.
//
// An activity of n steps is run 2n+4 times. Proof.Rivals and Same are not looked
// at.
func ProveIdempotent(t T, k *Kit, p Proof) Report {
	t.Helper()
	return prove(t, k, p, "ProveIdempotent", func(pr *prover) *finding {
		if f := pr.timeless(t); f != nil {
			return f
		}
		return pr.idempotent()
	})
}

func (pr *prover) idempotent() *finding {
	for n := 1; ; n++ {
		crashed, f := pr.crash(BeforeStep(n))
		if f != nil {
			return f
		}
		if !crashed {
			break
		}
	}
	_, f := pr.crash(AfterComplete)
	return f
}

// crash is one such run.
func (pr *prover) crash(p Point) (crashed bool, f *finding) {
	if f := pr.reset(); f != nil {
		return false, f
	}
	dead := pr.call().CrashAt(p)
	crashed = dead.isDead()
	if !crashed {
		return false, nil
	}
	last := pr.again(dead, NextAttempt).Execute()
	unknown, f := pr.settle(last)
	if f == nil {
		f = pr.right(pr.want[:1])
	}
	if f != nil && unknown && pr.untouched() {
		f = nil
	}
	if f == nil {
		f = pr.sameKeys(dead, last)
	}
	if f == nil {
		return true, nil
	}
	f.text = fmt.Sprintf("the process died %s, and it was redelivered: %s", p, f.text)
	if s, cause := twice(dead, last); cause != "" && f.cause == "" {
		f.text += fmt.Sprintf("\nboth have made this change\n%s", s)
		f.cause = cause
	}
	return true, f
}

// untouched reports whether the state is that before any run.
func (pr *prover) untouched() bool {
	s, f := pr.state()
	if f != nil || pr.reset() != nil {
		return false
	}
	first, f := pr.readState()
	return f == nil && reflect.DeepEqual(s, first)
}

// sameKeys: two attempts send one outside effect with one key.
func (pr *prover) sameKeys(a, b *Run) *finding {
	if s, cause := twice(a, b); (cause == causeOtherKey || cause == causeNoKey) && !pr.allowed(s) {
		return found(cause, "two attempts have sent what the other side takes for two\n%s", s)
	}
	return nil
}
