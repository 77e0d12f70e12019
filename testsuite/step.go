package testsuite

import (
	"fmt"
	"strings"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// System is where a step goes to.
type System string

// The systems that a kit watches.
const (
	Redis    System = "redis"
	Postgres System = "postgres"
	Outside  System = "outside" // HTTP through [Kit.RoundTripper], and [Kit.Effect]
)

// Phase is where in its life a run takes a step.
type Phase string

// The phases of a run.
const (
	Beginning Phase = "begin" // before the body: the guard, its ledger, its seal
	InBody    Phase = "body"
	Ending    Phase = "end" // after the body: complete or abort
)

// Step is one thing that a run sends to somebody else: a Redis command or pipeline, a
// Postgres statement, batch or COPY, a request.
type Step struct {
	N      int // from 1
	System System
	Text   string // the command, the SQL, the method and address
	Source string // file:line of the caller's code that sent it; empty for the guard's own
	Phase  Phase
	Token  fence.Token // of the context it was sent with, if there is exactly one
	Key    string      // idempotency key of an outside effect
	Err    error       // how it ended

	// Changed says that it wrote and was not refused: rows of a table, a key in Redis,
	// or an outside effect. What is in a transaction counts once that has committed.
	Changed bool
	// Refused says that a fence turned it down, as far as can be seen from outside.
	Refused bool
	// Unfenced says that it is a write under a guard past the helpers of pgxfence.
	Unfenced bool
	// Stray says that it was sent with a context that is not the activity's.
	Stray bool

	writes  bool   // it wrote, by its command tag, though maybe no row
	untold  bool   // it is a statement that writes whatever its command tag says
	word    string // the first of a reply of this module's scripts
	guards  bool   // the guard's own, by who called
	kits    bool   // sent by package primitives, for the guard or for the caller
	held    bool   // sent after the run was thawed
	late    bool   // sent after the body had returned, and not by the guard
	session uint32
	inTx    bool   // sent in a transaction that is still open
	wasInTx bool   // sent in a transaction
	tag     string // the last command tag of its answer
	commits int    // earlier effects that took place when it committed
}

// String is the step with its place in the code, for messages.
func (s Step) String() string {
	text := strings.Join(strings.Fields(s.Text), " ")
	const most = 240
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	at := s.Source
	switch {
	case at == "" && s.guards:
		at = "the guard's " + string(s.Phase)
	case at == "":
		at = "an unknown place in the " + string(s.Phase)
	}
	return fmt.Sprintf("statement %d (%s): %s\n\tat %s", s.N, s.System, text, at)
}

// effect reports whether somebody else sees a difference that the step has made.
func (s Step) effect() bool { return s.Changed && s.Phase == InBody && !s.inTx }

// effects is how many differences are there to be seen when the step has ended: its own,
// and those of the transaction that it has committed.
func (s Step) effects() int {
	if s.effect() {
		return s.commits + 1
	}
	return s.commits
}
