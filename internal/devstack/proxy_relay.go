package devstack

import (
	"bufio"
	"io"
	"net"
	"sync"
)

// relayBytes passes bytes on, whatever they mean.
func relayBytes(k *link) {
	var wg sync.WaitGroup
	wg.Go(func() { k.copyBytes(k.server, k.client, false) })
	wg.Go(func() { k.copyBytes(k.client, k.server, true) })
	wg.Wait()
}

func (k *link) copyBytes(to, from net.Conn, replies bool) {
	defer k.close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if replies && !k.pause(k.proxy.currentLatency()) || !k.passGate() {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// respLink matches the replies on a connection with its commands.
type respLink struct {
	*link
	mu        sync.Mutex // also orders writes to the client
	pending   []*pending // commands that the server has yet to answer
	streaming bool       // replies cannot be matched any more
}

// pending is a command on its way.
type pending struct {
	hit   *Hit
	fault Fault
	after []byte // forged replies to the commands behind it
}

func relayRESP(k *link) {
	r := &respLink{link: k}
	var wg sync.WaitGroup
	wg.Go(r.relayCommands)
	wg.Go(r.relayReplies)
	wg.Wait()
}

func (r *respLink) relayCommands() {
	defer r.close()
	in := bufio.NewReaderSize(r.client, 64<<10)
	out := bufio.NewWriter(r.server)
	for {
		batchStarts := in.Buffered() == 0
		c, err := readCommand(in)
		if err != nil || !r.relayCommand(c, batchStarts, out) {
			return
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// relayCommand reports whether the connection goes on.
func (r *respLink) relayCommand(c Command, batchStarts bool, out *bufio.Writer) bool {
	r.proxy.saw(c, batchStarts && r.idle())
	hit := r.proxy.judge(c)
	fault := hit.fault()
	if !fault.strikesReply() {
		hit.signal()
	}
	if fault.call != nil {
		fault.call()
	}
	switch {
	case fault.dropRequest:
		_ = out.Flush() // the commands before it are not lost
		return false
	case fault.forged != "":
		return r.forge(fault.forged)
	case fault.before && !r.pause(fault.delay), !r.passGate():
		return false
	}
	r.expect(c, &pending{hit: hit, fault: fault})
	_, err := out.Write(c.raw)
	return err == nil
}

func (r *respLink) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) == 0
}

func (r *respLink) expect(c Command, p *pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streaming = r.streaming || c.streams()
	if !r.streaming {
		r.pending = append(r.pending, p)
	}
}

// forge answers at once, or behind the last command that is still unanswered.
func (r *respLink) forge(reply string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.pending); n > 0 {
		last := r.pending[n-1]
		last.after = append(last.after, reply...)
		return true
	}
	_, err := io.WriteString(r.client, reply)
	return err == nil
}

func (r *respLink) relayReplies() {
	defer r.close()
	in := bufio.NewReaderSize(r.server, 64<<10)
	for {
		batchStarts := in.Buffered() == 0
		raw, kind, err := readReply(in)
		if err != nil {
			return
		}
		if batchStarts && !r.pause(r.proxy.currentLatency()) {
			return
		}
		if !r.relayReply(raw, kind) {
			return
		}
	}
}

// relayReply reports whether the connection goes on.
func (r *respLink) relayReply(raw []byte, kind byte) bool {
	var p *pending
	if kind != '>' {
		p = r.next()
	}
	if p != nil {
		p.hit.signal()
		if p.fault.dropReply || !p.fault.before && !r.pause(p.fault.delay) {
			return false
		}
	}
	return r.passGate() && r.deliver(raw, p)
}

// next is the command that the server has answered; nil if replies cannot be
// matched.
func (r *respLink) next() *pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		return nil
	}
	return r.pending[0]
}

// deliver writes the reply and what was forged behind it, and forgets p only
// then, so that [respLink.forge] cannot overtake.
func (r *respLink) deliver(raw []byte, p *pending) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p != nil {
		raw = append(raw, p.after...)
		r.pending = r.pending[1:]
	}
	_, err := r.client.Write(raw)
	return err == nil
}
