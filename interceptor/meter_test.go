package interceptor_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
)

// meter is a metrics handler that keeps what it is told, of the SDK and of the kit.
type meter struct {
	mu       sync.Mutex
	counters map[string]int64           // by name, and name{outcome}
	timers   map[string][]time.Duration // by name
	tags     map[string]map[string]bool // values by tag, of the kit's metrics
	sdkTags  map[string]bool
	spoil    bool // panic at whatever is the kit's
}

// metered has the client of e use a meter.
func (e *env) metered() *meter {
	e.Helper()
	m := &meter{counters: map[string]int64{}, timers: map[string][]time.Duration{},
		tags: map[string]map[string]bool{}, sdkTags: map[string]bool{}}
	s, err := sharedTemporal()
	require.NoError(e, err)
	e.client = s.ClientForTest(e, func(o *client.Options) { o.Logger, o.MetricsHandler = e.logs, tagged{m, nil} })
	return m
}

// tagged is the handler under some tags.
type tagged struct {
	*meter

	set map[string]string
}

type nothing struct{}

func (nothing) Inc(int64)            {}
func (nothing) Update(float64)       {}
func (nothing) Record(time.Duration) {}

func (h tagged) WithTags(tags map[string]string) client.MetricsHandler {
	set := maps.Clone(h.set)
	if set == nil {
		set = map[string]string{}
	}
	maps.Copy(set, tags)
	return tagged{h.meter, set}
}

func (h tagged) Counter(name string) client.MetricsCounter { return counter{h, name} }
func (h tagged) Gauge(string) client.MetricsGauge          { return nothing{} }
func (h tagged) Timer(name string) client.MetricsTimer     { return counter{h, name} }

type counter struct {
	tagged

	name string
}

// note keeps the tags of one metric; the lock is held.
func (c counter) note() {
	ours := strings.HasPrefix(c.name, "fencekit_")
	if ours && c.spoil {
		panic("spoilt metrics")
	}
	for tag, value := range c.set {
		switch {
		case !ours:
			c.sdkTags[tag] = true
		case c.tags[tag] == nil:
			c.tags[tag] = map[string]bool{value: true}
		default:
			c.tags[tag][value] = true
		}
	}
}

func (c counter) Inc(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note()
	c.counters[c.name] += n
	if outcome, ok := c.set["outcome"]; ok {
		c.counters[c.name+"{"+outcome+"}"] += n
	}
}

func (c counter) Record(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note()
	c.timers[c.name] = append(c.timers[c.name], d)
}

func (m *meter) count(name string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counters[name]
}

// values are those that a tag has taken in the kit's metrics.
func (m *meter) values(tag string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.tags[tag]))
}
