package devstack

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
)

// PostgresMessage is one message of Postgres's protocol on its way.
type PostgresMessage struct {
	FromServer bool
	Type       byte   // as in the protocol: 'Q', 'S', 'Z', ...; 0 for a client's startup message
	Body       []byte // without type and length
}

// PostgresProxy is a [Proxy] that understands Postgres's message framing (not TLS):
// it counts round trips and cuts connections at a chosen message.
type PostgresProxy struct {
	*Proxy

	state      sync.Mutex
	roundTrips int
	cut        func(PostgresMessage) bool
}

// PostgresProxyForTest starts a proxy for the Postgres server at target, which the
// test stops at its end.
func PostgresProxyForTest(t TB, target string) *PostgresProxy {
	t.Helper()
	p := &PostgresProxy{}
	p.Proxy = proxyForTest(t, func(target string) (*Proxy, error) { return startProxy(target, p.relayMessages) }, target)
	return p
}

// RoundTrips is how often clients have waited for the server since the last call,
// connecting left out: each Sync and each simple Query is one.
func (p *PostgresProxy) RoundTrips() int {
	p.state.Lock()
	defer p.state.Unlock()
	n := p.roundTrips
	p.roundTrips = 0
	return n
}

// CutWhen breaks the connection of the first message that f picks, instead of
// passing it on; f is called for every message, one at a time, and nil ends it.
// What the server had received before, it executes.
func (p *PostgresProxy) CutWhen(f func(PostgresMessage) bool) {
	p.state.Lock()
	defer p.state.Unlock()
	p.cut = f
}

// saw counts m and reports whether it passes.
func (p *PostgresProxy) saw(m PostgresMessage) bool {
	p.state.Lock()
	defer p.state.Unlock()
	if p.cut != nil && p.cut(m) {
		return false
	}
	if !m.FromServer && (m.Type == 'S' || m.Type == 'Q') {
		p.roundTrips++
	}
	return true
}

func (p *PostgresProxy) relayMessages(k *link) {
	var wg sync.WaitGroup
	wg.Go(func() { p.copyMessages(k, k.server, k.client, false) })
	wg.Go(func() { p.copyMessages(k, k.client, k.server, true) })
	wg.Wait()
}

func (p *PostgresProxy) copyMessages(k *link, to, from net.Conn, replies bool) {
	defer k.close()
	typed := replies // a client's first message carries no type
	for {
		m, raw, err := readPostgresMessage(from, typed)
		if err != nil {
			return
		}
		m.FromServer, typed = replies, true
		if !p.saw(m) || !k.passGate() {
			return
		}
		if replies && m.Type == 'Z' && !k.pause(p.currentLatency()) {
			return
		}
		if _, err := to.Write(raw); err != nil {
			return
		}
	}
}

// maxPostgresMessage is far above what tests send; longer is not Postgres.
const maxPostgresMessage = 256 << 20

func readPostgresMessage(r io.Reader, typed bool) (m PostgresMessage, raw []byte, err error) {
	head := make([]byte, 4, 5)
	if typed {
		head = head[:5]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return m, nil, err
	}
	if typed {
		m.Type = head[0]
	}
	n := int(binary.BigEndian.Uint32(head[len(head)-4:]))
	if n < 4 || n > maxPostgresMessage {
		return m, nil, fmt.Errorf("devstack: a Postgres message of %d bytes", n)
	}
	raw = make([]byte, len(head)+n-4)
	copy(raw, head)
	_, err = io.ReadFull(r, raw[len(head):])
	m.Body = raw[len(head):]
	return m, raw, err
}
