package primitives

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// KeyError says that no key can be derived safely: two different payloads might
// share it, or the payload identifies nothing. It is permanent for the payload;
// a retry cannot succeed. Find it with errors.As.
type KeyError struct {
	// Path is the JSON pointer (RFC 6901) of what cannot be keyed; "" is the
	// whole payload, or the namespace. A member name that does not look like a
	// name in a program may be data (an e-mail address as a map key), and is
	// written as "*". A long path is cut.
	Path string
	// Reason says what is wrong. It holds no part of the payload.
	Reason string
	// Err is the underlying error, if any. Its text may hold parts of the
	// payload, so that [KeyError.Error] leaves it out.
	Err error
}

// Error names path and reason.
func (e *KeyError) Error() string {
	if e.Path == "" {
		return "primitives: no safe key: " + e.Reason
	}
	return "primitives: no safe key: " + e.Path + ": " + e.Reason
}

// Unwrap returns Err.
func (e *KeyError) Unwrap() error { return e.Err }

// within puts a parent's token before the path.
func (e *KeyError) within(token string) *KeyError {
	e.Path = clip("/" + nameToken(token) + e.Path)
	return e
}

// pointer writes a JSON pointer with its suspicious tokens masked.
func pointer(p jsontext.Pointer) string {
	limit := maxPath
	if strings.Count(string(p), "/") > maxPath { // nested too deeply
		limit = maxPath / 10
	}
	var b strings.Builder
	for token := range p.Tokens() {
		if b.Len() > limit {
			break
		}
		b.WriteString("/" + nameToken(token))
	}
	if b.Len() > limit && limit < maxPath {
		b.WriteString("...")
	}
	return clip(b.String())
}

const (
	maxPath       = 256
	maxIndexToken = 6
)

func clip(path string) string {
	if len(path) <= maxPath {
		return path
	}
	return path[:maxPath] + "..."
}

// nameToken masks what may be data instead of a name: anything that is not an
// identifier (dots and dashes allowed) or a short index.
func nameToken(s string) string {
	if s == "" || len(s) > 64 || strings.ContainsFunc(s, notInName) {
		return "*"
	}
	if isDigit(rune(s[0])) || s[0] == '-' || s[0] == '.' {
		if len(s) > maxIndexToken || strings.ContainsFunc(s, notDigit) {
			return "*"
		}
	}
	return s
}

func isDigit(r rune) bool  { return '0' <= r && r <= '9' }
func notDigit(r rune) bool { return !isDigit(r) }

func notInName(r rune) bool {
	letter := 'a' <= r|0x20 && r|0x20 <= 'z'
	return !letter && notDigit(r) && r != '_' && r != '-' && r != '.'
}

// errInvalidUTF8 is the library's sentinel, which it does not export.
var errInvalidUTF8 = func() error {
	_, err := jsontext.AppendQuote(nil, "\xff")
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}()

// encodingError turns an error of the JSON library into a KeyError, without the
// library's text, which quotes names and values.
func encodingError(err error) *KeyError {
	at := ""
	if sem, ok := errors.AsType[*json.SemanticError](err); ok {
		at = pointer(sem.JSONPointer)
	} else if syn, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at = pointer(syn.JSONPointer)
	}
	if own, ok := errors.AsType[*KeyError](err); ok {
		return &KeyError{Path: clip(at + own.Path), Reason: own.Reason, Err: own.Err}
	}
	return &KeyError{Path: at, Reason: encodingReason(err), Err: err}
}

func encodingReason(err error) string {
	switch {
	case errors.Is(err, errInvalidUTF8):
		return "a string is not valid UTF-8"
	case errors.Is(err, jsontext.ErrDuplicateName):
		return "an object has two members of one name"
	case errors.Is(err, jsontext.ErrNonStringName):
		return "a map has keys that are neither strings nor integers"
	}
	sem, ok := errors.AsType[*json.SemanticError](err)
	if !ok || sem.GoType == nil {
		return "it is not valid JSON, or nested too deeply"
	}
	return typeReason(sem.GoType, sem.Err)
}

func typeReason(t reflect.Type, err error) string {
	switch {
	case slices.Contains(rawTypes, t):
		return "raw JSON is not valid"
	case hasOwnForm(t):
		return fmt.Sprintf("a method of %s failed to write it as JSON", typeName(t))
	}
	switch t.Kind() {
	case reflect.Float32, reflect.Float64:
		return "JSON has no form for this float: it is NaN or infinite"
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return "JSON has no form for a " + t.Kind().String()
	case reflect.Struct: // what the library says of a struct is about its type
		return fmt.Sprintf("%s has no JSON form: %v", typeName(t), err)
	}
	return fmt.Sprintf("%s has no JSON form, or refers to itself", typeName(t))
}

// typeName is the name of a type; an unnamed one is only described by its kind,
// because its text would spell out every field and tag.
func typeName(t reflect.Type) string {
	if t.Name() == "" {
		return "unnamed " + t.Kind().String()
	}
	return t.String()
}

func panicError(cause any) *KeyError {
	err, ok := cause.(error)
	if !ok {
		err = fmt.Errorf("panic: %v", cause)
	}
	return &KeyError{Reason: "a method of the payload panicked", Err: err}
}
