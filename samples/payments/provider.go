package payments

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
)

// Client calls a provider's API.
type Client struct {
	URL  string
	HTTP http.Client
}

// Charge charges an order, once for each idempotency key.
func (c Client) Charge(ctx context.Context, key string, o Order) (Charge, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return Charge{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/charges", bytes.NewReader(body))
	if err != nil {
		return Charge{}, err
	}
	req.Header.Set("Idempotency-Key", key)
	return c.do(req)
}

// Find finds the charge of an order.
func (c Client) Find(ctx context.Context, order string) (Charge, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/charges?order="+url.QueryEscape(order), http.NoBody)
	if err != nil {
		return Charge{}, err
	}
	return c.do(req)
}

func (c Client) do(req *http.Request) (charge Charge, err error) {
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return charge, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return charge, fmt.Errorf("the provider answers %s", resp.Status)
	}
	err = json.NewDecoder(resp.Body).Decode(&charge)
	return charge, err
}

// Provider stands for the payment provider: it charges, and remembers the keys.
type Provider struct {
	mu      sync.Mutex
	byKey   map[string]Charge
	byOrder map[string]Charge
}

// ServeHTTP is the provider's API.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodGet {
		c, ok := p.byOrder[r.FormValue("order")]
		answer(w, c, ok)
		return
	}
	var o Order
	err := json.NewDecoder(r.Body).Decode(&o)
	answer(w, p.charge(r.Header.Get("Idempotency-Key"), o), err == nil)
}

func (p *Provider) charge(key string, o Order) Charge {
	if c, ok := p.byKey[key]; ok {
		return c
	}
	if p.byKey == nil {
		p.byKey, p.byOrder = map[string]Charge{}, map[string]Charge{}
	}
	c := Charge{ID: fmt.Sprintf("ch-%d", len(p.byKey)+1), Cents: o.Cents}
	p.byKey[key], p.byOrder[o.ID] = c, c
	return c
}

// Charges is how many charges were made.
func (p *Provider) Charges() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byKey)
}

func answer(w http.ResponseWriter, c Charge, ok bool) {
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(c)
}
