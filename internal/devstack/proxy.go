package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Proxy stands between clients and a server and breaks what passes. It either
// understands RESP ([StartProxy]) or passes bytes of any protocol on
// ([StartRawProxy]); rules and counts need RESP. Its methods may be called from
// several goroutines.
type Proxy struct {
	Traffic

	port  int
	relay func(*link)

	mu       sync.Mutex
	target   string
	latency  time.Duration
	listener net.Listener // nil while refusing
	gate     chan struct{}
	links    map[*link]bool
	rules    []*Hit
	stopped  bool
	wg       sync.WaitGroup
}

// link is one client's connection and the server's behind it.
type link struct {
	proxy  *Proxy
	client net.Conn
	server net.Conn
	ctx    context.Context // ends with the link
	cancel context.CancelFunc
}

// StartProxy starts a proxy for the Redis server at target, a host:port. The
// caller stops it with [Proxy.Stop].
func StartProxy(target string) (*Proxy, error) { return startProxy(target, relayRESP) }

// StartRawProxy starts a proxy for a server of any protocol at target.
func StartRawProxy(target string) (*Proxy, error) { return startProxy(target, relayBytes) }

// ProxyForTest is [StartProxy] for a test, which stops it at its end.
func ProxyForTest(t TB, target string) *Proxy {
	t.Helper()
	return proxyForTest(t, StartProxy, target)
}

// RawProxyForTest is [StartRawProxy] for a test, which stops it at its end.
func RawProxyForTest(t TB, target string) *Proxy {
	t.Helper()
	return proxyForTest(t, StartRawProxy, target)
}

func proxyForTest(t TB, start func(string) (*Proxy, error), target string) *Proxy {
	t.Helper()
	return startForTest(t, func(_ context.Context, target string) (*Proxy, error) { return start(target) }, target)
}

func startProxy(target string, relay func(*link)) (*Proxy, error) {
	l, port, err := listen()
	if err != nil {
		return nil, err
	}
	p := &Proxy{port: port, relay: relay, target: target, links: map[*link]bool{}}
	p.serve(l)
	return p, nil
}

// serve accepts on l until it is closed. The caller holds mu or owns p alone.
func (p *Proxy) serve(l net.Listener) {
	p.listener = l
	p.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.connect(client) })
		}
	})
}

// connect runs one client's connection to its end. A server that cannot be
// reached looks to the client like one that hangs up.
func (p *Proxy) connect(client net.Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	k := &link{proxy: p, client: client, ctx: ctx, cancel: cancel}
	defer k.close()
	if !p.enter(k) || !k.passGate() {
		return
	}
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.Target())
	if err != nil {
		return
	}
	k.setServer(server)
	p.relay(k)
}

func (p *Proxy) enter(k *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	p.links[k] = true
	return true
}

// setServer closes the connection again if the link has ended meanwhile.
func (k *link) setServer(server net.Conn) {
	k.proxy.mu.Lock()
	defer k.proxy.mu.Unlock()
	k.server = server
	if k.ctx.Err() != nil {
		_ = server.Close()
	}
}

// close ends both connections; closing again is fine.
func (k *link) close() {
	k.proxy.mu.Lock()
	defer k.proxy.mu.Unlock()
	k.cancel()
	_ = k.client.Close()
	if k.server != nil {
		_ = k.server.Close()
	}
	delete(k.proxy.links, k)
}

// passGate blocks while the proxy is frozen and reports whether the link goes on.
func (k *link) passGate() bool {
	for {
		k.proxy.mu.Lock()
		gate := k.proxy.gate
		k.proxy.mu.Unlock()
		if gate == nil {
			return k.ctx.Err() == nil
		}
		select {
		case <-gate:
		case <-k.ctx.Done():
			return false
		}
	}
}

// pause waits for d and reports whether the link goes on.
func (k *link) pause(d time.Duration) bool {
	if d <= 0 {
		return k.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-k.ctx.Done():
		return false
	}
}

// Addr is where clients connect to, a host:port that stays.
func (p *Proxy) Addr() string { return localAddr(p.port) }

// Target is where new connections go.
func (p *Proxy) Target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// SetTarget sends new connections to another server; [Proxy.Reset] makes the
// clients connect anew.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// SetLatency makes every round trip take d longer. Zero, the default, ends it.
func (p *Proxy) SetLatency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

func (p *Proxy) currentLatency() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latency
}

// Freeze stops all bytes in both directions and keeps every connection open. New
// connections are accepted and hang. Freezing twice is fine.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == nil {
		p.gate = make(chan struct{})
	}
}

// Thaw ends a freeze; what was sent meanwhile arrives.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate != nil {
		close(p.gate)
		p.gate = nil
	}
}

// Refuse turns new connections away, as a closed port does. Those that exist stay.
func (p *Proxy) Refuse() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return nil
	}
	err := p.listener.Close()
	p.listener = nil
	return err
}

// Accept ends what [Proxy.Refuse] began, on the same port.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
		return errors.New("devstack: the proxy has been stopped")
	case p.listener != nil:
		return nil
	}
	l, err := net.Listen("tcp", p.Addr())
	if err != nil {
		return fmt.Errorf("devstack: accept again: %w", err)
	}
	p.serve(l)
	return nil
}

// Reset breaks every connection with a TCP reset.
func (p *Proxy) Reset() {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for k := range p.links {
		links = append(links, k)
	}
	p.mu.Unlock()
	for _, k := range links {
		if tcp, ok := k.client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // close sends a reset and not an end
		}
		k.close()
	}
}

// Connections is how many clients are connected.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Add applies rule to the commands that arrive from now on. Of several rules that
// pick a command the one added last strikes; all of them count it.
func (p *Proxy) Add(rule Rule) *Hit {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := &Hit{rule: rule, proxy: p, struck: make(chan struct{})}
	p.rules = append(p.rules, h)
	return h
}

// judge finds the rule that c meets, if any.
func (p *Proxy) judge(c Command) *Hit {
	p.mu.Lock()
	defer p.mu.Unlock()
	var hit *Hit
	for _, h := range p.rules {
		if h.strikes(c) {
			hit = h
		}
	}
	return hit
}

// Stop refuses and resets everything and waits until the proxy is gone. Stopping
// twice is fine.
func (p *Proxy) Stop() error {
	p.mu.Lock()
	first := !p.stopped
	p.stopped = true
	p.mu.Unlock()
	err := p.Refuse()
	p.Reset()
	p.wg.Wait()
	if first {
		returnPort(p.port)
	}
	return err
}
