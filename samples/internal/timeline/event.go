// Package timeline draws what happened in a run of a sample: workers as lanes, leases
// as bars, writes as marks. It knows nothing but the events that it is given, so the
// picture shows what happened and not what should have.
package timeline

import (
	"time"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// Kind says what an event is about.
type Kind string

// The kinds. Workers tell most of them, as lines of JSON; whoever runs the show tells
// Frozen, Thawed and Temporal.
const (
	Ready    Kind = "ready"    // a worker is up
	Run      Kind = "run"      // a body begins, with its attempt, and its token if it has one
	Next     Kind = "next"     // a body is about to write step Step
	Wrote    Kind = "wrote"    // the database has accepted a write; Done is the progress that it wrote
	Refused  Kind = "refused"  // the database has refused a write
	Ended    Kind = "ended"    // a body has returned
	Lease    Kind = "lease"    // the kit and Redis: Text is begun, takeover, reclaimed, completed, lost, replayed, ...
	Frozen   Kind = "frozen"   // a worker's process was stopped
	Thawed   Kind = "thawed"   // and goes on
	Temporal Kind = "temporal" // what the server did, in Text
)

// Event is one thing that happened.
type Event struct {
	At      time.Time   `json:"at"`
	Who     string      `json:"who,omitempty"` // the worker
	Kind    Kind        `json:"kind"`
	Attempt int         `json:"attempt,omitempty"` // Temporal's
	Token   fence.Value `json:"token,omitzero"`    // the worker's own
	Current fence.Value `json:"current,omitzero"`  // of Refused: what the database has seen
	Step    int         `json:"step,omitempty"`
	Done    int         `json:"done,omitempty"`
	Text    string      `json:"text,omitempty"`
}
