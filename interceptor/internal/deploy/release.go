package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fencekit/fencekit-go/interceptor"
	"github.com/fencekit/fencekit-go/primitives"
)

var retries = &temporal.RetryPolicy{InitialInterval: retrySoon, BackoffCoefficient: 1}

// Release is one version of the program. P is its input of the activities.
type Release[P any] struct {
	Name   string
	Number func(P) string // the order's number
	Moved  func(P) any    // the key of the activity [Moved]
}

// Main runs a worker until its standard input ends. It says "ready" when it works.
func (r Release[P]) Main() {
	if err := r.work(); err != nil {
		fmt.Fprintln(os.Stderr, r.Name+":", err)
		os.Exit(1)
	}
}

func (r Release[P]) work() error {
	var o Order
	if err := json.Unmarshal([]byte(os.Getenv(OrderEnv)), &o); err != nil {
		return fmt.Errorf("%s: %w", OrderEnv, err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: o.Redis, ContextTimeoutEnabled: true})
	defer rdb.Close()
	c, err := client.NewLazyClient(client.Options{
		HostPort: o.Temporal, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ConnectionOptions: client.ConnectionOptions{GetSystemInfoTimeout: time.Minute}})
	if err != nil {
		return err
	}
	defer c.Close()
	kit, err := r.interceptor(o, rdb)
	if err != nil {
		return err
	}
	w := worker.New(c, o.Queue, worker.Options{Interceptors: []sdk.WorkerInterceptor{kit}})
	w.RegisterWorkflowWithOptions(pay[P], workflow.RegisterOptions{Name: Workflow})
	for name := range r.policies() {
		w.RegisterActivityWithOptions(teller[P]{r, o.Payments}.charge, activity.RegisterOptions{Name: name})
	}
	if err := w.Start(); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	w.Stop()
	return err
}

func (r Release[P]) interceptor(o Order, rdb *redis.Client) (*interceptor.Interceptor, error) {
	opts := interceptor.Options{Redis: rdb, LeaseTTL: o.LeaseTTL, Identity: r.Name,
		Store: primitives.Options{Prefix: o.Queue, Timeout: 10 * time.Second}}
	for name, policy := range r.policies() {
		opts.Guards = append(opts.Guards, interceptor.For(name, policy))
	}
	return interceptor.New(opts)
}

func (r Release[P]) policies() map[string]interceptor.Policy {
	number := interceptor.KeyFrom(func(p P) any { return r.Number(p) })
	order := interceptor.ResourceFrom(func(p P) string { return "order/" + r.Number(p) })
	return map[string]interceptor.Policy{
		Default:  {},
		Resource: {Resource: order},
		Keyed:    {Key: number},
		ByHeader: {Scope: interceptor.ScopeRun},
		Whole:    {Scope: interceptor.ScopeNamespace},
		Business: {Scope: interceptor.ScopeNamespace, Key: number},
		Moved:    {Scope: interceptor.ScopeNamespace, Key: interceptor.KeyFrom(r.Moved), Resource: order},
	}
}

// pay makes one call. A local activity is called by the release's own struct, whatever
// shape its history has.
func pay[P any](ctx workflow.Context, p Pay[P]) (receipt string, err error) {
	ctx = workflow.WithActivityOptions(ctx, activityOptions(p.Timeout))
	ctx = workflow.WithLocalActivityOptions(ctx, localOptions(p.Timeout))
	if p.Key != "" {
		if ctx, err = interceptor.WithKey(ctx, p.Key); err != nil {
			return "", err
		}
	}
	run := workflow.ExecuteActivity
	if p.Local {
		run = workflow.ExecuteLocalActivity
	}
	err = run(ctx, p.Activity, p.Payment).Get(ctx, &receipt)
	return receipt, err
}

// teller is the worker's side of a payment.
type teller[P any] struct {
	Release[P]

	payments string
}

// charge asks the service for the payment and returns its receipt.
func (t teller[P]) charge(ctx context.Context, p P) (string, error) {
	key, err := interceptor.IdempotencyKey(ctx, "charge")
	if err != nil {
		return "", err
	}
	attempt, _ := interceptor.Attempt(ctx)
	body, err := json.Marshal(t.Number(p))
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.payments, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set(HeaderKey, key)
	req.Header.Set(HeaderRelease, t.Name)
	req.Header.Set(HeaderOutcome, string(attempt.Outcome))
	req.Header.Set(HeaderToken, attempt.Token.Value.String())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	receipt, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New("the service says "+resp.Status))
	}
	return string(receipt), err
}
