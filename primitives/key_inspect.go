package primitives

import (
	"fmt"
	"reflect"
	"strconv"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxDepth bounds the nesting, pointers and interfaces included. It is also
	// how deep the JSON library writes.
	maxDepth = 10_000

	// A walk that is longer or deeper than most looks out for what it has met.
	watchSteps = 1000
	watchDepth = 50
)

// inspector walks a payload before it is written as JSON. It finds the values
// that refer to themselves, also in fields that would be omitted.
type inspector struct {
	depth, steps int
	most         int                // steps; 0: any number
	met          map[reference]bool // true while it is open; nil if not watching
	unfinished   bool
}

// reference is what can lead back to where the walk has been. A pointer to a
// struct and one to its first field differ in type.
type reference struct {
	typ    reflect.Type
	to     unsafe.Pointer
	length int
}

func inspectPayload(payload any) *KeyError { return inspectBounded(payload, 0) }

// inspectBounded gives up after `most` steps, if that is not 0.
func inspectBounded(payload any, most int) *KeyError {
	root := reflect.ValueOf(&payload).Elem()
	w := new(inspector)
	fault := w.inspect(root)
	if w.unfinished {
		w = &inspector{met: map[reference]bool{}, most: most}
		fault = w.inspect(root)
	}
	if w.unfinished {
		return &KeyError{Reason: fmt.Sprintf("it is nested deeper than %d", maxDepth)}
	}
	return fault
}

func (w *inspector) inspect(v reflect.Value) *KeyError {
	f := factsOf(v.Type())
	if f.role == plain {
		return nil
	}
	w.steps++
	if w.most > 0 && w.steps > w.most {
		return &KeyError{Reason: fmt.Sprintf("it holds more than %d values, over the limit", w.most)}
	}
	if w.isLong() {
		w.unfinished = true
		return new(KeyError)
	}
	w.depth++
	defer func() { w.depth-- }()
	if w.met == nil || !isReference(v) {
		return w.inspectRole(v, f)
	}
	ref := reference{v.Type(), v.UnsafePointer(), 0}
	if v.Kind() == reflect.Slice {
		ref.length = v.Len()
	}
	if open, met := w.met[ref]; open {
		return &KeyError{Reason: "it refers to itself"}
	} else if met {
		return nil
	}
	w.met[ref] = true
	fault := w.inspectRole(v, f)
	w.met[ref] = false
	return fault
}

func (w *inspector) isLong() bool {
	if w.met != nil {
		return w.depth > maxDepth
	}
	return w.steps > watchSteps || w.depth > watchDepth
}

func isReference(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Map:
		return !v.IsNil()
	case reflect.Slice:
		return v.Len() > 0
	}
	return false
}

func (w *inspector) inspectRole(v reflect.Value, f *facts) *KeyError {
	switch f.role {
	case raw:
		if w.most > 0 && v.Len() > w.most*bytesPerStep {
			return &KeyError{Reason: fmt.Sprintf("it has %d bytes of raw JSON, over the limit", v.Len())}
		}
		return inspectRaw(v.Bytes())
	case number:
		return inspectNumber(v.String())
	case hidden:
		return &KeyError{Reason: typeName(v.Type()) + " shows none of its fields"}
	case formatted:
		return &KeyError{Reason: typeName(v.Type()) + ` has a field with the tag option "format"`}
	}
	return w.inspectParts(v, f.fields)
}

func (w *inspector) inspectParts(v reflect.Value, fields []field) *KeyError {
	switch v.Kind() {
	case reflect.Interface:
		return w.inspectDynamic(v.Elem())
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return w.inspect(v.Elem())
	case reflect.Slice, reflect.Array:
		return w.inspectList(v)
	case reflect.Map:
		return w.inspectMap(v)
	default:
		return w.inspectFields(v, fields)
	}
}

// inspectDynamic looks at what an interface holds; the zero v is nil.
func (w *inspector) inspectDynamic(v reflect.Value) *KeyError {
	if !v.IsValid() {
		return nil
	}
	if v.CanFloat() && !hasOwnForm(v.Type()) {
		if reason := untypedFloat(v.Float()); reason != "" {
			return &KeyError{Reason: reason}
		}
	}
	return w.inspect(v)
}

func inspectRaw(text []byte) *KeyError {
	if text == nil {
		return nil
	}
	_, fault := scanText(text, rawNumber)
	if fault != nil && fault.Err != nil {
		return nil //nolint:nilerr // malformed: the encoder says so
	}
	return fault
}

func inspectNumber(literal string) *KeyError {
	if !jsontext.Value(literal).IsValid() {
		return nil // the encoder says so
	}
	if reason := rawNumber([]byte(literal)); reason != "" {
		return &KeyError{Reason: reason}
	}
	return nil
}

func (w *inspector) inspectList(v reflect.Value) *KeyError {
	for i := range v.Len() {
		if fault := w.inspect(v.Index(i)); fault != nil {
			return fault.within(strconv.Itoa(i))
		}
	}
	return nil
}

func (w *inspector) inspectMap(v reflect.Value) *KeyError {
	for it := v.MapRange(); it.Next(); {
		fault := w.inspect(it.Key())
		if fault == nil {
			fault = w.inspect(it.Value())
		}
		if fault != nil {
			return fault.within(keyToken(it.Key()))
		}
	}
	return nil
}

// keyToken is the map key in a path: only strings can be names.
func keyToken(key reflect.Value) string {
	if key.Kind() == reflect.Interface {
		key = key.Elem()
	}
	if key.Kind() == reflect.String {
		return key.String()
	}
	return "*"
}

func (w *inspector) inspectFields(v reflect.Value, fields []field) *KeyError {
	for _, f := range fields {
		fault := w.inspect(v.Field(f.index))
		if fault == nil {
			continue
		}
		if f.name != "" {
			fault = fault.within(f.name)
		}
		return fault
	}
	return nil
}
