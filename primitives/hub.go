package primitives

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// hub tells the waiters of one process what Redis has published for them. It has
// one subscription, on the process's own channel, while anybody waits.
type hub struct {
	client  Client
	channel string

	mu      sync.Mutex
	waiters map[string]*waiter          // by nonce
	records map[string]map[*waiter]bool // by the record that they want
	sub     *subscription               // nil while nobody waits
}

// waiter is one call that stands in a queue.
type waiter struct {
	nonce  string
	record string
	woken  chan struct{}      // something happened: ask again
	check  chan time.Duration // ask again after this time
}

type subscription struct {
	ready chan struct{} // closed when Redis has confirmed it
	end   context.CancelFunc
}

func newHub(client Client, channel string) *hub {
	return &hub{client: client, channel: channel,
		waiters: map[string]*waiter{}, records: map[string]map[*waiter]bool{}}
}

// join registers a waiter, and subscribes if it is the first. It returns when the
// subscription stands, or without when patience ends: a timer stands behind it.
func (h *hub) join(ctx context.Context, nonce, record string, patience time.Duration) *waiter {
	w := &waiter{nonce: nonce, record: record, woken: make(chan struct{}, 1), check: make(chan time.Duration, 1)}
	h.mu.Lock()
	h.waiters[nonce] = w
	if record != "" {
		if h.records[record] == nil {
			h.records[record] = map[*waiter]bool{}
		}
		h.records[record][w] = true
	}
	if h.sub == nil {
		h.sub = h.subscribe(detached(ctx))
	}
	sub := h.sub
	h.mu.Unlock()

	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-sub.ready:
	case <-ctx.Done():
	case <-late.C:
	}
	return w
}

// leave ends the subscription with the last waiter.
func (h *hub) leave(w *waiter) {
	h.mu.Lock()
	delete(h.waiters, w.nonce)
	if set := h.records[w.record]; set != nil {
		delete(set, w)
		if len(set) == 0 {
			delete(h.records, w.record)
		}
	}
	var last *subscription
	if len(h.waiters) == 0 {
		last, h.sub = h.sub, nil
	}
	h.mu.Unlock()
	if last != nil {
		last.end()
	}
}

// subscribe does not wait for Redis: see ready.
func (h *hub) subscribe(ctx context.Context) *subscription {
	ctx, cancel := context.WithCancel(ctx)
	s := &subscription{ready: make(chan struct{}), end: cancel}
	go func() {
		defer func() { _ = recover() }() // of the client: the waiters' timers stand behind it
		pubsub := h.client.Subscribe(ctx, h.channel)
		context.AfterFunc(ctx, func() { _ = pubsub.Close() })
		h.listen(s, pubsub.ChannelWithSubscriptions())
	}()
	return s
}

// listen passes on what Redis says until the subscription is closed.
func (h *hub) listen(s *subscription, events <-chan any) {
	confirmed := false
	for event := range events {
		switch e := event.(type) {
		case *redis.Subscription:
			if !confirmed {
				confirmed = true
				close(s.ready)
			} else { // reconnected: whatever was said meanwhile is lost
				h.wakeAll()
			}
		case *redis.Message:
			h.hear(e.Payload)
		}
	}
}

// hear takes one message: "granted NONCE", "check NONCE MS" or "finished RECORD".
// Anything else is ignored: anybody may publish.
func (h *hub) hear(message string) {
	word, rest, _ := strings.Cut(message, " ")
	h.mu.Lock()
	defer h.mu.Unlock()
	switch word {
	case "granted":
		if w := h.waiters[rest]; w != nil {
			w.wake()
		}
	case "finished":
		for w := range h.records[rest] {
			w.wake()
		}
	case "check":
		nonce, ms, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(ms)
		if w := h.waiters[nonce]; w != nil && err == nil && n >= 0 {
			w.checkIn(min(time.Duration(n)*time.Millisecond, recheck))
		}
	}
}

func (h *hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.waiters {
		w.wake()
	}
}

func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default: // it has not looked since the last time
	}
}

func (w *waiter) checkIn(d time.Duration) {
	select {
	case w.check <- d:
	default:
	}
}
