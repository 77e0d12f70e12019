package testsuite

import (
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

// source is the innermost line on the stack that is the caller's code, and whether the
// guard stands closer than that.
func source() (line string, guards bool) {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, module+"primitives.(*guarded)") || strings.HasPrefix(f.Function, module+"primitives.(*Guard)") ||
			strings.HasPrefix(f.Function, module+"primitives.(*keeper)") {
			guards = true
		}
		if !library(f.Function) {
			if guards {
				return "", true
			}
			return at(f), false
		}
		if !more {
			return "", true
		}
	}
}

func library(function string) bool {
	for _, prefix := range libraries {
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
