package interceptor

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/fencekit/fencekit-go/primitives"
)

// plan is a policy with the guard that enforces it.
type plan struct {
	Policy

	guard    *primitives.Guard
	params   []reflect.Type // of the activity's function, after the context; nil if it is not known
	leaseTTL time.Duration  // as the guard has it
	keepFor  time.Duration
	observer observer
	advise   sync.Once

	unchecked sync.Once // the warning of calls whose input cannot be compared
}

func (k *Interceptor) add(g Guard, o Options) error {
	name, fn := "", reflect.Type(nil)
	if !g.dynamic {
		var err error
		if name, err = activityName(g.activity); err != nil {
			return err
		}
		if t := reflect.TypeOf(g.activity); t.Kind() == reflect.Func {
			fn = t
		}
	}
	if k.plans[name] != nil || g.dynamic && k.dynamic != nil {
		return &primitives.OptionError{Field: "activity", Rule: "is guarded twice"}
	}
	if err := g.policy.check(fn); err != nil {
		return err
	}
	p := &plan{Policy: g.policy, observer: observer{o.Observer}, params: paramsOf(fn)}
	guard, err := primitives.NewGuard(k.store, g.policy.guard(o, p.observer))
	if err != nil {
		return err
	}
	p.guard, p.leaseTTL, p.keepFor = guard, guard.Options().LeaseTTL, guard.Options().Retention
	if p.keepFor < p.leaseTTL {
		return &primitives.OptionError{Field: "Retention", Rule: fmt.Sprintf("%s is below LeaseTTL, %s: a result would be forgotten "+
			"before others even look again", p.keepFor, p.leaseTTL)}
	}
	if g.dynamic {
		k.dynamic = p
	} else {
		k.plans[name] = p
	}
	return nil
}

// activityName is the name under which the SDK registers an activity by default.
func activityName(activity any) (string, error) {
	if name, ok := activity.(string); ok {
		if name == "" {
			return "", &primitives.OptionError{Field: "activity", Rule: "is an empty name"}
		}
		return name, nil
	}
	v := reflect.ValueOf(activity)
	if v.Kind() != reflect.Func || v.IsNil() {
		return "", &primitives.OptionError{Field: "activity", Rule: "must be a function or a name"}
	}
	full := runtime.FuncForPC(v.Pointer()).Name()
	short := full[strings.LastIndexByte(full, '.')+1:]
	return strings.TrimSuffix(short, "-fm"), nil // a method value has it
}
