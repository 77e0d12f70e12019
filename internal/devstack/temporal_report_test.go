package devstack

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lines passes on what is written to it.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestBuildShowsThatItLives(t *testing.T) {
	t.Parallel()
	heard := make(lines, 1)
	stopped := make(chan struct{})
	b := temporalBuild{progress: heard, every: time.Millisecond}
	stop := b.report("working")
	require.Equal(t, "devstack: working\n", <-heard)
	for range 2 {
		require.Equal(t, "devstack: working (0s)\n", <-heard)
	}
	go func() {
		defer close(stopped)
		stop()
	}()
	for {
		select {
		case <-heard: // it may be saying something just now
		case <-stopped:
			return
		}
	}
}
