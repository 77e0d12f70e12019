package devstack

import (
	"errors"
	"io"
	"sync"
)

// closers are clients that were given out and are closed at the end.
type closers struct {
	mu   sync.Mutex
	list []io.Closer
}

func (c *closers) add(client io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, client)
}

// closeAll ignores errors: a test may have closed its client itself.
func (c *closers) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range c.list {
		_ = client.Close()
	}
	c.list = nil
}

// stopAll stops servers at the same time.
func stopAll(servers []*Redis) error {
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, r := range servers {
		wg.Go(func() { errs[i] = r.Stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func without(servers []*Redis, gone *Redis) []*Redis {
	var rest []*Redis
	for _, r := range servers {
		if r != gone {
			rest = append(rest, r)
		}
	}
	return rest
}
