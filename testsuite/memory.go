package testsuite

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// memory is Redis in this process. Its clock is the real one plus an offset, and its
// TTLs follow it.
type memory struct {
	server *miniredis.Miniredis

	mu     sync.Mutex
	offset time.Duration
}

func startMemory() (*memory, error) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		return nil, err
	}
	return &memory{server: server}, nil
}

// shift moves the clock.
func (m *memory) shift(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offset += d
	m.server.SetTime(time.Now().Add(m.offset))
}

// tick sets a clock that was shifted, before each command: miniredis's stands still
// once it has been set.
func (m *memory) tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.offset != 0 {
		m.server.SetTime(time.Now().Add(m.offset))
	}
}
