package interceptor

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
)

// Plugin returns the interceptor as a plugin, for client.Options.Plugins: the client's
// workers, and its replayers, are then guarded, and results are stored as the client's
// data converter encodes them. In worker.Options.Plugins it works too, but finds no
// converter there.
//
// When a worker starts, one line in the client's log (else slog's default) names the
// guards whose activities it does not have: a typing error would leave an activity unguarded.
func (k *Interceptor) Plugin() *temporal.SimplePlugin { return k.plugin }

func (k *Interceptor) newPlugin() (*temporal.SimplePlugin, error) {
	r := &roll{kit: k, workers: map[string]map[string]bool{}}
	return temporal.NewSimplePlugin(temporal.SimplePluginOptions{
		Name:               "fencekit",
		WorkerInterceptors: []sdk.WorkerInterceptor{k},
		ConfigureClient: func(_ context.Context, o client.PluginConfigureClientOptions) error {
			r.setLogger(o.ClientOptions.Logger)
			return k.converters.find(o.ClientOptions)
		},
		ConfigureWorker: r.configure,
		RunContextBefore: func(_ context.Context, o temporal.SimplePluginRunContextBeforeOptions) error {
			if !o.WorkflowReplayer {
				r.call(o.InstanceKey)
			}
			return nil
		},
		RunContextAfter: func(_ context.Context, o temporal.SimplePluginRunContextAfterOptions) { r.drop(o.InstanceKey) },
	})
}

// roll knows which activities each worker has registered.
type roll struct {
	kit *Interceptor

	mu      sync.Mutex
	logger  sdklog.Logger
	workers map[string]map[string]bool // names by the worker's instance key
}

func (r *roll) setLogger(l sdklog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logger = l
}

func (r *roll) configure(_ context.Context, o worker.PluginConfigureWorkerOptions) error {
	registry := o.WorkerRegistryOptions
	before := registry.OnRegisterActivity
	registry.OnRegisterActivity = func(a any, opts activity.RegisterOptions) {
		if before != nil {
			before(a, opts)
		}
		r.note(o.WorkerInstanceKey, namesOf(a, opts)...)
	}
	return nil
}

func (r *roll) note(key string, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.workers[key] == nil {
		r.workers[key] = map[string]bool{}
	}
	for _, name := range names {
		r.workers[key][name] = true
	}
}

// call says which guards of the kit guard nothing on a worker that starts.
func (r *roll) call(key string) {
	r.mu.Lock()
	names, logger := r.workers[key], r.logger
	r.mu.Unlock()
	if len(names) == 0 { // it runs workflows only
		return
	}
	if logger == nil { // the client has none, or this is the worker's plugin alone
		logger = sdklog.NewStructuredLogger(slog.Default())
	}
	var absent []string
	for name := range r.kit.plans {
		if !names[name] {
			absent = append(absent, name)
		}
	}
	if len(absent) > 0 {
		slices.Sort(absent)
		safely(func() {
			logger.Warn("fencekit: the worker has no activity of this name, so its guard guards nothing here",
				"Guards", strings.Join(absent, ", "))
		})
	}
}

func (r *roll) drop(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.workers, key)
}

// namesOf are the names under which the SDK registers a function, or the methods of a
// struct.
func namesOf(a any, o activity.RegisterOptions) []string {
	t := reflect.TypeOf(a)
	if t == nil {
		return nil
	}
	if t.Kind() == reflect.Func {
		name, err := activityName(a)
		if o.Name != "" {
			name, err = o.Name, nil
		}
		if err != nil {
			return nil
		}
		return []string{name}
	}
	var names []string
	for i := range t.NumMethod() {
		names = append(names, o.Name+t.Method(i).Name)
	}
	return names
}
