package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/samples/internal/timeline"
)

// listen passes on what a worker tells.
func (s *show) listen(ctx context.Context, name string, child *devstack.Child) {
	for {
		line, err := child.Line(ctx)
		var m message
		if err == nil {
			err = json.Unmarshal([]byte(line), &m.event)
		}
		if err != nil {
			m.err = fmt.Errorf("%s: %w", name, err)
		}
		select {
		case s.inbox <- m:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// watch tells what Temporal says of the activity of workflow n while it is under way.
func (s *show) watch(ctx context.Context, n int, run client.WorkflowRun) {
	attempt := int32(1)
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		d, err := s.client.DescribeWorkflow(ctx, run.GetID(), run.GetRunID())
		if err != nil {
			continue
		}
		for _, p := range d.RawResponse.GetPendingActivities() {
			if p.GetAttempt() <= attempt {
				continue
			}
			attempt = p.GetAttempt()
			why := p.GetLastFailure().GetMessage()
			s.inbox <- message{event: timeline.Event{At: time.Now(), Kind: timeline.Temporal,
				Text: fmt.Sprintf("workflow %d: %s; attempt %d", n, strings.ReplaceAll(why, "activity ", ""), attempt)}}
		}
	}
}

func (s *show) record(e timeline.Event) { s.events = append(s.events, e) }

func (s *show) temporal(text string) {
	s.record(timeline.Event{At: time.Now(), Kind: timeline.Temporal, Text: text})
}

// until plays on until a message that last picks has been played.
func (s *show) until(ctx context.Context, last func(message) bool) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case m := <-s.inbox:
			if m.err != nil {
				return m.err
			}
			if err := s.heard(ctx, m); err != nil {
				return err
			}
			if last(m) {
				return nil
			}
		}
	}
}

// heard plays a message.
func (s *show) heard(ctx context.Context, m message) error {
	if m.workflow > 0 {
		s.answers[m.workflow] = m.receipt
		s.temporal(fmt.Sprintf("workflow %d done", m.workflow))
		s.by("Temporal", "", "workflow %d is done: %d invoices, %s, finished by %s",
			m.workflow, m.receipt.Invoices, money(m.receipt.Cents), m.receipt.PaidBy)
		return nil
	}
	e := m.event
	s.record(e)
	switch e.Kind {
	case timeline.Run:
		s.runs = append(s.runs, e)
	case timeline.Next:
		return s.cue(ctx, e)
	}
	s.narrate(e)
	return nil
}

// cue lets a worker make its next write, or freezes it just before.
func (s *show) cue(ctx context.Context, e timeline.Event) error {
	child := s.workers[e.Who]
	if e.Step == freezeAt && s.victim == "" {
		return s.freeze(ctx, e.Who, child)
	}
	if err := s.breathe(ctx, s.pace); err != nil {
		return err
	}
	if e.Who == s.victim && s.awake {
		// It has made its late write. Temporal is about to tell it that it was given up.
		return child.Say(cueLinger)
	}
	return child.Say(cueGo)
}

func (s *show) freeze(ctx context.Context, name string, child *devstack.Child) error {
	if err := child.Freeze(); err != nil {
		return err
	}
	s.victim = name
	s.record(timeline.Event{At: time.Now(), Who: name, Kind: timeline.Frozen})
	s.chapter(3, "%s is about to pay invoice %d, and is frozen: a long pause, a stalled disk, a suspended VM.", name, freezeAt)
	s.note("kill -STOP %d", child.PID())
	if !s.unguarded {
		held, err := s.store.Inspect(ctx, resource(s.batch.ID))
		if err != nil {
			return err
		}
		s.by("Redis", "", "%s holds the lease for another %.1f s, token %s", name, held.Remaining.Seconds(), held.Token)
	}
	s.note("Temporal misses its heartbeats for %s, and gives the activity to the other worker.", s.heartbeat)
	return nil
}
