package devstack

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// standIn is miniredis with a clock: on its own its TTLs never run down.
type standIn struct {
	server *miniredis.Miniredis
	once   sync.Once
	quit   chan struct{}
	done   chan struct{}
}

func startStandIn() (*Redis, error) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("devstack: start miniredis: %w", err)
	}
	fmt.Fprintln(os.Stderr, "devstack: no redis-server found: miniredis STANDS IN for Redis; what passes here proves little")
	s := &standIn{server: server, quit: make(chan struct{}), done: make(chan struct{})}
	go s.tick()
	return &Redis{standIn: s, options: &redis.Options{Addr: server.Addr()}}, nil
}

// tick moves the TTLs by the time that has really passed.
func (s *standIn) tick() {
	defer close(s.done)
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-s.quit:
			return
		case now := <-ticker.C:
			s.server.FastForward(now.Sub(last))
			last = now
		}
	}
}

func (s *standIn) stop() {
	s.once.Do(func() {
		close(s.quit)
		<-s.done
		s.server.Close()
	})
}
