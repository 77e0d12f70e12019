package primitives

import (
	"fmt"
	"time"
)

// Turn spreads the calls that find a resource busy, so that they do not all come back at
// once: [BusyError].Turn is after the turns of those who were refused before. Calls of one
// operation share theirs, and have none while another call of it is at work, whose result
// is for all. A turn is advice: nothing keeps others out meanwhile.
type Turn struct {
	// Term is how long the call is likely to hold the resource. Required.
	Term time.Duration

	// Probe, if positive, lets the turn begin before the holder's lease ends: once it has
	// been held for as long again as it has been so far, after a second at least and Probe
	// at most. Default: the turn begins when that lease ends, for a call that must not ask
	// in vain.
	Probe time.Duration

	// Within is how late the turn may begin. A call for which there is none by then is told
	// Within. Required.
	Within time.Duration
}

func (t Turn) check() error {
	if t == (Turn{}) {
		return nil
	}
	for _, d := range []struct {
		field string
		value time.Duration
		least time.Duration
	}{{"Turn.Term", t.Term, time.Millisecond}, {"Turn.Probe", t.Probe, 0}, {"Turn.Within", t.Within, time.Millisecond}} {
		if d.value < d.least || d.value > maxRetention {
			return &OptionError{d.field, fmt.Sprintf("%s is not between %s and %s", d.value, d.least, maxRetention)}
		}
	}
	return nil
}

// keys are those of a begin of c, which needs that of the turns only to take one.
func (t Turn) keys(c *Claim) []string {
	if t == (Turn{}) {
		return c.keys()
	}
	return append(c.keys(), c.names.turns())
}

// arg is the turn as the begin script reads it.
func (t Turn) arg() string {
	if t == (Turn{}) {
		return ""
	}
	return millis(t.Term) + " " + millis(t.Probe) + " " + millis(t.Within)
}
