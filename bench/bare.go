package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit-go/primitives"
)

// recorder remembers the script calls that pass through it.
type recorder struct {
	*redis.Client
	calls []scriptCall
}

type scriptCall struct {
	sha  string
	keys []string
	args []any
}

func (r *recorder) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	r.calls = append(r.calls, scriptCall{sha, keys, args})
	return r.Client.EvalSha(ctx, sha, keys, args...)
}

// tag is what stands between the braces of every key of one resource.
func (c scriptCall) tag() string {
	_, rest, _ := strings.Cut(c.keys[0], "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}

// as is the call for another resource, by another nonce.
func (c scriptCall) as(tag, nonce string) scriptCall {
	keys := slices.Clone(c.keys)
	for i := range keys {
		keys[i] = strings.ReplaceAll(keys[i], c.tag(), tag)
	}
	args := slices.Clone(c.args)
	args[0] = nonce
	return scriptCall{c.sha, keys, args}
}

// bare runs the two scripts of a guarded job through go-redis alone: what remains
// when everything that fencekit does in Go is taken away.
func bare(ctx context.Context, rdb *redis.Client) (step, error) {
	rec := &recorder{Client: rdb}
	_, g, err := guard(rec)
	if err != nil {
		return step{}, err
	}
	op, err := op()
	if err != nil {
		return step{}, err
	}
	if err := doOnce(ctx, g, op, primitives.Begun); err != nil {
		return step{}, err
	}
	begin, complete := rec.calls[0], rec.calls[len(rec.calls)-1]
	return step{"the same two scripts, bare", func() (call, error) {
		name := fresh()
		begin, complete := begin.as(name, name), complete.as(name, name)
		return func(ctx context.Context) error {
			granted, err := rdb.EvalSha(ctx, begin.sha, begin.keys, begin.args...).StringSlice()
			if err != nil {
				return err
			}
			complete.args[3] = granted[1] // the token
			stored, err := rdb.EvalSha(ctx, complete.sha, complete.keys, complete.args...).StringSlice()
			if err == nil && stored[0] != "completed" {
				return fmt.Errorf("complete answered %q", stored)
			}
			return err
		}, nil
	}}, nil
}
