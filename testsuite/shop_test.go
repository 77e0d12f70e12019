package testsuite_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
	"github.com/fencekit/fencekit-go/testsuite"
)

var (
	accounts = pgxfence.Table{Name: pgx.Identifier{"accounts"}}
	marks    = pgxfence.Table{Name: pgx.Identifier{"marks"}}
)

// order is the input of the planted activities.
type order struct {
	Account int64
	Amount  int64
	Price   float64
	ID      string

	note string // which JSON does not show
}

func accountOf(o order) string { return fmt.Sprintf("account/%d", o.Account) }

// policy is what most of them need: one resource for one account.
func policy() interceptor.Policy {
	return interceptor.Policy{Resource: interceptor.ResourceFrom(accountOf)}
}

func set(o order, values pgxfence.Values) pgxfence.Change {
	return pgxfence.Change{Key: pgxfence.Values{"id": o.Account}, Set: values}
}

// shop is one test's activity and its surroundings.
type shop struct {
	kit    *testsuite.Kit
	pool   *pgxpool.Pool
	client *http.Client
	api    string

	mu     sync.Mutex
	cached *fence.Token
	calls  map[string]int // of the API, by idempotency key
	writer sync.WaitGroup

	closing chan struct{}
}

func newShop(t testsuite.TB, database *pgxpool.Pool) *shop {
	s := &shop{kit: testsuite.New(t, testsuite.Options{Postgres: database}), calls: map[string]int{}, closing: make(chan struct{})}
	s.pool = s.kit.Pool()
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	s.api = server.URL
	s.client = &http.Client{Transport: s.kit.RoundTripper(server.Client().Transport)}
	return s
}

// serve is a payment API: requests with one key are one payment.
func (s *shop) serve(_ http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		key = fmt.Sprint("request ", len(s.calls))
	}
	s.calls[key]++
}

func (s *shop) reset(ctx context.Context) error {
	s.mu.Lock()
	s.calls = map[string]int{}
	s.mu.Unlock()
	return resetTables(ctx, s.pool)
}

type world struct {
	Balance [2]int64
	Status  string
	Mark    string
	Paid    int
}

func (s *shop) state(ctx context.Context) (any, error) {
	var w world
	err := s.pool.QueryRow(ctx, `SELECT (SELECT balance FROM accounts WHERE id = 1), (SELECT balance FROM accounts WHERE id = 2),
		(SELECT status FROM accounts WHERE id = 1), coalesce((SELECT v FROM marks WHERE id = 1), '')`).
		Scan(&w.Balance[0], &w.Balance[1], &w.Status, &w.Mark)
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Paid = len(s.calls)
	return w, err
}

func (s *shop) pay(ctx context.Context, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.api+"/charges", http.NoBody)
	if err != nil {
		return err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
