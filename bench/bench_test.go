package main

import (
	"testing"
)

// BenchmarkCalls is each call of the first table by itself, for profiles and for
// allocations; compare times by the table, which measures them side by side.
func BenchmarkCalls(b *testing.B) {
	s, err := startServer(b.Context(), 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.redis.Stop() })
	steps, err := s.steps(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, st := range steps {
		b.Run(st.name, func(b *testing.B) {
			calls := make([]call, b.N)
			for i := range calls {
				if calls[i], err = st.prepare(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			trips := s.trips.Load()
			for _, c := range calls {
				if err := c(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(s.trips.Load()-trips)/float64(b.N), "roundtrips/op")
		})
	}
}
