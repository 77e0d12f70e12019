package primitives

import (
	"reflect"
	"strconv"
)

// maxDepth is how deep the JSON library writes.
const maxDepth = 10_000

// inspector walks a payload that has been written as JSON, so it is finite but
// for what was left out there: a field may be omitted and refer to itself.
type inspector struct{ depth int }

func inspectPayload(payload any) *KeyError {
	return new(inspector).inspect(reflect.ValueOf(&payload).Elem())
}

func (w *inspector) inspect(v reflect.Value) *KeyError {
	f := factsOf(v.Type())
	if f.role == plain {
		return nil
	}
	if w.depth > maxDepth {
		return &KeyError{Reason: "it is nested too deeply, or refers to itself"}
	}
	w.depth++
	fault := w.inspectRole(v, f)
	w.depth--
	return fault
}

func (w *inspector) inspectRole(v reflect.Value, f *facts) *KeyError {
	switch f.role {
	case raw:
		return inspectRaw(v.Bytes())
	case number:
		return inspectNumber(v.String())
	case hidden:
		return &KeyError{Reason: typeName(v.Type()) + " shows none of its fields"}
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
	return fault
}

func inspectNumber(literal string) *KeyError {
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
