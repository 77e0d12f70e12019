package testsuite

import (
	"iter"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
)

const module = "github.com/fencekit/fencekit-go/"

// libraries are what stands between the caller's code and what it sends.
var libraries = []string{
	"runtime.", "github.com/jackc/", "github.com/redis/", "go.temporal.io/", "net/http.", "database/sql.", "reflect.", "sync.",
	module + "pgx.", module + "primitives.", module + "interceptor.", module + "testsuite.", "runtime/pprof.",
}

// own are the parts of the kit that send something for themselves.
var own = []string{
	module + "primitives.(*guarded)", module + "primitives.(*Guard)", module + "primitives.(*keeper)", module + "interceptor.(*call)",
}

// bodyEntry is where the guard is left behind, on the way into the body.
const bodyEntry = module + "testsuite.(*bodyInbound)"

// source is the innermost line on the stack that is the caller's code, and whether the
// guard stands closer than that, and package primitives, be it for the guard or not. A goroutine may have neither: it is the caller's then,
// by who has started it.
func source() (line string, guards, kits bool) {
	for f := range stack() {
		kits = kits || strings.HasPrefix(f.Function, module+"primitives.")
		switch {
		case hasPrefix(f.Function, own):
			guards = true
		case strings.HasPrefix(f.Function, bodyEntry):
			return "", guards, kits
		case !library(f.Function):
			if guards {
				return "", true, kits
			}
			return at(f), false, kits
		}
	}
	if guards {
		return "", true, kits
	}
	return startedAt(), false, kits
}

// stack are the frames of who called source, however many.
func stack() iter.Seq[runtime.Frame] {
	return func(yield func(runtime.Frame) bool) {
		pcs := make([]uintptr, 64)
		n := runtime.Callers(4, pcs)
		for n == len(pcs) {
			pcs = make([]uintptr, 2*len(pcs))
			n = runtime.Callers(4, pcs)
		}
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			if f, more = frames.Next(); !yield(f) {
				return
			}
		}
	}
}

// startedAt is the line that has started the calling goroutine. A trace ends with
// "created by package.function in goroutine 7\n\t/path/file.go:12 +0x1d".
func startedAt() string {
	trace := make([]byte, 64<<10)
	_, creator, _ := strings.Cut(string(trace[:runtime.Stack(trace, false)]), "created by ")
	_, line, _ := strings.Cut(creator, "\n\t")
	line, _, _ = strings.Cut(line, " ")
	return shortPath(strings.TrimSpace(line))
}

func library(function string) bool { return hasPrefix(function, libraries) }

func hasPrefix(function string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// at is a frame as file:line, with the folder that the file is in.
func at(f runtime.Frame) string {
	return filepath.Join(filepath.Base(filepath.Dir(f.File)), filepath.Base(f.File)) + ":" + strconv.Itoa(f.Line)
}

func functionName(fn any) string {
	full := runtime.FuncForPC(reflect.ValueOf(fn).Pointer()).Name()
	return strings.TrimSuffix(full[strings.LastIndexByte(full, '.')+1:], "-fm")
}
