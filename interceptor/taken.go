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

// take computes it. explicit is the key of the workflow's own, or empty.
func (p *plan) take(args []any, explicit string) (t taken, err error) {
	if p.Resource.set {
		name, err := p.Resource.of(args)
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
		if t.Key, err = p.pickedKey(args); err != nil {
			return t, err
		}
	default:
		t.Key, err = p.wholeKey(args)
		return t, err
	}
	return p.compare(t, args)
}

// compare adds what must be equal beside the key. What the policy does not name cannot
// fail the call.
func (p *plan) compare(t taken, args []any) (taken, error) {
	switch {
	case p.Compare.nothing:
		return t, nil
	case p.Compare.set:
		v, err := p.Compare.of(args)
		if err != nil {
			return t, fmt.Errorf("the function of Policy.Compare: %w", err)
		}
		f, err := primitives.NewInput([]any{v})
		t.Compared = f.Of(comparedPicked).String()
		return t, err
	}
	whole, err := p.whole(args)
	t.Compared, t.Unchecked = whole.Of(comparedWhole).String(), err != nil
	return t, nil
}

// pickedKey is the digest of what the key function picks.
func (p *plan) pickedKey(args []any) (string, error) {
	v, err := p.Key.of(args)
	if err != nil {
		return "", fmt.Errorf("the function of Policy.Key: %w", err)
	}
	k, err := primitives.NewInputKey("key", []any{v})
	return k.String(), err
}

// wholeKey is the digest of the whole input. With nothing else to tell operations
// apart, it must tell something itself.
func (p *plan) wholeKey(args []any) (string, error) {
	in, err := p.keyable(args)
	if err != nil {
		return "", err
	}
	if p.Scope == ScopeNamespace {
		k, err := primitives.NewInputKey("input", in)
		return k.String(), err
	}
	f, err := primitives.NewInput(in)
	return f.String(), err
}

func (p *plan) whole(args []any) (primitives.Fingerprint, error) {
	in, err := p.keyable(args)
	if err != nil {
		return primitives.Fingerprint{}, err
	}
	return primitives.NewInput(in)
}

// keyable is the arguments as primitives.NewInput must see them: by pointers that keep
// the types of the parameters, and raw payloads by their content.
func (p *plan) keyable(args []any) ([]any, error) {
	in := make([]any, 0, len(args))
	for i, arg := range args {
		raw, ok, err := payloadsOf(arg)
		switch {
		case err != nil:
			return nil, err
		case ok:
			in = append(in, raw...)
		default:
			in = append(in, p.typed(i, arg))
		}
	}
	return in, nil
}

// typed is a pointer to an argument, as its parameter holds it. Where that is not known,
// the argument's own type stands for it; but a float may then be an integer that was
// rounded when it was decoded for an interface.
func (p *plan) typed(i int, arg any) any {
	t := reflect.TypeOf(arg)
	if i < len(p.params) && (t == nil || t.AssignableTo(p.params[i])) {
		t = p.params[i]
	}
	if _, float := arg.(float64); t == nil || float && i >= len(p.params) {
		return arg
	}
	to := reflect.New(t)
	if arg != nil {
		to.Elem().Set(reflect.ValueOf(arg))
	}
	return to.Interface()
}
