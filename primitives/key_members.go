package primitives

import (
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// members are the fields of a struct, those of embedded structs among them, as
// encoding/json sees them: of several with one name the least embedded counts, then
// the one with a tag, else none.
type members struct {
	shown  []member
	hidden []member // that hold something, and that JSON does not show
}

type member struct {
	name   string // in JSON, or in Go where it has none there
	index  []int
	typ    reflect.Type
	tagged bool
}

var knownMembers sync.Map // reflect.Type to *members

func membersOf(t reflect.Type) *members {
	if m, ok := knownMembers.Load(t); ok {
		return m.(*members) //nolint:errcheck // the map holds nothing else
	}
	m := &members{}
	var names []string
	byName := map[string][]member{}
	met := map[reflect.Type]bool{} // in an outer level: JSON does not go round
	for level := []member{{typ: t}}; len(level) > 0; {
		var next []member
		for _, outer := range level {
			met[outer.typ] = true
		}
		for _, outer := range level {
			for _, f := range m.fieldsIn(outer) {
				if f.name == "" { // embedded
					if !met[f.typ] {
						next = append(next, f)
					}
					continue
				}
				if byName[f.name] == nil {
					names = append(names, f.name)
				}
				byName[f.name] = append(byName[f.name], f)
			}
		}
		level = next
	}
	for _, name := range names {
		m.choose(byName[name])
	}
	knownMembers.Store(t, m)
	return m
}

// fieldsIn are the fields of one struct that JSON sees, and the structs that are embedded in
// it, which have no name.
func (m *members) fieldsIn(outer member) (list []member) {
	for i := range outer.typ.NumField() {
		sf := outer.typ.Field(i)
		tag := sf.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		f := member{name: name, index: append(outer.index[:len(outer.index):len(outer.index)], i), typ: sf.Type, tagged: name != ""}
		embedded := sf.Anonymous && indirect(sf.Type).Kind() == reflect.Struct
		switch {
		case tag == "-" || !sf.IsExported() && !embedded:
			if f.name = sf.Name; holdsInput(outer.typ, sf) {
				m.hidden = append(m.hidden, f)
			}
			continue
		case embedded && name == "":
			f.typ = indirect(sf.Type)
		case name == "":
			f.name = sf.Name
		}
		list = append(list, f)
	}
	return list
}

// choose tells which of the fields of one name JSON shows.
func (m *members) choose(fields []member) {
	best, rivals := fields[0], 0
	for _, f := range fields[1:] {
		switch {
		case len(f.index) < len(best.index), len(f.index) == len(best.index) && f.tagged && !best.tagged:
			best, rivals = f, 0
		case len(f.index) == len(best.index) && f.tagged == best.tagged:
			rivals++
		}
	}
	for _, f := range fields {
		if rivals == 0 && len(f.index) == len(best.index) && f.tagged == best.tagged {
			m.shown = append(m.shown, f)
		} else {
			m.hidden = append(m.hidden, f)
		}
	}
}

// holdsInput reports whether a field that JSON does not show may tell two inputs apart.
func holdsInput(outer reflect.Type, f reflect.StructField) bool {
	switch {
	case f.Name == "_", f.Type.Size() == 0, f.Type.PkgPath() == "sync":
		return false
	case strings.HasPrefix(f.Name, "XXX_"): // of generated messages
		_, message := reflect.PointerTo(outer).MethodByName("ProtoMessage")
		return !message
	}
	return true
}

// CheckShown returns a [*KeyError] for the first field, at any depth of args, that JSON
// does not show although it may tell two inputs apart: one that is not exported, has the
// tag "-", or shares its name with a field of a struct that is embedded in its own. A
// function that gets the values themselves sees such a field, and the digests of
// [NewInput] and [NewKey] do not. Types with a JSON or text form of their own are taken
// by that; one that has it from an embedded field may have no other fields. What package
// sync defines, or has no size, is no input. most is that of [NewInput].
func CheckShown(args []any, most int) error {
	for i, arg := range args {
		if arg == nil {
			continue
		}
		if fault := typeShown(reflect.TypeOf(arg)); fault != nil {
			return fault.within(strconv.Itoa(i))
		}
	}
	if fault := inspectBounded(args, most/bytesPerStep); fault != nil { // the values may refer to themselves
		return fault
	}
	walk := shownWalk{met: map[reference]bool{}}
	if fault := walk.parts(reflect.ValueOf(args)); fault != nil {
		return fault
	}
	return nil
}

// shownWalk walks values for what interfaces in them hold, each of them once.
type shownWalk struct{ met map[reference]bool }

// value checks the type of a value, and the types of what interfaces in it hold.
func (w shownWalk) value(v reflect.Value) *KeyError {
	if fault := typeShown(v.Type()); fault != nil {
		return fault
	}
	switch factsOf(v.Type()).role {
	case plain, raw, number:
		return nil
	}
	if isReference(v) {
		ref := reference{v.Type(), v.UnsafePointer(), 0}
		if v.Kind() == reflect.Slice {
			ref.length = v.Len()
		}
		if w.met[ref] {
			return nil
		}
		w.met[ref] = true
	}
	return w.parts(v)
}

func (w shownWalk) parts(v reflect.Value) *KeyError {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			return w.value(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if fault := w.value(v.Index(i)); fault != nil {
				return fault.within(strconv.Itoa(i))
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if fault := w.value(it.Value()); fault != nil {
				return fault.within(keyToken(it.Key()))
			}
		}
	case reflect.Struct:
		if hasOwnForm(v.Type()) {
			return nil
		}
		for _, m := range membersOf(v.Type()).shown {
			field, err := v.FieldByIndexErr(m.index)
			if err != nil { // in an embedded pointer that is nil
				continue
			}
			if fault := w.value(field); fault != nil {
				return fault.within(m.name)
			}
		}
	}
	return nil
}

func hiddenField(t reflect.Type, name string) *KeyError {
	fault := &KeyError{Reason: "JSON does not show this field of " + typeName(t) + ", so two inputs cannot be told apart"}
	return fault.within(name)
}

// besideForm is the first field of a struct that stands beside an embedded one whose
// method writes the whole struct; "" if there is none, or if the method is its own.
func besideForm(t reflect.Type) string {
	if t.Kind() != reflect.Struct {
		return ""
	}
	for _, form := range ownForms {
		if !t.Implements(form) && !reflect.PointerTo(t).Implements(form) {
			continue
		}
		if declares(t, form.Method(0).Name) {
			return ""
		}
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Anonymous && (f.Type.Implements(form) || reflect.PointerTo(f.Type).Implements(form)) {
				continue
			}
			if holdsInput(t, f) {
				return f.Name
			}
		}
		return ""
	}
	return ""
}

// declares reports whether a method is t's own, and not that of an embedded field, whose
// wrapper the compiler makes.
func declares(t reflect.Type, name string) bool {
	m, ok := t.MethodByName(name)
	if !ok {
		m, ok = reflect.PointerTo(t).MethodByName(name)
	}
	if !ok {
		return false
	}
	file, _ := runtime.FuncForPC(m.Func.Pointer()).FileLine(m.Func.Pointer())
	return file != "<autogenerated>"
}

var knownShown sync.Map // reflect.Type to KeyError, one without a reason if all is shown

// typeShown checks a type as far as it is known without a value.
func typeShown(t reflect.Type) *KeyError {
	known, ok := knownShown.Load(t)
	if !ok {
		known = KeyError{}
		if fault := (shownCheck{open: map[reflect.Type]bool{}}).typ(t); fault != nil {
			known = *fault
		}
		knownShown.Store(t, known)
	}
	fault := known.(KeyError) //nolint:errcheck // the map holds nothing else
	if fault.Reason == "" {
		return nil
	}
	return &fault
}

// shownCheck walks a type.
type shownCheck struct{ open map[reflect.Type]bool }

func (c shownCheck) typ(t reflect.Type) *KeyError {
	if c.open[t] {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		return c.typ(t.Elem())
	}
	if hasOwnForm(t) {
		if name := besideForm(t); name != "" {
			return hiddenField(t, name)
		}
		return nil
	}
	c.open[t] = true
	defer delete(c.open, t)
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		if fault := c.typ(t.Elem()); fault != nil {
			return fault.within("*")
		}
	case reflect.Struct:
		m := membersOf(t)
		if len(m.hidden) > 0 {
			return hiddenField(t, m.hidden[0].name)
		}
		for _, shown := range m.shown {
			if fault := c.typ(shown.typ); fault != nil {
				return fault.within(shown.name)
			}
		}
	}
	return nil
}
