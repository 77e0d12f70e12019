// Command approve is the person.
package main

import (
	"context"
	"flag"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/asynccompletion"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
)

func main() {
	order := flag.String("order", "A1", "the order")
	no := flag.Bool("no", false, "do not approve")
	flag.Parse()
	stack.Main(func(ctx context.Context) error {
		s, err := stack.Connect(ctx, stack.Config{Temporal: true, Postgres: true})
		if err != nil {
			return err
		}
		defer s.Close()
		kit, err := interceptor.New(interceptor.Options{
			Redis:  s.Redis,
			Store:  primitives.Options{Prefix: "asynccompletion"},
			Guards: asynccompletion.Guards(&asynccompletion.Activities{}),
		})
		if err != nil {
			return err
		}
		c, err := s.Dial()
		if err != nil {
			return err
		}
		return asynccompletion.Answer(ctx, kit, c, s.Postgres, *order, asynccompletion.Decision{Approved: !*no, By: "jo"})
	})
}
