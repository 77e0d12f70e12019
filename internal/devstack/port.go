package devstack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports come from below the range that systems take the local ports of outgoing
// connections from (32768 up on Linux, 49152 up elsewhere), so that a server that
// was killed finds its port free when it is restarted. A cluster node's bus port
// is always its port plus busOffset, and lands above every plain port.
const (
	firstPort = 12000
	lastPort  = 21999
	busOffset = 10000
)

const localhost = "127.0.0.1"

// portTries bounds the search for a port that nobody else holds.
const portTries = 200

var handedOut = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// takePort returns a port that is free now, with its bus port, and that this
// process does not hand out again before [returnPort]. Another process can still
// take it first: whoever starts a server on it tries again with another.
func takePort() (int, error) {
	handedOut.Lock()
	defer handedOut.Unlock()
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if !handedOut.ports[port] && portFree(port) && portFree(port+busOffset) {
			handedOut.ports[port] = true
			return port, nil
		}
	}
	return 0, errors.New("devstack: no free port found")
}

func returnPort(port int) {
	handedOut.Lock()
	defer handedOut.Unlock()
	delete(handedOut.ports, port)
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", localAddr(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func localAddr(port int) string { return net.JoinHostPort(localhost, strconv.Itoa(port)) }

// listen opens a listener on a port of [takePort].
func listen() (net.Listener, int, error) {
	var last error
	for range portTries {
		port, err := takePort()
		if err != nil {
			return nil, 0, err
		}
		l, err := net.Listen("tcp", localAddr(port))
		if err == nil {
			return l, port, nil
		}
		returnPort(port)
		last = err
	}
	return nil, 0, fmt.Errorf("devstack: listen: %w", last)
}
