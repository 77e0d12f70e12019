package devstack

import (
	"context"
	"fmt"
	"time"
)

// poll is how often a condition that cannot signal is looked at again.
const poll = 10 * time.Millisecond

// waitFor calls check until it returns nil. When ctx ends first, the error says
// what was waited for and what was still wrong.
func waitFor(ctx context.Context, what string, check func() error) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("devstack: waiting until %s: %w: %w", what, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
