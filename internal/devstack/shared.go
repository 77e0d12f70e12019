package devstack

import (
	"context"
	"errors"
	"sync"
)

// shared are the servers that [Shared] has started in this process.
var shared struct {
	sync.Mutex
	stops []func() error
}

// Shared is a server for all tests of a package that do not break it: the first one
// that calls the returned function starts it, [StopShared] in TestMain stops it.
func Shared[S interface{ Stop() error }](start func(context.Context) (S, error)) func() (S, error) {
	return sync.OnceValues(func() (S, error) {
		s, err := start(context.Background())
		if err == nil {
			shared.Lock()
			defer shared.Unlock()
			shared.stops = append(shared.stops, s.Stop)
		}
		return s, err
	})
}

// StopShared stops the servers that [Shared] has started.
func StopShared() error {
	shared.Lock()
	defer shared.Unlock()
	var err error
	for _, stop := range shared.stops {
		err = errors.Join(err, stop())
	}
	shared.stops = nil
	return err
}
