package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// step is one thing to measure. What prepare returns is done once, under the clock.
type step struct {
	name    string
	prepare func() (func(context.Context) error, error)
}

// sample is what one round has shown of one step.
type sample struct {
	perOp time.Duration
	trips float64 // round trips for one op
}

// interleave measures steps side by side: every round runs each of them in turn,
// a few operations at a time, so that whatever else the machine does hits all of
// them alike. The answer holds the samples of each step by round.
func (s *server) interleave(ctx context.Context, rounds, ops int, steps []step) ([][]sample, error) {
	all := make([][]sample, len(steps))
	for round := range rounds + 1 { // the first one warms up and does not count
		if err := s.clear(ctx); err != nil {
			return nil, err
		}
		for i, st := range steps {
			got, err := s.round(ctx, ops, st)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", st.name, err)
			}
			if round > 0 {
				all[i] = append(all[i], got)
			}
		}
	}
	return all, nil
}

func (s *server) round(ctx context.Context, ops int, st step) (sample, error) {
	calls := make([]func(context.Context) error, ops)
	for i := range calls {
		var err error
		if calls[i], err = st.prepare(); err != nil {
			return sample{}, err
		}
	}
	trips, start := s.trips.Load(), time.Now()
	for _, call := range calls {
		if err := call(ctx); err != nil {
			return sample{}, err
		}
	}
	took := time.Since(start)
	return sample{took / time.Duration(ops), float64(s.trips.Load()-trips) / float64(ops)}, nil
}

// ratio is how much longer a takes than b: of their medians, with the quartiles of
// the ratios round by round.
type ratio struct{ median, low, high float64 }

func ratioOf(a, b []time.Duration) ratio {
	each := make([]float64, len(a))
	for i := range a {
		each[i] = float64(a[i]) / float64(b[i])
	}
	slices.Sort(each)
	return ratio{float64(median(a)) / float64(median(b)), each[len(each)/4], each[len(each)*3/4]}
}

func (r ratio) String() string { return fmt.Sprintf("%.2f (%.2f–%.2f)", r.median, r.low, r.high) }

func median[T ~int64 | ~float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func times(samples []sample) []time.Duration {
	d := make([]time.Duration, len(samples))
	for i, s := range samples {
		d[i] = s.perOp
	}
	return d
}

func trips(samples []sample) float64 {
	n := make([]float64, len(samples))
	for i, s := range samples {
		n[i] = s.trips
	}
	return median(n)
}
