package testsuite

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"
)

// runLabel is the profiling label of a run's goroutines. The runtime hands it on to
// those that they start, whatever becomes of the context.
const runLabel = "fencekit-run"

func (r *Run) label() string { return fmt.Sprintf("%p", r) }

// turn is a while in which other goroutines come to run. What is waited for is counted
// in turns, not in time, so that a process that is stopped or starved does not miss it.
const turn = time.Millisecond

// lingering is how many turns goroutines that the body has started may take to end after
// it.
const lingering = 250

// outlive returns where the goroutines stand that the body has started and that do not
// end after it. It waits for them a while, so that what they still send is seen.
func (r *Run) outlive() []string {
	homes := r.kit.homes(r.call.fn)
	var left []string
	for range lingering {
		if left = labelled(r.label(), homes); len(left) == 0 {
			break
		}
		time.Sleep(turn)
	}
	return left
}

// holding is how many turns a step of another goroutine than the body's is held back.
const holding = 25

// holdBack lets the body return first, if it does not wait for the goroutine that calls:
// a write that races with the return is then seen to come after it.
func (r *Run) holdBack() {
	if !r.call.held {
		return
	}
	r.mu.Lock()
	other := r.phase == InBody && r.goroutine != goroutineID()
	r.mu.Unlock()
	if !other {
		return
	}
	for range holding {
		select {
		case <-r.returned:
			return
		case <-time.After(turn):
		}
	}
}

// letRun lets goroutines send what they are about to, before the body's context ends and
// they only fail: another time they may be faster.
func letRun() {
	for range holding {
		time.Sleep(turn)
	}
}

// goroutineID is the number of the calling goroutine, for comparing only.
func goroutineID() string {
	var b [64]byte
	fields := strings.Fields(string(b[:runtime.Stack(b[:], false)]))
	return fields[1]
}

// labelled reads the profile of goroutines. Those of libraries, which a pool or a client
// starts for itself, are no concern of the body's.
func labelled(label string, homes []string) (left []string) {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return nil
	}
	for group := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(group, `"`+runLabel+`":"`+label+`"`) {
			continue
		}
		if where := ownFrame(group, homes); where != "" {
			left = append(left, where)
		}
	}
	return left
}

// ownFrame is the innermost frame of the activities' own code in a goroutine, or nothing
// if it has none. A line reads "#	0x47	package.function+0x1	/path/file.go:12".
func ownFrame(group string, homes []string) string {
	for line := range strings.Lines(group) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != "#" || library(fields[2]) {
			continue
		}
		for _, home := range homes {
			if strings.HasPrefix(fields[2], home) {
				return shortPath(fields[3])
			}
		}
	}
	return ""
}

// homes are the modules that the activities are from, as far as names of functions tell:
// host, owner and repository.
func (k *Kit) homes(fn any) (homes []string) {
	all := []any{fn}
	for _, r := range k.registrations() {
		all = append(all, r.activity)
	}
	for _, a := range all {
		if path := packageOf(a); path != "" {
			homes = append(homes, moduleOf(path))
		}
	}
	return homes
}

func packageOf(a any) string {
	v := reflect.ValueOf(a)
	switch {
	case !v.IsValid() || v.Kind() == reflect.String:
		return ""
	case v.Kind() == reflect.Func:
		return runtime.FuncForPC(v.Pointer()).Name()
	case v.Kind() == reflect.Pointer:
		return v.Type().Elem().PkgPath() + "."
	}
	return v.Type().PkgPath() + "."
}

func moduleOf(path string) string {
	parts := strings.SplitN(path, "/", 4)
	if len(parts) > 3 && strings.Contains(parts[0], ".") {
		return strings.Join(parts[:3], "/") + "/"
	}
	name, _, _ := strings.Cut(parts[len(parts)-1], ".")
	return strings.Join(append(parts[:len(parts)-1:len(parts)-1], name), "/")
}

func shortPath(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) > 2 {
		parts = parts[len(parts)-2:]
	}
	return strings.Join(parts, "/")
}
