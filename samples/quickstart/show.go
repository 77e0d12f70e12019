package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fencekit/fencekit-go/internal/devstack"
	"github.com/fencekit/fencekit-go/primitives"
	"github.com/fencekit/fencekit-go/samples/internal/stack"
	"github.com/fencekit/fencekit-go/samples/internal/timeline"
)

const (
	prefix   = "quickstart" // of the names in Redis
	freezeAt = 4            // the invoice at which the first worker is frozen
	patience = 3 * time.Minute
)

// show is the run of the demo.
type show struct {
	config
	voice
	servers *stack.Stack
	store   *primitives.Store
	client  client.Client
	batch   Batch
	workers map[string]*devstack.Child
	inbox   chan message

	events  []timeline.Event
	victim  string           // the worker that is frozen
	awake   bool             // it goes on with what it was frozen in
	answers map[int]Receipt  // of the workflows
	runs    []timeline.Event // every run of the activity's body
	afterFreeze,
	final books
}

// message is what reaches the show: an event, the answer of a workflow, or an error.
type message struct {
	event    timeline.Event
	workflow int
	receipt  Receipt
	err      error
}

func runShow(ctx context.Context, c config) error {
	v := newVoice()
	v.line(dim, "Starting Temporal, Redis and Postgres. The very first time a Temporal server is built, which takes minutes.")
	servers, err := stack.Start(ctx, stack.Config{Temporal: true, Postgres: true, UI: true, OwnDatabase: true})
	if err != nil {
		return err
	}
	defer servers.Close()
	s := &show{
		config: c, voice: v, servers: servers, workers: map[string]*devstack.Child{},
		inbox: make(chan message, 64), answers: map[int]Receipt{},
		batch: Batch{ID: uniqueID(), Invoices: c.invoices, Heartbeat: c.heartbeat},
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.stopWorkers()
	late := time.AfterFunc(patience, func() { cancel(errors.New("the demo has not come to its end in time")) })
	if err := s.play(ctx); err != nil {
		return err
	}
	late.Stop()
	verdict := s.judge()
	if c.keep {
		s.waitForKey(ctx)
	}
	return verdict
}

// uniqueID is for the batch, and what is named after it, on servers that others use too.
func uniqueID() string {
	return strconv.FormatInt(time.Now().UnixMilli(), 36) + "-" + strconv.FormatInt(int64(os.Getpid()), 36)
}

// play runs the story from beginning to end.
func (s *show) play(ctx context.Context) error {
	for _, scene := range []func(context.Context) error{
		s.raiseCurtain, s.askFirst, s.wakeUp, s.askAgain, s.readBooks, s.draw,
	} {
		if err := scene(ctx); err != nil {
			return err
		}
		if err := s.breathe(ctx, 2*s.pace); err != nil {
			return err
		}
	}
	return nil
}

// breathe gives whoever watches time.
func (s *show) breathe(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *show) raiseCurtain(ctx context.Context) error {
	if err := prepare(ctx, s.servers.Postgres, s.batch.ID); err != nil {
		return err
	}
	var err error
	if s.store, err = primitives.New(s.servers.Redis, primitives.Options{Prefix: prefix}); err != nil {
		return err
	}
	if s.client, err = s.servers.Dial(); err != nil {
		return err
	}
	w := worker.New(s.client, s.queue(), worker.Options{LocalActivityWorkerOnly: true})
	w.RegisterWorkflow(PayBatch)
	if err := w.Start(); err != nil {
		return err
	}
	context.AfterFunc(ctx, w.Stop)
	s.chapter(1, "Two workers, each a process, wait for work: %s.", s.mode())
	for _, name := range []string{"worker-a", "worker-b"} {
		if err := s.startWorker(ctx, name); err != nil {
			return err
		}
	}
	ready := 0
	return s.until(ctx, func(m message) bool {
		if m.event.Kind == timeline.Ready {
			ready++
			s.by(m.event.Who, "", "is up, process %d", s.workers[m.event.Who].PID())
		}
		return ready == len(s.workers)
	})
}

// queue is the task queue of this run.
func (s *show) queue() string { return "quickstart-" + s.batch.ID }

func (s *show) mode() string {
	if s.unguarded {
		return "without the kit"
	}
	return "guarded by the kit"
}

func (s *show) startWorker(ctx context.Context, name string) error {
	cfg := devstack.ChildConfig{Env: append(s.servers.Env(), roleVariable+"="+name, queueVariable+"="+s.queue())}
	if s.unguarded {
		cfg.Args = []string{"-unguarded"}
	}
	child, err := devstack.StartChild(cfg)
	if err != nil {
		return err
	}
	s.workers[name] = child
	go s.listen(ctx, name, child)
	return nil
}

// stopWorkers kills them: what they have left to do is nobody's business any more.
func (s *show) stopWorkers() {
	for _, w := range s.workers {
		_ = w.Stop()
	}
}

// askFirst has the batch paid, and one worker frozen on the way.
func (s *show) askFirst(ctx context.Context) error {
	s.chapter(2, "A workflow has a batch of %d invoices paid: for each a payout, and a note of the progress.", s.batch.Invoices)
	if err := s.ask(ctx, 1); err != nil {
		return err
	}
	err := s.until(ctx, func(m message) bool { return m.workflow == 1 })
	if err == nil && s.victim == "" {
		return errors.New("nobody was frozen: the batch was paid without reaching the invoice where that is to happen")
	}
	return err
}

// ask starts a workflow for the batch.
func (s *show) ask(ctx context.Context, n int) error {
	id := fmt.Sprintf("pay-%s-request-%d", s.batch.ID, n)
	s.temporal(fmt.Sprintf("workflow %d starts", n))
	run, err := s.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: s.queue()}, PayBatch, s.batch)
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	go s.watch(watching, n, run)
	go func() {
		defer stop()
		var r Receipt
		err := run.Get(ctx, &r)
		s.inbox <- message{workflow: n, receipt: r, err: err}
	}()
	return nil
}

// wakeUp lets the frozen worker go on, and waits for what it does.
func (s *show) wakeUp(ctx context.Context) error {
	s.chapter(4, "The batch is paid. Now %s wakes up, in the middle of its invoice %d.", s.victim, freezeAt)
	child := s.workers[s.victim]
	if err := child.Say(cueGo); err != nil {
		return err
	}
	s.note("kill -CONT %d", child.PID())
	s.record(timeline.Event{At: time.Now(), Who: s.victim, Kind: timeline.Thawed})
	if err := child.Thaw(); err != nil {
		return err
	}
	s.awake = true
	err := s.until(ctx, func(m message) bool { return m.event.Kind == timeline.Ended && m.event.Who == s.victim })
	s.awake = false
	if err != nil {
		return err
	}
	s.afterFreeze, err = readBooks(ctx, s.servers.Postgres, s.batch.ID)
	if err != nil {
		return err
	}
	code := green
	if s.afterFreeze.Done != s.batch.Invoices {
		code = red
	}
	s.by("Postgres", code, "the row says: %d of %d invoices are paid", s.afterFreeze.Done, s.batch.Invoices)
	return nil
}

// askAgain has the same batch asked for by another workflow.
func (s *show) askAgain(ctx context.Context) error {
	s.chapter(5, "Another workflow asks for the same batch.")
	before := len(s.runs)
	if err := s.ask(ctx, 2); err != nil {
		return err
	}
	if err := s.until(ctx, func(m message) bool { return m.workflow == 2 }); err != nil {
		return err
	}
	if len(s.runs) == before {
		s.note("The key is the batch's own, so the second workflow got the first one's receipt. Nothing ran.")
	} else {
		s.note("Nobody knew that it had been done, so the activity ran again.")
	}
	return nil
}

func (s *show) readBooks(ctx context.Context) (err error) {
	s.final, err = readBooks(ctx, s.servers.Postgres, s.batch.ID)
	return err
}
