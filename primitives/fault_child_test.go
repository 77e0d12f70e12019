package primitives

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// childEnv names the variable that makes the test binary a child: it holds an order.
const childEnv = "FENCEKIT_TEST_CHILD"

// order is what a child process is told to do.
type order struct {
	Role      string // of childRoles
	Addr      string
	Prefix    string
	Payload   string // of the key
	Resource  string
	TTL       time.Duration
	Execution Execution
	Callers   int
}

// report is what a child has to say at one point, as one line of JSON.
type report struct {
	Token   fence.Value
	Outcome Outcome
	Memo    string
	Write   string // the error of the write, "" if it went through
	Stale   *fence.StaleError
	Err     string // of Do
	Refused bool   // Do's error says superseded
}

// childRoles run in a process of their own. in is closed when the parent is gone.
var childRoles = map[string]func(order, *Store, *bufio.Scanner, *json.Encoder) error{
	"fenced writer": func(o order, s *Store, in *bufio.Scanner, out *json.Encoder) error {
		return runWriter(o, s, in, out, true)
	},
	"unfenced writer": func(o order, s *Store, in *bufio.Scanner, out *json.Encoder) error {
		return runWriter(o, s, in, out, false)
	},
	"callers": runCallers,
}

// runChild is the main function of a child process.
func runChild(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	rdb := redis.NewClient(clientOptions(o.Addr, nil))
	defer rdb.Close() //nolint:errcheck // the process ends
	store, err := New(rdb, Options{Prefix: o.Prefix, Timeout: patience})
	if err != nil {
		return err
	}
	return childRoles[o.Role](o, store, bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout))
}

// op is the operation that the order is about.
func (o order) op() (Op, error) {
	key, err := NewKey("test", o.Payload)
	return Op{Key: key, Resource: o.Resource, Execution: o.Execution, Holder: fmt.Sprint("process ", os.Getpid())}, err
}

// runWriter holds the lease, reports its token, waits for a word from the parent, and
// writes 70, whatever has become of the lease meanwhile.
func runWriter(o order, s *Store, in *bufio.Scanner, out *json.Encoder, fenced bool) error {
	op, err := o.op()
	if err != nil {
		return err
	}
	guard, err := NewGuard(s, GuardOptions{LeaseTTL: o.TTL})
	if err != nil {
		return err
	}
	var r report
	_, err = guard.Do(context.Background(), op, func(ctx context.Context) ([]byte, error) {
		attempt, _ := AttemptFromContext(ctx)
		r.Token, r.Outcome = attempt.Token.Value, attempt.Outcome
		if err := out.Encode(r); err != nil || !in.Scan() {
			return nil, io.ErrUnexpectedEOF
		}
		if err := writeBalance(s, attempt.Token, "70", fenced); err != nil {
			r.Write = err.Error()
			_ = errors.As(err, &r.Stale)
		}
		return []byte("70"), nil // a body that pays no attention
	})
	if err != nil {
		r.Err, r.Refused = err.Error(), errors.Is(err, ErrSuperseded)
	}
	return out.Encode(r)
}

// writeBalance writes under the token, or, as the control, without looking at it.
func writeBalance(s *Store, token fence.Token, value string, fenced bool) error {
	gate, err := NewGate(s, GateOptions{})
	if err != nil {
		return err
	}
	if !fenced {
		token.Value, token.Owner = 1, "" // every token is the same
	}
	return gate.SetIfFresh(context.Background(), token, "balance", []byte(value), 0)
}

// runCallers asks for one operation many times at once, when the parent says so.
func runCallers(o order, s *Store, in *bufio.Scanner, out *json.Encoder) error {
	op, err := o.op()
	if err != nil {
		return err
	}
	guard, err := NewGuard(s, GuardOptions{LeaseTTL: o.TTL, Wait: time.Minute})
	if err != nil {
		return err
	}
	if err := out.Encode(report{}); err != nil || !in.Scan() {
		return io.ErrUnexpectedEOF
	}
	var mu sync.Mutex
	var callers sync.WaitGroup
	for range o.Callers {
		callers.Go(func() {
			res, err := guard.Do(context.Background(), op, func(context.Context) ([]byte, error) {
				return []byte(strings.Repeat(newNonce()+"\x00\xff", 50)), nil
			})
			r := report{Outcome: res.Outcome, Memo: fmt.Sprintf("%x", res.Memo), Token: res.Token.Value}
			if err != nil {
				r.Err = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(r)
		})
	}
	callers.Wait()
	return nil
}

// child is a running child process.
type child struct {
	*devstack.Child
	e *env
}

// spawn starts a child on the shared server, under the prefix of e.
func (e *env) spawn(o order) *child {
	e.Helper()
	server, err := sharedRedis()
	require.NoError(e, err)
	o.Addr, o.Prefix = server.Addr(), e.store.opts.Prefix
	text, err := json.Marshal(o)
	require.NoError(e, err)
	return &child{e: e, Child: devstack.ChildForTest(e, devstack.ChildConfig{Env: []string{childEnv + "=" + string(text)}})}
}

// next is the next report of the child.
func (c *child) next() (r report) {
	c.e.Helper()
	line, err := c.Line(c.e.ctx())
	require.NoError(c.e, err)
	require.NoError(c.e, json.Unmarshal([]byte(line), &r))
	return r
}

// proceed gives the child its word.
func (c *child) proceed() {
	c.e.Helper()
	require.NoError(c.e, c.Say("go"))
}
