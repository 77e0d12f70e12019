package testsuite

import (
	"fmt"
	"strings"
)

// refused: after the successor's end, no write of the zombie counts any more.
func (pr *prover) refused(n int, zombie, successor *Run, a against) *finding {
	if !stale(zombie, successor) {
		return nil
	}
	for _, s := range zombie.Steps() {
		if !s.held || !s.Changed || s.guards || pr.allowed(s) || keyed(s, successor) {
			continue
		}
		with := ""
		if s.Token.Valid() {
			with = fmt.Sprintf(" with token %s", s.Token.Value)
		}
		return found(causeOf(s, zombie, successor),
			"this write got through the fence\n%s\nattempt %d was frozen before statement %d with token %s, %s ran to its end with token %s; "+
				"then attempt %d woke up, and its write was applied%s",
			s, zombie.call.id.attempt, n, zombie.Token().Value, a.name, successor.Token().Value, zombie.call.id.attempt, with)
	}
	return pr.swallowed(zombie)
}

// stale reports whether the zombie has been granted a token, and the successor a newer
// one.
func stale(zombie, successor *Run) bool {
	c, err := zombie.Token().Compare(successor.Token())
	return err == nil && zombie.Token().Valid() && c < 0
}

// keyed reports whether an outside effect carries the key with which the successor has
// had it: then the other side knows that it is one.
func keyed(s Step, successor *Run) bool {
	if s.System != Outside || s.Key == "" {
		return false
	}
	same := true
	for _, u := range successor.Steps() {
		if u.System == Outside && u.Text == s.Text && u.Source == s.Source {
			same = u.Key == s.Key
		}
	}
	return same
}

// swallowed: a refusal is not passed over.
func (pr *prover) swallowed(zombie *Run) *finding {
	zombie.mu.Lock()
	ran, err := zombie.bodyRan, zombie.bodyErr
	zombie.mu.Unlock()
	if !ran || err != nil {
		return nil
	}
	steps := zombie.Steps()
	for i, s := range steps {
		if !s.held || s.guards || s.System == Outside || pr.allowed(s) || !s.Refused && (!s.writes || s.Changed || s.Err != nil) {
			continue
		}
		if looksItUp(steps[i+1:]) { // pgxfence.Once, which returns what was done before
			continue
		}
		if s.Unfenced || s.Stray { // nobody has refused it: it found nothing to change
			return found(causeOf(s, zombie, zombie), "a write is not fenced\n%s", s)
		}
		return found(causeSwallowed, "the body returned success although this write was refused\n%s", s)
	}
	return nil
}

func looksItUp(steps []Step) bool {
	for _, s := range steps {
		if strings.Contains(s.Text, "fencekit.ledger") {
			return true
		}
	}
	return false
}
