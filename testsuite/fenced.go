package testsuite

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"time"

	"github.com/fencekit/fencekit-go/interceptor"
)

// ProveFenced proves that an activity survives being a zombie. At every step that it
// sends, Redis and Postgres and outside, in turn: it freezes the activity there, lets
// the next attempt run to its end, thaws it, and checks that every write that it sends
// from then on was refused, and that the state is that of one undisturbed run. With
// rivals, it does the same with each of them as the successor, and once more with the
// successor frozen at each of its own steps while the zombie runs to its end.
//
// An activity of n steps is run 2n+2 times, and some 7n+9 times more for each rival; a
// step at which the zombie holds locks that the successor waits for costs up to three
// more: the server ends the zombie's transaction, or the zombie wakes up in time to
// commit.
//
// It fails t with the first write that got through: its SQL, its line, and the cause.
func ProveFenced(t T, k *Kit, p Proof) Report {
	t.Helper()
	return prove(t, k, p, "ProveFenced", (*prover).fenced)
}

func (pr *prover) fenced() *finding {
	for _, part := range []func() *finding{pr.seen, pr.sameKey, pr.exclusive, pr.zombies, pr.handovers, pr.spotless} {
		if f := part(); f != nil {
			return f
		}
	}
	return nil
}

// guarded: the activity has a guard, and nothing is written before that has begun.
func (pr *prover) guarded() *finding {
	unguarded := pr.plain.Outcome() == ""
	for _, s := range pr.plain.Steps() {
		if s.writes && !s.guards && (s.Phase == Beginning || unguarded) && !pr.allowed(s) {
			return found(causeBegin, "an undisturbed run writes before an operation has begun\n%s", s)
		}
	}
	if unguarded {
		return found(causeUnguarded, "it is not guarded")
	}
	return nil
}

// seen: what the activity does passes through the kit, or there is nowhere to freeze it.
func (pr *prover) seen() *finding {
	sends := false
	for _, s := range pr.plain.Steps() {
		if s.guards {
			continue
		}
		sends = true
		if s.Changed || pr.allowed(s) || sealing.MatchString(s.Text) { // a function may write in a sealed transaction
			return nil
		}
	}
	if !sends {
		return found(causePast, "the body of an undisturbed run sends nothing through the kit")
	}
	if pr.first != nil && !reflect.DeepEqual(*pr.first, pr.want[0]) {
		return found(causePast+". Or a function of the database writes: call it in pgxfence.InTx",
			"an undisturbed run changes the state from %+v to %+v, and nothing that it sends through the kit changes anything", *pr.first, pr.want[0])
	}
	return nil
}

var sealing = regexp.MustCompile(`\bfencekit\.seal\(`)

// outlived: no goroutine is left of the body.
func (pr *prover) outlived() *finding {
	for _, s := range pr.plain.Steps() {
		if s.late && (s.writes || s.Unfenced) && !pr.allowed(s) {
			return found(causeGoroutine, "a write comes after the body has returned\n%s", s)
		}
	}
	if left := pr.plain.outliers; len(left) > 0 {
		return found(causeGoroutine, "a goroutine that the body has started goes on after its return, at %s", left[0])
	}
	return nil
}

// spotless: what no zombie has shown.
func (pr *prover) spotless() *finding {
	for _, s := range pr.plain.Steps() {
		if s.guards || s.Phase != InBody || pr.allowed(s) {
			continue
		}
		switch own := pr.plain.Token(); {
		case s.System == Outside && s.Key == "":
			return found(causeNoKey, "an outside effect cannot be told from its repetition\n%s", s)
		case s.Token.Resource == own.Resource && s.Token != own && s.writes:
			return found(causeCached, "a write carries token %s, and the attempt was granted %s\n%s", s.Token, own, s)
		case s.Stray && s.writes:
			return found(causeStray, "a write does not carry the activity's context\n%s", s)
		case s.Unfenced:
			return found(causeOf(s, pr.plain, pr.plain), "a write is not fenced\n%s", s)
		}
	}
	return nil
}

// sameKey: inputs that mean the same are one operation.
func (pr *prover) sameKey() *finding {
	for _, input := range pr.proof.Same {
		if f := pr.reset(); f != nil {
			return f
		}
		first := pr.call().Execute()
		second := pr.callWith(input)
		second.id = first.call.id
		second.id.attempt++
		second.id.started = second.id.started.Add(time.Second)
		r := second.Execute()
		cause := causeKey
		if r.Key() == first.Key() {
			cause = causeInput
		}
		if cause == causeKey || r.Err() != nil {
			return found(cause, "%+v and %+v are not the same operation: keys %s and %s (%v)",
				pr.proof.Input, input, first.Key(), r.Key(), r.Err())
		}
	}
	return nil
}

// exclusive: a rival does not run beside the activity.
func (pr *prover) exclusive() *finding {
	for _, input := range pr.proof.Rivals {
		if f := pr.serial(input); f != nil {
			return f
		}
		if f := pr.reset(); f != nil {
			return f
		}
		holder := pr.call().FreezeAt(BeforeComplete)
		rival := pr.callWith(input).Start()
		ran := pr.meet(rival)
		holder.Thaw()
		pr.freeLease(holder) // for a rival that waits
		rival.Wait()
		if ran {
			return found(causeResource, "a rival with input %+v ran its body while the lease was held: their resources are %q and %q",
				input, holder.Resource(), rival.Resource())
		}
	}
	return nil
}

// meet waits until a rival is refused, waits in line, or has got past the guard.
func (pr *prover) meet(rival *Run) (ran bool) {
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		select {
		case <-rival.Done():
			return rival.BodyRan()
		default:
		}
		if rival.BodyRan() {
			return true
		}
		if rival.waits() {
			return false
		}
	}
	return false
}

// waits reports whether the run has found the operation busy.
func (r *Run) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.steps) - 1; i >= 0; i-- {
		if s := r.steps[i]; s.guards && s.word != "" {
			return s.word == "busy"
		}
	}
	return false
}

// serial notes the states after one of the two and then the other.
func (pr *prover) serial(input any) *finding {
	for _, first := range []bool{true, false} {
		if f := pr.reset(); f != nil {
			return f
		}
		calls := []*Call{pr.call(), pr.callWith(input)}
		if !first {
			calls[0], calls[1] = calls[1], calls[0]
		}
		for _, c := range calls {
			r := c.Execute()
			if err := r.Err(); err != nil {
				return found(causeOfFailure(r), "with the rival %+v it fails in an undisturbed run: %v", input, err)
			}
		}
		if f := pr.noteState(); f != nil {
			return f
		}
	}
	return nil
}

// against is a successor, and the states that are right after it.
type against struct {
	name  string
	call  func(zombie *Run) *Call
	wants []any
	rival bool
}

func (pr *prover) successors() []against {
	list := []against{{
		name: "the next attempt", wants: pr.want[:1],
		call: func(zombie *Run) *Call { return pr.again(zombie, NextAttempt) },
	}}
	for i, input := range pr.proof.Rivals {
		list = append(list, against{
			name: fmt.Sprintf("a rival with input %+v", input), wants: pr.want[1+2*i : 3+2*i], rival: true,
			call: func(*Run) *Call { return pr.callWith(input) },
		})
	}
	return list
}

// zombies freezes the activity at each of its steps.
func (pr *prover) zombies() *finding {
	for _, a := range pr.successors() {
		for n := 1; ; n++ {
			frozen, blocked, f := pr.zombie(n, a, false)
			if f == nil && blocked {
				_, _, f = pr.zombie(n, a, true)
			}
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

// zombie is one such run. If the successor waits for a lock of the zombie's, the server
// ends its transaction; or, in an overlap, the zombie wakes up in time.
func (pr *prover) zombie(n int, a against, overlap bool) (frozen, blocked bool, f *finding) {
	if f := pr.reset(); f != nil {
		return false, false, f
	}
	zombie := pr.call().FreezeAt(BeforeStep(n))
	if !zombie.Frozen() {
		return false, false, pr.right(pr.want[:1])
	}
	defer zombie.goOn()
	successor, blocked := pr.succeed(zombie, a, overlap)
	zombie.Thaw()
	if !overlap {
		if f := pr.refused(n, zombie, successor, a); f != nil {
			return true, blocked, f
		}
	}
	return true, blocked, pr.aftermath(n, zombie, successor, a)
}

// aftermath: in the end everything has happened once.
func (pr *prover) aftermath(n int, zombie, successor *Run, a against) *finding {
	_, f := pr.settle(successor)
	if f == nil && a.rival {
		_, f = pr.settle(zombie)
	}
	if f == nil {
		f = pr.right(a.wants)
	}
	if f == nil {
		return nil
	}
	f.text = fmt.Sprintf("frozen before statement %d, with %s meanwhile: %s", n, a.name, f.text)
	if a.rival {
		f.cause = causeRead
		if s, ok := readBefore(successor, len(successor.Steps())); ok {
			f.text += fmt.Sprintf("\nit computed with what it had read here\n%s", s)
		}
	} else if s, cause := twice(zombie, successor); cause != "" {
		f.text += fmt.Sprintf("\nboth have made this change\n%s", s)
		f.cause = cause
	}
	return f
}

// succeed runs the successor to its end.
func (pr *prover) succeed(zombie *Run, a against, overlap bool) (successor *Run, blocked bool) {
	for range redeliveries {
		successor = a.call(zombie).Start()
		blocked = pr.accompany(zombie, successor, overlap) || blocked
		if !failedBy(successor.Err(), interceptor.TypeBusy) {
			break
		}
		pr.freeLease(zombie)
	}
	return successor, blocked
}

// accompany waits for the successor and moves out of its way what a zombie would not:
// its lease, which runs out, and its transaction, which the server ends.
func (pr *prover) accompany(zombie, successor *Run, overlap bool) (blocked bool) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		select {
		case <-successor.Done():
			return blocked
		case <-tick.C:
		}
		if successor.waits() {
			pr.freeLease(zombie)
		}
		sessions := zombie.sessions() // a statement that was on its way may have begun one
		if len(sessions) == 0 || blocked || !pr.waitsFor(sessions) {
			continue
		}
		blocked = true
		if overlap {
			zombie.Thaw()
		} else {
			pr.terminate(sessions)
		}
	}
	return blocked
}

// sessions are those on which the run has a transaction.
func (r *Run) sessions() (pids []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		pids = append(pids, int32(c.PgConn().PID())) //nolint:gosec // Postgres's own numbers are int4
	}
	return pids
}

// waitsFor reports whether somebody waits for a lock of one of the sessions.
func (pr *prover) waitsFor(sessions []int32) (waits bool) {
	ctx, cancel := pr.ctx()
	defer cancel()
	_ = pr.kit.direct.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
		WHERE a.wait_event_type = 'Lock' AND pg_catalog.pg_blocking_pids(a.pid) && $1::int4[])`, sessions).Scan(&waits)
	return waits
}

func (pr *prover) terminate(sessions []int32) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, _ = pr.kit.direct.Exec(ctx, `SELECT pg_catalog.pg_terminate_backend(pid) FROM unnest($1::int4[]) pid`, sessions)
}
