// Command temporalbuild builds the Temporal server that the dev stack starts, unless
// the machine has one, and prints its path. make setup runs it, so that no test has
// to wait for the build.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	path, err := devstack.TemporalBinary(ctx, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
