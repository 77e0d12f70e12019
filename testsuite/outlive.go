package testsuite

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"strings"
	"time"
)

// runLabel is the profiling label of a run's goroutines. The runtime hands it on to
// those that they start, whatever becomes of the context.
const runLabel = "fencekit-run"

func (r *Run) label() string { return fmt.Sprintf("%p", r) }

// lingering is how long goroutines that the body has started may take to end after it.
const lingering = 250 * time.Millisecond

// outlive returns where the goroutines stand that the body has started and that do not
// end after it. It waits for them a while, so that what they still send is seen.
func (r *Run) outlive() []string {
	for until := time.Now().Add(lingering); ; time.Sleep(time.Millisecond) {
		left := labelled(r.label())
		if len(left) == 0 || time.Now().After(until) {
			return left
		}
	}
}

// labelled reads the profile of goroutines. Those of libraries, which a pool starts for
// itself, are no concern of the body's.
func labelled(label string) (left []string) {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return nil
	}
	for group := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(group, `"`+runLabel+`":"`+label+`"`) {
			continue
		}
		if where := ownFrame(group); where != "" {
			left = append(left, where)
		}
	}
	return left
}

// ownFrame is the innermost frame of the caller's code in a goroutine, or nothing if it
// has none. A line reads "#	0x47	package.function+0x1	/path/file.go:12".
func ownFrame(group string) string {
	for line := range strings.Lines(group) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != "#" {
			continue
		}
		function, _, _ := strings.Cut(fields[2], "+0x")
		if !library(function) && !standard(function) && !strings.Contains(line, "labels:") {
			return shortPath(fields[3])
		}
	}
	return ""
}

// standard reports whether a function is of the standard library: its path has no dot
// before the first slash, and it is none of ours.
func standard(function string) bool {
	first, _, more := strings.Cut(function, "/")
	if more {
		return !strings.Contains(first, ".")
	}
	pkg, _, _ := strings.Cut(function, ".")
	return pkg != "main" && !strings.HasSuffix(pkg, "_test") && standardPackages[pkg]
}

var standardPackages = map[string]bool{
	"runtime": true, "time": true, "sync": true, "net": true, "context": true, "io": true, "os": true, "bufio": true,
	"syscall": true, "errors": true, "fmt": true, "reflect": true, "bytes": true, "strings": true, "testing": true,
}

func shortPath(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) > 2 {
		parts = parts[len(parts)-2:]
	}
	return strings.Join(parts, "/")
}
