package testsuite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// hook watches the commands of the kit's client.
type hook struct{ kit *Kit }

// DialHook implements redis.Hook.
func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if handshake(cmd) {
			return next(ctx, cmd)
		}
		h.kit.tick()
		err := h.watched(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
		cmd.SetErr(err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, handshake) {
			return next(ctx, cmds)
		}
		h.kit.tick()
		err := h.watched(ctx, cmds, func() error { return next(ctx, cmds) })
		if err != nil {
			for _, cmd := range cmds {
				if cmd.Err() == nil {
					cmd.SetErr(err)
				}
			}
		}
		return err
	}
}

// watched sends commands as one step of whoever sends them.
func (h hook) watched(ctx context.Context, cmds []redis.Cmder, send func() error) error {
	r, stray := h.kit.owner(ctx)
	if stray {
		if _, guards, _ := source(); guards || r == nil { // renewals; or the test itself
			return h.kit.faults.pass(cmds, guards, send)
		}
	}
	s := &Step{System: Redis, Text: commandText(cmds), Stray: stray}
	if err := r.before(ctx, s); err != nil {
		return err
	}
	err := h.kit.faults.pass(cmds, false, send)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") { // it comes again with its text
		r.forget(s)
		return err
	}
	r.judge(s, cmds, err)
	r.after(s)
	return err
}

// judge says what became of a command: the scripts of this module say so by a word.
func (r *Run) judge(s *Step, cmds []redis.Cmder, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Err = err
	for _, cmd := range cmds {
		s.word = ""
		if s.kits {
			s.word = replyWord(cmd)
		}
		switch word := s.word; {
		case cmd.Err() != nil && cmd.Err() != redis.Nil: //nolint:errorlint // go-redis never wraps it
			continue
		case word == "stale" || word == "superseded" || word == "lost":
			s.Refused = true
		case word == "passed":
			s.Changed, s.writes = true, true
		case word != "": // a script that is ours
		case !reads[cmd.Name()]:
			s.Changed, s.writes, s.Unfenced = true, true, s.Phase == InBody
		}
	}
}

// replyWord is the first word of a reply of one of this module's scripts: a caller's own
// may answer alike.
func replyWord(cmd redis.Cmder) string {
	c, ok := cmd.(*redis.Cmd)
	if !ok || !strings.HasPrefix(cmd.Name(), "eval") {
		return ""
	}
	list, ok := c.Val().([]any)
	if !ok || len(list) == 0 {
		return ""
	}
	word, _ := list[0].(string)
	return word
}

// reads are the commands that change nothing.
var reads = func() map[string]bool {
	m := map[string]bool{}
	for _, name := range strings.Fields(`get mget exists ttl pttl expiretime pexpiretime type strlen getrange
		hget hmget hgetall hexists hlen hkeys hvals hscan lrange llen lindex smembers sismember scard sscan
		zrange zscore zcard zrank zcount zrangebyscore zscan scan keys time info dbsize echo ping
		eval_ro evalsha_ro xrange xlen xread xinfo script subscribe unsubscribe config client wait`) {
		m[name] = true
	}
	return m
}()

// handshake reports whether a command belongs to the making of a connection.
func handshake(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "hello", "auth", "client", "select", "readonly":
		return true
	}
	return false
}

func commandText(cmds []redis.Cmder) string {
	var parts []string
	for _, cmd := range cmds {
		args := cmd.Args()
		switch cmd.Name() {
		case "eval":
			parts = append(parts, "EVAL of a script")
		case "evalsha":
			parts = append(parts, fmt.Sprintf("EVALSHA %.8v", args[1]))
		default:
			text := strings.ToUpper(cmd.Name())
			if len(args) > 1 {
				text += fmt.Sprintf(" %v", args[1])
			}
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "; ")
}

func (k *Kit) tick() {
	if k.memory != nil {
		k.memory.tick()
	}
}

// ticking keeps a clock that was moved going for the kit's own client.
type ticking struct{ kit *Kit }

// DialHook implements redis.Hook.
func (h ticking) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h ticking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.kit.tick()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h ticking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.kit.tick()
		return next(ctx, cmds)
	}
}
