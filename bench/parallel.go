package main

import (
	"context"
	"sync"
	"time"
)

// inParallel is the time for one operation when many goroutines share the work.
func inParallel(ctx context.Context, goroutines, each int, st step) (time.Duration, error) {
	work := make([][]call, goroutines)
	for g := range work {
		for range each {
			c, err := st.prepare()
			if err != nil {
				return 0, err
			}
			work[g] = append(work[g], c)
		}
	}
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	start := time.Now()
	for g, calls := range work {
		wg.Go(func() {
			for _, c := range calls {
				if errs[g] == nil {
					errs[g] = c(ctx)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return took / time.Duration(goroutines*each), nil
}
