package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/internal/timeline"
)

// stage is how a worker's process talks with the one that runs the show: it tells what
// happens as lines of JSON, and is told when to make its next write, so that it can be
// frozen at the right moment.
type stage struct {
	worker string
	mu     sync.Mutex
	out    io.Writer
	cues   chan string
}

func newStage(worker string, in io.Reader, out io.Writer) *stage {
	s := &stage{worker: worker, out: out, cues: make(chan string, 64)}
	go func() {
		defer close(s.cues)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			s.cues <- lines.Text()
		}
	}()
	return s
}

func (s *stage) tell(e timeline.Event) {
	e.At, e.Who = time.Now(), s.worker
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.out.Write(append(line, '\n'))
}

// The cues.
const (
	cueGo     = "go"     // make the next write
	cueLinger = "linger" // be slow: until the attempt is over
)

// wait waits for the cue. It does not look at the context before: the worker is at
// work, on something that takes its time.
func (s *stage) wait(ctx context.Context) error {
	if cue := <-s.cues; cue == cueGo {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// Observe is told by the kit what its guards do.
func (s *stage) Observe(_ context.Context, e primitives.Event) {
	text := string(e.Kind)
	if e.Kind == primitives.EventBegan {
		text = string(e.Outcome)
	}
	s.tell(timeline.Event{Kind: timeline.Lease, Token: e.Token.Value, Text: text})
}
