package devstack

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
)

// FakeHandler answers a command with raw RESP, which may be as wrong as a test
// likes. "" leaves the command to [FakeRedis]'s own answers. It is called for one
// command at a time, over all connections.
type FakeHandler func(Command) string

const (
	// HangUp closes the connection instead of answering; at the end of a reply, it
	// closes the connection after it, so that "$10\r\nabc"+HangUp breaks off.
	HangUp = "\x00hang up"

	// Silence sends nothing and keeps the connection open.
	Silence = "\x00silence"
)

// FakeRedis is a server that speaks RESP and knows nothing: a handler says what it
// answers. Left to itself it does what a client needs to connect: HELLO 2 and 3,
// AUTH, SELECT, CLIENT, PING and ECHO. All else is an unknown command. To answer
// falsely in front of a real server, use [Proxy] with [ForgeReply].
type FakeRedis struct {
	Traffic

	listener net.Listener
	port     int
	wg       sync.WaitGroup

	mu      sync.Mutex
	handler FakeHandler
	conns   map[net.Conn]bool // nil when stopped

	handling sync.Mutex
}

// StartFakeRedis starts a server that answers as handler says; nil leaves all to
// the defaults. The caller stops it with [FakeRedis.Stop].
func StartFakeRedis(handler FakeHandler) (*FakeRedis, error) {
	l, port, err := listen()
	if err != nil {
		return nil, err
	}
	f := &FakeRedis{listener: l, port: port, handler: handler, conns: map[net.Conn]bool{}}
	f.wg.Go(f.accept)
	return f, nil
}

// FakeRedisForTest is [StartFakeRedis] for a test, which stops it at its end.
func FakeRedisForTest(t TB, handler FakeHandler) *FakeRedis {
	t.Helper()
	return startForTest(t, func(_ context.Context, h FakeHandler) (*FakeRedis, error) { return StartFakeRedis(h) }, handler)
}

// Once answers the first command that match picks with reply and leaves the rest
// to next; next may be nil.
func Once(match func(Command) bool, reply string, next FakeHandler) FakeHandler {
	done := false
	return func(c Command) string {
		switch {
		case !done && match(c):
			done = true
			return reply
		case next != nil:
			return next(c)
		}
		return ""
	}
}

// Addr is the server's host:port.
func (f *FakeRedis) Addr() string { return localAddr(f.port) }

// SetHandler replaces the handler for the commands that come from now on.
func (f *FakeRedis) SetHandler(h FakeHandler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handler = h
}

func (f *FakeRedis) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() { f.serve(conn) })
	}
}

func (f *FakeRedis) serve(conn net.Conn) {
	if !f.enter(conn) {
		return
	}
	defer f.leave(conn)
	in := bufio.NewReader(conn)
	protocol := 2
	for {
		first := in.Buffered() == 0
		c, err := readCommand(in)
		if err != nil {
			return
		}
		f.saw(c, first)
		reply, hangUp := strings.CutSuffix(f.answer(c, &protocol), HangUp)
		if reply != Silence {
			if _, err := io.WriteString(conn, reply); err != nil {
				return
			}
		}
		if hangUp {
			return
		}
	}
}

// enter refuses connections that were accepted while the server stopped.
func (f *FakeRedis) enter(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		_ = conn.Close()
		return false
	}
	f.conns[conn] = true
	return true
}

func (f *FakeRedis) leave(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = conn.Close()
	delete(f.conns, conn)
}

func (f *FakeRedis) answer(c Command, protocol *int) string {
	f.mu.Lock()
	handler := f.handler
	f.mu.Unlock()
	if handler != nil {
		f.handling.Lock()
		defer f.handling.Unlock()
		if reply := handler(c); reply != "" {
			return reply
		}
	}
	return defaultAnswer(c, protocol)
}

// Stop breaks all connections and waits until the server is gone. Stopping twice
// is fine.
func (f *FakeRedis) Stop() error {
	f.mu.Lock()
	conns := f.conns
	f.conns = nil
	for conn := range conns {
		_ = conn.Close()
	}
	f.mu.Unlock()
	if conns == nil {
		return nil
	}
	err := f.listener.Close()
	f.wg.Wait()
	returnPort(f.port)
	return err
}

const okReply = "+OK\r\n"

func defaultAnswer(c Command, protocol *int) string {
	switch c.Name {
	case "HELLO":
		return hello(c, protocol)
	case "AUTH", "SELECT", "READONLY", "READWRITE":
		return okReply
	case "CLIENT":
		return clientAnswer(c)
	case "PING":
		return "+PONG\r\n"
	case "ECHO":
		return BulkReply(strings.Join(c.Args, " "))
	case "COMMAND":
		return ArrayReply()
	case "QUIT":
		return okReply + HangUp
	}
	return ErrorReply("ERR unknown command '" + c.Name + "'")
}

func clientAnswer(c Command) string {
	switch {
	case len(c.Args) == 0:
	case strings.EqualFold(c.Args[0], "id"):
		return IntReply(1)
	case strings.EqualFold(c.Args[0], "setinfo"), strings.EqualFold(c.Args[0], "setname"):
		return okReply
	}
	return ErrorReply("ERR unknown subcommand of CLIENT")
}

// hello describes the server, as a map in RESP3 and as a flat array in RESP2.
func hello(c Command, protocol *int) string {
	if len(c.Args) > 0 {
		switch c.Args[0] {
		case "2":
			*protocol = 2
		case "3":
			*protocol = 3
		default:
			return ErrorReply("NOPROTO unsupported protocol version")
		}
	}
	fields := []string{
		BulkReply("server"), BulkReply("redis"),
		BulkReply("version"), BulkReply("7.0.0"),
		BulkReply("proto"), IntReply(int64(*protocol)),
		BulkReply("id"), IntReply(1),
		BulkReply("mode"), BulkReply("standalone"),
		BulkReply("role"), BulkReply("master"),
		BulkReply("modules"), ArrayReply(),
	}
	if *protocol == 2 {
		return ArrayReply(fields...)
	}
	return "%7\r\n" + strings.Join(fields, "")
}
