// Command bench measures fencekit beside what its users would have instead, on a
// Redis server that it starts, and prints a table of ratios. Candidates take turns
// within one run, so that a busy machine slows all of them alike; absolute times
// mean nothing here.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/fencekit/fencekit-go/primitives"
)

func main() {
	rounds := flag.Int("rounds", 100, "rounds of the sequential table and of the activities")
	rtt := flag.Duration("rtt", 0, "time that a network would add to each round trip")
	temporal := flag.Bool("temporal", false, "measure activities on a Temporal server instead")
	flag.Parse()
	ctx := context.Background()
	err := error(nil)
	if *temporal {
		err = temporalTable(ctx, *rounds)
	} else {
		err = run(ctx, *rounds, *rtt)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, rtt time.Duration) (err error) {
	s, err := startServer(ctx, rtt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.redis.Stop()) }()
	if err := s.oneByOne(ctx, rounds); err != nil || rtt > 0 {
		return err
	}
	if err := s.together(ctx); err != nil {
		return err
	}
	return s.waiting(ctx)
}

// steps are everything that is measured one call after another, on one client.
func (s *server) steps(ctx context.Context) ([]step, error) {
	store, g, err := guard(s.rdb)
	if err != nil {
		return nil, err
	}
	scripts, err := bare(ctx, s.rdb)
	return []step{
		set(s.rdb), beginComplete(g), do(g), scripts, sixTrips(s.rdb), replay(g),
		lease(store), redislockLease(s.rdb), redsyncLease(s.rdb),
	}, err
}

func (s *server) oneByOne(ctx context.Context, rounds int) error {
	steps, err := s.steps(ctx)
	if err != nil {
		return err
	}
	all, err := s.interleave(ctx, rounds, 50, steps)
	if err != nil {
		return err
	}
	fmt.Printf("One caller, %d rounds of 50 calls each, %s added to a round trip\n\n", rounds, s.rtt)
	fmt.Println("| call | round trips | time | × SET (quartiles) | × Begin + Complete |\n|---|---|---|---|---|")
	for i, st := range steps {
		d := times(all[i])
		fmt.Printf("| %s | %.0f | %s | %s | %s |\n", st.name, trips(all[i]), median(d).Round(time.Microsecond/10),
			ratioOf(d, times(all[0])), ratioOf(d, times(all[1])))
	}
	fmt.Println()
	if n := trips(all[1]); n != 2 {
		return fmt.Errorf("a guarded job took %.2f round trips, not 2", n)
	}
	return nil
}

// together is the throughput of many callers, with and without auto-pipelining.
func (s *server) together(ctx context.Context) error {
	pipelined, err := s.client(nil).AutoPipeline()
	if err != nil {
		return err
	}
	_, plain, err := guard(s.rdb)
	if err != nil {
		return err
	}
	_, auto, err := guard(pipelined)
	if err != nil {
		return err
	}
	steps := []step{set(s.rdb), set(pipelined), beginComplete(plain), beginComplete(auto)}
	took := make([][]time.Duration, len(steps))
	for range 21 {
		if err := s.clear(ctx); err != nil {
			return err
		}
		for i, st := range steps {
			d, err := inParallel(ctx, 64, 20, st)
			if err != nil {
				return fmt.Errorf("%s: %w", st.name, err)
			}
			took[i] = append(took[i], d)
		}
	}
	fmt.Println("64 callers at once\n\n| call | plain, a call | auto-pipelined | throughput × (quartiles) |\n|---|---|---|---|")
	for i := 0; i < len(steps); i += 2 {
		fmt.Printf("| %s | %s | %s | %s |\n", steps[i].name, median(took[i]), median(took[i+1]), ratioOf(took[i], took[i+1]))
	}
	fmt.Println()
	return nil
}

// waiting is what it costs to hand one lease on to each of 200 waiters.
func (s *server) waiting(ctx context.Context) error {
	store, err := primitives.New(s.rdb, primitives.Options{})
	if err != nil {
		return err
	}
	fmt.Println("200 waiters on one lease, for one hand-over\n\n| held for | way | time above the hold | commands sent | server CPU |\n|---|---|---|---|---|")
	for _, hold := range []time.Duration{0, 5 * time.Millisecond} {
		var queued, polled []handover
		for range 5 {
			q, err := s.drain(ctx, 200, hold, inLine(store, fresh()))
			if err != nil {
				return err
			}
			p, err := s.drain(ctx, 200, hold, byPolling(s.rdb, fresh(), 10*time.Millisecond))
			if err != nil {
				return err
			}
			queued, polled = append(queued, q), append(polled, p)
		}
		printHandovers(hold, "in line", queued)
		printHandovers(hold, "polling every 10ms", polled)
	}
	return nil
}

func printHandovers(hold time.Duration, way string, all []handover) {
	var took, cpu []time.Duration
	var commands []float64
	for _, h := range all {
		took, cpu, commands = append(took, h.took), append(cpu, h.cpu), append(commands, h.commands)
	}
	fmt.Printf("| %s | %s | %s | %.1f | %s |\n", hold, way, median(took), median(commands), median(cpu))
}
