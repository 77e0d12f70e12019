package main

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit-go/samples/internal/timeline"
)

// narrate tells an event in words.
func (s *show) narrate(e timeline.Event) {
	switch e.Kind {
	case timeline.Temporal:
		s.by("Temporal", blue, "%s", e.Text)
	case timeline.Run:
		if s.unguarded {
			s.by(e.Who, blue, "attempt %d begins", e.Attempt)
		}
	case timeline.Lease:
		s.narrateLease(e)
	case timeline.Wrote:
		code, text := green, "paid"
		if e.Who == s.victim && s.awake {
			code, text = red, "paid, although it had long been given up"
		}
		s.by(e.Who, code, "invoice %d %s, progress %d of %d", e.Step, text, e.Done, s.batch.Invoices)
	case timeline.Refused:
		s.by(e.Who, red, "invoice %d: REFUSED by Postgres", e.Step)
		s.by("", red, "its token   %s", e.Token)
		s.by("", red, "has seen    %s", e.Current)
	}
}

func (s *show) narrateLease(e timeline.Event) {
	switch e.Text {
	case "begun":
		s.by(e.Who, blue, "gets the lease, token %s", e.Token)
	case "takeover":
		s.by(e.Who, blue, "takes the lease over at once, with a higher token %s", e.Token)
	case "replayed":
		s.by(e.Who, green, "finds the result in Redis and replays it")
	case "lost":
		s.by(e.Who, dim, "learns that it has lost its lease; nothing of it is stored")
	}
}

func money(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// waitForKey shows the ways in, and waits to be interrupted.
func (s *show) waitForKey(ctx context.Context) {
	fmt.Fprintln(s.out)
	s.line(bold, "Everything is still up. Look around, then press Ctrl-C.")
	if ui := s.servers.UIURL(); ui != "" {
		s.line("", "   %s", ui)
	}
	for _, e := range s.servers.Env() {
		s.line("", "   export %s", e)
	}
	s.line("", `   psql "$DATABASE_URL" -c 'TABLE batches' -c 'TABLE payouts' -c 'TABLE fencekit.fence'`)
	s.line("", `   redis-cli -u "$REDIS_URL" --scan --pattern '%s*'`, prefix)
	<-ctx.Done()
}
