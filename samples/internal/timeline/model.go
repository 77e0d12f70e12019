package timeline

import (
	"slices"
	"time"
)

// run is one run of a body on a worker.
type run struct {
	Event             // the one that began it
	end     time.Time // of the body; zero if it never ended
	expired time.Time // when its lease became somebody else's; zero if it never did
}

// span is a time in which a worker's process stood still.
type span struct{ from, to time.Time }

// lane is one worker.
type lane struct {
	name   string
	runs   []*run
	frozen []span
	writes []write
}

// write is an attempt to write.
type write struct {
	Event
	backwards bool // accepted, and took the progress back: a lost update
	was       int  // the progress before it
}

// model is a run of the sample as the picture shows it.
type model struct {
	begin, end time.Time
	lanes      []*lane
	temporal   []Event
	redis      []Event
	writes     []write // the accepted ones, in order
	total      int
}

// understand sorts the events. Total is what progress ends at.
func understand(events []Event, total int) *model {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	m := &model{total: total}
	for _, e := range events {
		if e.Kind != Ready {
			m.extend(e.At)
		}
		m.add(e)
	}
	m.sortLanes()
	return m
}

func (m *model) extend(at time.Time) {
	if m.begin.IsZero() {
		m.begin = at
	}
	m.end = at
}

func (m *model) add(e Event) {
	switch e.Kind {
	case Temporal:
		m.temporal = append(m.temporal, e)
		return
	case Lease:
		m.redis = append(m.redis, e)
		return
	}
	l := m.lane(e.Who)
	switch e.Kind {
	case Run:
		m.supersede(e)
		l.runs = append(l.runs, &run{Event: e})
	case Ended:
		if r := l.last(); r != nil {
			r.end = e.At
		}
	case Frozen:
		l.frozen = append(l.frozen, span{from: e.At})
	case Thawed:
		if n := len(l.frozen); n > 0 {
			l.frozen[n-1].to = e.At
		}
	case Wrote, Refused:
		m.write(l, e)
	}
}

func (m *model) lane(name string) *lane {
	for _, l := range m.lanes {
		if l.name == name {
			return l
		}
	}
	l := &lane{name: name}
	m.lanes = append(m.lanes, l)
	return l
}

func (l *lane) last() *run {
	if len(l.runs) == 0 {
		return nil
	}
	return l.runs[len(l.runs)-1]
}

// supersede ends the leases of the runs that a newer grant has overtaken.
func (m *model) supersede(e Event) {
	for _, l := range m.lanes {
		for _, r := range l.runs {
			if r.end.IsZero() && r.expired.IsZero() && r.Token < e.Token {
				r.expired = e.At
			}
		}
	}
}

func (m *model) write(l *lane, e Event) {
	w := write{Event: e}
	if n := len(m.writes); n > 0 {
		w.was = m.writes[n-1].Done
	}
	if e.Kind == Wrote {
		w.backwards = e.Done <= w.was
		m.writes = append(m.writes, w)
	}
	l.writes = append(l.writes, w)
}

// sortLanes puts the worker that began first on top.
func (m *model) sortLanes() {
	slices.SortStableFunc(m.lanes, func(a, b *lane) int {
		switch {
		case len(a.runs) == 0 && len(b.runs) == 0:
			return 0
		case len(a.runs) == 0:
			return 1
		case len(b.runs) == 0:
			return -1
		}
		return a.runs[0].At.Compare(b.runs[0].At)
	})
}
