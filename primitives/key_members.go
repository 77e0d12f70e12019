package primitives

import (
	"reflect"
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
	name   string // in JSON; of a hidden one, in Go
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
// by that. What package sync defines, or has no size, is no input.
func CheckShown(args []any) error {
	c := shownCheck{open: map[reflect.Type]bool{}}
	for i, arg := range args {
		if arg == nil {
			continue
		}
		if fault := c.typ(reflect.TypeOf(arg)); fault != nil {
			return fault.within(strconv.Itoa(i))
		}
	}
	if fault := inspectPayload(args); fault != nil { // the values may refer to themselves
		return fault
	}
	if fault := c.values(reflect.ValueOf(args)); fault != nil {
		return fault
	}
	return nil
}

type shownCheck struct{ open map[reflect.Type]bool }

// value checks the type of a value, and the types of what interfaces in it hold.
func (c shownCheck) value(v reflect.Value) *KeyError {
	if fault := c.typ(v.Type()); fault != nil {
		return fault
	}
	if factsOf(v.Type()).role == plain {
		return nil
	}
	return c.values(v)
}

// values checks the parts of a value.
func (c shownCheck) values(v reflect.Value) *KeyError {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			return c.value(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if fault := c.value(v.Index(i)); fault != nil {
				return fault.within(strconv.Itoa(i))
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if fault := c.value(it.Value()); fault != nil {
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
			if fault := c.value(field); fault != nil {
				return fault.within(m.name)
			}
		}
	}
	return nil
}

// typ checks a type as far as it is known without a value.
func (c shownCheck) typ(t reflect.Type) *KeyError {
	if c.open[t] || hasOwnForm(t) {
		return nil
	}
	c.open[t] = true
	defer delete(c.open, t)
	switch t.Kind() {
	case reflect.Pointer:
		return c.typ(t.Elem())
	case reflect.Slice, reflect.Array, reflect.Map:
		if fault := c.typ(t.Elem()); fault != nil {
			return fault.within("*")
		}
	case reflect.Struct:
		m := membersOf(t)
		if len(m.hidden) > 0 {
			fault := &KeyError{Reason: "JSON does not show this field of " + typeName(t) + ", so two inputs cannot be told apart"}
			return fault.within(m.hidden[0].name)
		}
		for _, shown := range m.shown {
			if fault := c.typ(shown.typ); fault != nil {
				return fault.within(shown.name)
			}
		}
	}
	return nil
}
