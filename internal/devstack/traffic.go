package devstack

import "sync"

// Traffic counts what clients sent.
type Traffic struct {
	mu         sync.Mutex
	commands   []Command
	roundTrips int
}

// saw records a command. first says that its connection was idle before.
func (t *Traffic) saw(c Command, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commands = append(t.commands, Command{Name: c.Name, Args: c.Args})
	if first && !c.Handshake() {
		t.roundTrips++
	}
}

// Commands returns the commands so far in the order of their arrival, without
// handshakes (see [Command.Handshake]).
func (t *Traffic) Commands() []Command {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []Command
	for _, c := range t.commands {
		if !c.Handshake() {
			list = append(list, c)
		}
	}
	return list
}

// Count is how often the command called name, in upper case, was sent.
// Handshakes are counted here too.
func (t *Traffic) Count(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, c := range t.commands {
		if c.Name == name {
			n++
		}
	}
	return n
}

// RoundTrips is how often a client sent something and had to wait: a pipeline is
// one round trip, and so is a single command. Handshakes are not counted. A
// pipeline that does not fit into one TCP segment may be counted more than once.
func (t *Traffic) RoundTrips() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.roundTrips
}

// ResetCounts forgets everything counted so far.
func (t *Traffic) ResetCounts() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commands, t.roundTrips = nil, 0
}
