package testsuite

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// handovers freezes the activity before its first write, and a rival at each of its own
// steps while the activity wakes up and runs to its end: what the rival has read by then
// must not be out of date.
func (pr *prover) handovers() *finding {
	first := pr.firstWrite()
	if first == 0 {
		return nil
	}
	for _, a := range pr.successors() {
		if !a.rival {
			continue
		}
		for n := 1; ; n++ {
			frozen, f := pr.handover(first, n, a)
			if f != nil {
				return f
			}
			if !frozen {
				break
			}
		}
	}
	return nil
}

// firstWrite is the number of the body's first write, or of the BEGIN of its
// transaction, where it does not hold locks yet; 0 if there is none.
func (pr *prover) firstWrite() int {
	steps := pr.plain.Steps()
	for i, s := range steps {
		if !s.writes || s.guards || s.System != Postgres || s.Phase != InBody {
			continue
		}
		for ; s.wasInTx && i >= 0; i-- {
			if b := steps[i]; b.session == s.session && beginning.MatchString(b.Text) {
				return b.N
			}
		}
		return s.N
	}
	return 0
}

var beginning = regexp.MustCompile(`(?i)^\s*(begin|start transaction)\b`)

func (pr *prover) handover(first, n int, a against) (frozen bool, f *finding) {
	if f := pr.reset(); f != nil {
		return false, f
	}
	zombie := pr.call().FreezeAt(BeforeStep(first))
	if !zombie.Frozen() {
		return false, found("", "it does not take the same steps in each run: it has not come to statement %d again", first)
	}
	defer zombie.goOn()
	pr.freeLease(zombie)
	rival := a.call(zombie).FreezeAt(BeforeStep(n))
	frozen = rival.Frozen()
	defer rival.goOn()
	zombie.goOn()
	pr.letEnd(zombie, rival)
	rival.Thaw()
	zombie.Wait()
	_, f = pr.settle(zombie)
	if f == nil {
		_, f = pr.settle(rival)
	}
	if f == nil {
		f = pr.right(a.wants)
	}
	if f != nil {
		f.text = fmt.Sprintf("frozen before statement %d; meanwhile %s began and came to its statement %d; then it woke up and ended; then the rival did: %s",
			first, a.name, n, f.text)
		f.cause = causeRead
		if s, ok := readBefore(rival, n); ok {
			f.text += fmt.Sprintf("\nthe rival computed with what it had read here\n%s", s)
		}
	}
	return frozen, f
}

// letEnd waits for a run's end, or until it waits for a lock of another one's.
func (pr *prover) letEnd(r, other *Run) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		select {
		case <-r.Done():
			return
		case <-tick.C:
		}
		if sessions := other.sessions(); len(sessions) > 0 && pr.waitsFor(sessions) {
			return
		}
	}
}

// readBefore is the last read of the body before step n.
func readBefore(r *Run, n int) (read Step, ok bool) {
	for _, s := range r.Steps() {
		if s.N < n && s.Phase == InBody && s.reads() {
			read, ok = s, true
		}
	}
	return read, ok
}

// reads reports whether the step is a question of the user's to Postgres.
func (s Step) reads() bool {
	return s.System == Postgres && !s.writes && !s.guards && !strings.Contains(s.Text, "fencekit.") && !transactional.MatchString(s.Text)
}

var transactional = regexp.MustCompile(`(?i)^\s*(begin|start transaction|commit|rollback|savepoint|release)\b`)
