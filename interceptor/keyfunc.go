package interceptor

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/fencekit/fencekit-go/primitives"
)

// KeyFunc picks what identifies an operation out of its input; see [KeyFrom].
type KeyFunc struct{ picker[any] }

// ResourceFunc names what an activity changes; see [ResourceFrom].
type ResourceFunc struct{ picker[string] }

// CompareFunc picks what must be equal beside the key; see [CompareFrom].
type CompareFunc struct {
	picker[any]
	nothing bool
}

// picker computes something from the arguments of an activity.
type picker[R any] struct {
	set   bool
	types []reflect.Type // of the first arguments, after the context; nil if it takes any
	pick  func(args []any) R
}

// KeyFrom makes a key function from the first argument of the activity, which must be
// exactly of type T. It must be a function of that alone: no clock, no random number,
// nothing that changes from one attempt to the next. For a local activity it runs in
// workflow code, and may not block. What it returns is hashed by the rules of
// primitives.NewInput: any JSON-like value, of one type, but not an empty one. Return
// a struct or a slice for a key of several parts.
func KeyFrom[T any](fn func(in T) any) KeyFunc { return KeyFunc{from(fn)} }

// KeyFrom2 is [KeyFrom] with the first two arguments.
func KeyFrom2[A, B any](fn func(a A, b B) any) KeyFunc { return KeyFunc{from2(fn)} }

// KeyFromArgs is [KeyFrom] with all arguments, as the activity gets them.
func KeyFromArgs(fn func(args []any) any) KeyFunc { return KeyFunc{fromArgs(fn)} }

// CompareFrom says which part of the input must be equal in all calls of one key, from the
// first argument of the activity, which must be exactly of type T. What it returns is
// hashed by the rules of primitives.NewInput; it may be empty. Everything that holds for
// the function of [KeyFrom] holds for this one.
func CompareFrom[T any](fn func(in T) any) CompareFunc { return CompareFunc{picker: from(fn)} }

// CompareFrom2 is [CompareFrom] with the first two arguments.
func CompareFrom2[A, B any](fn func(a A, b B) any) CompareFunc { return CompareFunc{picker: from2(fn)} }

// CompareFromArgs is [CompareFrom] with all arguments, as the activity gets them.
func CompareFromArgs(fn func(args []any) any) CompareFunc { return CompareFunc{picker: fromArgs(fn)} }

// CompareNothing lets calls of one key differ in all else: the first one's result is
// that of all.
func CompareNothing() CompareFunc { return CompareFunc{nothing: true} }

// ResourceFrom names the resource from the first argument of the activity, which must
// be exactly of type T. Everything that holds for the function of [KeyFrom] holds for
// this one. The name is shared by everything in the store, whatever
// activity or Temporal namespace uses it, as the rows are that it stands for: "batch/42".
// 1 to 4096 bytes.
func ResourceFrom[T any](fn func(in T) string) ResourceFunc { return ResourceFunc{from(fn)} }

// ResourceFrom2 is [ResourceFrom] with the first two arguments.
func ResourceFrom2[A, B any](fn func(a A, b B) string) ResourceFunc { return ResourceFunc{from2(fn)} }

// ResourceFromArgs is [ResourceFrom] with all arguments.
func ResourceFromArgs(fn func(args []any) string) ResourceFunc { return ResourceFunc{fromArgs(fn)} }

func from[T, R any](fn func(T) R) picker[R] {
	p := picker[R]{set: true, types: []reflect.Type{reflect.TypeFor[T]()}}
	if fn != nil {
		p.pick = func(args []any) R { return fn(as[T](args[0])) }
	}
	return p
}

func from2[A, B, R any](fn func(A, B) R) picker[R] {
	p := picker[R]{set: true, types: []reflect.Type{reflect.TypeFor[A](), reflect.TypeFor[B]()}}
	if fn != nil {
		p.pick = func(args []any) R { return fn(as[A](args[0]), as[B](args[1])) }
	}
	return p
}

func fromArgs[R any](fn func([]any) R) picker[R] { return picker[R]{set: true, pick: fn} }

// as is v as T; a nil argument of a local activity has lost its type.
func as[T any](v any) T {
	t, _ := v.(T)
	return t
}

var contextType = reflect.TypeFor[context.Context]()

// check compares the argument types with those of the activity, if they are known.
func (p picker[R]) check(field string, fn reflect.Type) error {
	if !p.set {
		return nil
	}
	if p.pick == nil {
		return &primitives.OptionError{Field: field, Rule: "was made from a nil function"}
	}
	if fn == nil {
		return nil
	}
	in := paramsOf(fn)
	for i, want := range p.types {
		if i >= len(in) {
			return &primitives.OptionError{Field: field, Rule: fmt.Sprintf("takes %d arguments, the activity %d", len(p.types), len(in))}
		}
		if in[i] != want {
			return &primitives.OptionError{Field: field, Rule: fmt.Sprintf("takes a %s as argument %d, the activity a %s", want, i+1, in[i])}
		}
	}
	return nil
}

// paramsOf are the parameters of an activity, without its context.
func paramsOf(fn reflect.Type) (in []reflect.Type) {
	if fn == nil {
		return nil
	}
	for i := range fn.NumIn() {
		if i > 0 || !fn.In(0).Implements(contextType) {
			in = append(in, fn.In(i))
		}
	}
	return in
}

// of applies the function to the arguments of a call. Its errors name types, never
// values.
func (p picker[R]) of(args []any) (r R, err error) {
	for i, want := range p.types {
		if i >= len(args) {
			return r, fmt.Errorf("it takes %d arguments, the call has %d", len(p.types), len(args))
		}
		if t := reflect.TypeOf(args[i]); t == nil && nillable(want) || t != nil && t.AssignableTo(want) {
			continue
		}
		return r, fmt.Errorf("it takes a %s as argument %d, the call has a %T", want, i+1, args[i])
	}
	defer func() {
		if recover() != nil {
			err = errors.New("it panicked")
		}
	}()
	return p.pick(args), nil
}

func nillable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return true
	}
	return false
}
