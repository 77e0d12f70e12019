package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencekit/fencekit-go/primitives/fence"
	"github.com/fencekit/fencekit-go/samples/internal/timeline"
)

// promises are what the kit promises, held against the rows and what was told.
func (s *show) promises() []timeline.Verdict {
	whole := Progress{Done: s.batch.Invoices}
	for i := range s.batch.Invoices {
		whole.Cents += price(i + 1)
	}
	newest := s.newestToken()
	return []timeline.Verdict{
		{OK: s.afterFreeze.Progress == whole && s.final.Progress == whole,
			Text: fmt.Sprintf("no update is lost: paid is %d of %d after the late write, and %d at the end",
				s.afterFreeze.Done, whole.Done, s.final.Done)},
		{OK: s.paidOnce() && s.final.Paid == whole.Cents,
			Text: fmt.Sprintf("every invoice is paid once: %s of %s was paid out", money(s.final.Paid), money(whole.Cents))},
		{OK: s.lateWriteRefused(),
			Text: "the worker that was frozen is refused, and told both tokens"},
		{OK: newest.Valid() && s.final.Fence == newest && s.final.Worker == s.answers[1].PaidBy && s.final.Worker != s.victim,
			Text: fmt.Sprintf("the row is that of the worker with the newest token (%s)", s.final.Worker)},
		{OK: s.answers[1] == s.answers[2] && s.answers[1].Invoices == whole.Done && len(s.runs) == 2,
			Text: fmt.Sprintf("asked for again, the receipt is the same and nothing runs: the body ran %d times", len(s.runs))},
	}
}

func (s *show) newestToken() (newest fence.Value) {
	for _, r := range s.runs {
		newest = max(newest, r.Token)
	}
	return newest
}

func (s *show) paidOnce() bool {
	for i := range s.batch.Invoices {
		if s.final.Payouts[i+1] != 1 {
			return false
		}
	}
	return len(s.final.Payouts) == s.batch.Invoices
}

func (s *show) lateWriteRefused() bool {
	for _, e := range s.events {
		if e.Kind == timeline.Refused && e.Who == s.victim && e.Step == freezeAt {
			return e.Token.Valid() && e.Token < e.Current && e.Current == s.newestToken()
		}
	}
	return false
}

var (
	errBroken  = errors.New("a promise was broken")
	errNotLost = errors.New("without the kit an update should have been lost and an invoice paid twice, and that has not happened")
)

// judge prints the verdicts. Without the kit the demo has failed if all went well.
func (s *show) judge() error {
	verdicts := s.promises()
	broken := 0
	s.chapter(6, "What was promised, by the rows as they are now:")
	for _, v := range verdicts {
		if v.OK {
			s.by(" kept", green, "%s", v.Text)
		} else {
			broken++
			s.by(" BROKEN", red, "%s", v.Text)
		}
	}
	fmt.Fprintln(s.out)
	switch {
	case s.unguarded && (verdicts[0].OK || verdicts[1].OK):
		return errNotLost
	case s.unguarded:
		s.line("", "That is what happens without the kit. Run it again without -unguarded.")
	case broken > 0:
		return errBroken
	default:
		s.line("", "The same without the kit: make demo ARGS=-unguarded")
	}
	return nil
}

// draw writes the picture.
func (s *show) draw(context.Context) error {
	name, title := "timeline", "With fencekit: the late write is refused"
	if s.unguarded {
		name, title = "timeline-unguarded", "Without fencekit: the late write goes through"
	}
	p := timeline.Picture{
		Title: title, Total: s.batch.Invoices, Events: s.events, Verdicts: s.promises(),
		Subtitle: fmt.Sprintf("A real run: %d invoices, %s is frozen before it pays number %d, Temporal gives it up after %s without a heartbeat.",
			s.batch.Invoices, s.victim, freezeAt, s.heartbeat),
	}
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return err
	}
	path := filepath.Join(s.folder, name)
	if err := os.WriteFile(path+".svg", []byte(p.SVG()), 0o644); err != nil {
		return err
	}
	f, err := os.OpenFile(path+".html", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if err := errors.Join(p.Page(f), f.Close()); err != nil {
		return err
	}
	fmt.Fprintln(s.out)
	s.line(bold, "The whole run in a picture: %s.html", path)
	return nil
}
