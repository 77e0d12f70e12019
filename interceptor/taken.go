package interceptor

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/fencekit/fencekit-go/primitives"
)

// taken is what a policy takes from the input of a call. A local activity's travels in
// its header, see [localCall], so it is a wire format.
type taken struct {
	Key       string `json:"key,omitempty"`       // the input's part of the key; none under ScopeExecution
	Compared  string `json:"compared,omitempty"`  // fingerprint of what must be equal beside it
	Unchecked bool   `json:"unchecked,omitempty"` // there would be one, but the input has none
	Resource  []byte `json:"resource,omitempty"`  // any bytes
}

// The kinds of fingerprints. Those of different kinds are not compared.
const (
	comparedWhole  = "whole"
	comparedPicked = "picked"
)

// input is the arguments of a call, as a policy takes from them.
type input struct {
	plan *plan
	args []any
	most int // bytes of the largest that is hashed; 0: what primitives.NewInput says

	asked bool
	whole primitives.Input // once it was asked for
	err   error
}

// digest is that of all arguments.
func (in *input) digest() (primitives.Input, error) {
	if !in.asked {
		in.asked = true
		var list []any
		if list, in.err = in.plan.keyable(in.args); in.err == nil {
			in.whole, in.err = primitives.NewInput(list, in.most)
		}
	}
	return in.whole, in.err
}

// take computes what the policy takes. explicit is the key of the workflow's own, or empty.
func (in *input) take(explicit string) (t taken, err error) {
	p := in.plan
	if p.Resource.set {
		name, err := p.Resource.of(in.args)
		if err != nil {
			return t, fmt.Errorf("the function of Policy.Resource: %w", err)
		}
		if name == "" {
			return t, errors.New("the function of Policy.Resource returned an empty name")
		}
		t.Resource = []byte(name)
	}
	switch {
	case p.Scope == ScopeExecution:
		return t, nil
	case explicit != "":
		t.Key = "explicit " + explicit
	case p.Key.set:
		if t.Key, err = in.pickedKey(); err != nil {
			return t, err
		}
	default:
		t.Key, err = in.wholeKey()
		return t, err
	}
	return in.compare(t)
}

// compare adds what must be equal beside the key. What the policy does not name cannot
// fail the call.
func (in *input) compare(t taken) (taken, error) {
	p := in.plan
	switch {
	case p.Compare.nothing:
		return t, nil
	case p.Compare.set:
		picked, err := in.picked("Compare", p.Compare.picker)
		t.Compared = picked.Fingerprint().Of(comparedPicked).String()
		return t, err
	}
	whole, err := in.digest()
	t.Compared, t.Unchecked = whole.Fingerprint().Of(comparedWhole).String(), err != nil
	return t, nil
}

// picked is the digest of what a function of the policy picks.
func (in *input) picked(field string, p picker[any]) (primitives.Input, error) {
	v, err := p.of(in.args)
	if err != nil {
		return primitives.Input{}, fmt.Errorf("the function of Policy.%s: %w", field, err)
	}
	return primitives.NewInput([]any{v}, in.most)
}

func (in *input) pickedKey() (string, error) {
	picked, err := in.picked("Key", in.plan.Key.picker)
	if err != nil {
		return "", err
	}
	k, err := picked.Key("key")
	if err != nil {
		return "", fmt.Errorf("what the function of Policy.Key returned: %w", err)
	}
	return k.String(), nil
}

// wholeKey is the digest of the whole input. With nothing else to tell operations
// apart, it must tell something itself.
func (in *input) wholeKey() (string, error) {
	whole, err := in.digest()
	if err != nil || in.plan.Scope != ScopeNamespace {
		return whole.Fingerprint().String(), err
	}
	k, err := whole.Key("input")
	return k.String(), err
}

// keyable is the arguments as primitives.NewInput must see them: by pointers that keep
// the types of the parameters, and raw payloads by their content.
func (p *plan) keyable(args []any) ([]any, error) {
	added := len(args) // from where on a release may have added what is at zero
	for added > len(p.params) && isNothing(args[added-1]) {
		added--
	}
	list := make([]any, 0, len(args))
	for i, arg := range args {
		raw, ok, err := payloadsOf(arg)
		switch {
		case err != nil:
			return nil, err
		case ok:
			list = append(list, raw...)
		default:
			list = append(list, p.typed(i, arg, i >= added))
		}
	}
	return list, nil
}

// isNothing reports whether an argument of a type that is not known is at zero.
func isNothing(arg any) bool {
	v := reflect.ValueOf(arg)
	switch v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	}
	return v.IsZero()
}

// typed is a pointer to an argument, as its parameter holds it. Where that is not known, it
// is the argument itself: an interface may hold it, so that 0, false and nothing differ where
// more arguments follow, and a float may be an integer that was rounded when it was decoded.
func (p *plan) typed(i int, arg any, added bool) any {
	t := reflect.TypeOf(arg)
	switch {
	case i < len(p.params) && (t == nil || t.AssignableTo(p.params[i])):
		t = p.params[i]
	case t == nil || !added && t.Kind() != reflect.Pointer: // no interface holds a pointer that was decoded
		return arg
	}
	to := reflect.New(t)
	if arg != nil {
		to.Elem().Set(reflect.ValueOf(arg))
	}
	return to.Interface()
}
