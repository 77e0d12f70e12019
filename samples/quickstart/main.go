// Command quickstart shows what fencekit is for, on real servers: a worker is frozen
// while it pays a batch of invoices, another one takes over, the first wakes up and
// tries to go on.
//
//	go run ./samples/quickstart              with the kit
//	go run ./samples/quickstart -unguarded   without it
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

// config is what the command line says.
type config struct {
	unguarded bool
	keep      bool
	folder    string
	invoices  int
	pace      time.Duration
	heartbeat time.Duration
}

func parse() (c config) {
	flag.BoolVar(&c.unguarded, "unguarded", false, "run the same without the kit, and see what goes wrong")
	flag.BoolVar(&c.keep, "keep", false, "leave everything up at the end, until Ctrl-C")
	flag.StringVar(&c.folder, "out", filepath.Join(os.TempDir(), fmt.Sprintf("fencekit-demo-%d", os.Getuid())), "folder for the picture")
	flag.IntVar(&c.invoices, "invoices", 8, "invoices in the batch, at least 5")
	flag.DurationVar(&c.pace, "pace", 300*time.Millisecond, "time for each invoice, to watch")
	flag.DurationVar(&c.heartbeat, "heartbeat", 3*time.Second, "after which time Temporal gives a silent worker up")
	flag.Parse()
	return c
}

// roleVariable tells a process of this program that it is a worker, and its name.
const roleVariable = "FENCEKIT_QUICKSTART_WORKER"

// queueVariable tells a worker its task queue.
const queueVariable = "FENCEKIT_QUICKSTART_QUEUE"

func main() {
	c := parse()
	stack.Main(func(ctx context.Context) error {
		if name := os.Getenv(roleVariable); name != "" {
			return runWorker(ctx, name, os.Getenv(queueVariable), c.unguarded)
		}
		if c.invoices < freezeAt+1 {
			return fmt.Errorf("-invoices: %d is below the minimum of %d", c.invoices, freezeAt+1)
		}
		return runShow(ctx, c)
	})
}
