package primitives

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// probe is a script made of the embedded fragments and some code.
func probe(t *testing.T, include, code string) *script {
	t.Helper()
	files := fstest.MapFS{"lua/probe.lua": {Data: []byte("-- include: " + include + "\n" + code)}}
	lib, err := fs.Glob(luaFiles, "lua/lib/*.lua")
	require.NoError(t, err)
	for _, name := range lib {
		text, err := luaFiles.ReadFile(name)
		require.NoError(t, err)
		files[name] = &fstest.MapFile{Data: text}
	}
	s, err := loadScript(files, "probe")
	require.NoError(t, err)
	return &s
}

// The tokens that scripts mint are the int64 that fence.Pack makes, on every backend.
func TestScriptTokenArithmetic(t *testing.T) {
	behaviour(t, func(e *env) {
		split := probe(e.T, "token", `
			local epoch, low = split_token(ARGV[1])
			return {'ok', string.format('%.0f', epoch), string.format('%.0f', low), join_token(epoch, low)}`)
		rapid.Check(e.T, func(rt *rapid.T) {
			epoch := rapid.OneOf(rapid.Int64Range(0, 8191), rapid.SampledFrom([]int64{0, 1, 8190, 8191})).Draw(rt, "epoch")
			edge := int64(1) << 50
			low := rapid.OneOf(rapid.Int64Range(1, edge-1),
				rapid.SampledFrom([]int64{1, 2, edge - 1, edge - 2, 906842623, 906842624, 906842625, 999999999, 1000000000})).Draw(rt, "low")
			want, err := fence.Pack(epoch, low)
			require.NoError(rt, err)
			r, err := e.store.run(e.ctx(), call{script: split, keys: []string{e.store.names.resource("k").lease()}, args: []any{padded(want)}})
			require.NoError(rt, err)
			f := r.read()
			require.Equal(rt, epoch, f.number())
			require.Equal(rt, low, f.number())
			require.Equal(rt, padded(want), f.text())
		})
	})
}

func TestScriptNextToken(t *testing.T) {
	behaviour(t, func(e *env) {
		next := probe(e.T, "clock token", `
			local t = next_token({tonumber(ARGV[1]), tonumber(ARGV[2])}, tonumber(ARGV[3]), ARGV[4], ARGV[5])
			return {'ok', t or ''}`)
		pack := func(epoch, low int64) fence.Value { return fence.Value(epoch<<50 | low) }
		const start, top = 1767225600, 1<<50 - 1
		for _, c := range []struct {
			name              string
			seconds, micros   int64
			epoch             int64
			last, floor, want fence.Value // want 0: used up
		}{
			{"the clock leads", start + 10, 5, 0, 0, 0, 10_000_005},
			{"the last token leads", start + 10, 5, 0, 20_000_000, 0, 20_000_001},
			{"the floor leads", start + 10, 5, 0, 20_000_000, 30_000_000, 30_000_001},
			{"a tie with the clock", start + 10, 5, 0, 10_000_005, 0, 10_000_006},
			{"a clock before 2026", start - 1000, 0, 0, 0, 0, 1},
			{"a higher epoch starts at the clock", start + 10, 0, 3, pack(2, 99_000_000), 0, pack(3, 10_000_000)},
			{"a lower epoch is not gone back to", start + 10, 0, 1, pack(2, 99_000_000), 0, pack(2, 99_000_001)},
			{"a floor of a higher epoch", start + 10, 0, 0, 5, pack(7, 1), pack(7, 10_000_000)},
			{"low is used up", start + 10, 0, 0, top, 0, pack(1, 0)},
			{"all is used up", start + 10, 0, 8191, pack(8191, top), 0, 0},
		} {
			e.Run(c.name, func(t *testing.T) {
				r, err := e.store.run(t.Context(), call{script: next, keys: []string{e.store.names.resource("k").lease()},
					args: []any{c.seconds, c.micros, c.epoch, padded(c.last), padded(c.floor)}})
				require.NoError(t, err)
				require.Equal(t, c.want, r.read().token())
			})
		}
	})
}

// Every script states what it takes and returns, uses no key that it was not given,
// and includes only fragments that exist.
func TestScriptHeads(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(luaFiles, "lua/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := luaFiles.ReadFile(file)
		require.NoError(t, err)
		name := strings.TrimSuffix(strings.TrimPrefix(file, "lua/"), ".lua")
		head, body, _ := strings.Cut(string(text), "\nlocal ")
		require.True(t, strings.HasPrefix(head, "-- "+name+": "), "%s: head", name)
		for _, part := range []string{"\n-- KEYS  ", "\n-- returns ", "\n-- include: "} {
			require.Contains(t, head, part, name)
		}
		if strings.Contains(body, "ARGV[") {
			require.Contains(t, head, "\n-- ARGV  ", name)
		}
		_, err = loadScript(luaFiles, name)
		require.NoError(t, err)
	}
}

// No script touches a key by a name of its own making (F04): every call on a key
// names one of KEYS, or a parameter that is one.
func TestScriptsTouchOnlyTheirKeys(t *testing.T) {
	t.Parallel()
	calls := regexp.MustCompile(`(?:redis\.p?call|soft)\('([A-Z]+)'(?:, *([^,)]+))?`)
	all, err := fs.Glob(luaFiles, "lua/*.lua")
	require.NoError(t, err)
	lib, err := fs.Glob(luaFiles, "lua/lib/*.lua")
	require.NoError(t, err)
	for _, file := range append(all, lib...) {
		text, err := luaFiles.ReadFile(file)
		require.NoError(t, err)
		found := calls.FindAllStringSubmatch(string(text), -1)
		for _, m := range found {
			if m[1] == "TIME" || m[1] == "PUBLISH" {
				continue
			}
			require.Regexp(t, `^(KEYS\[\d\]|key)$`, m[2], "%s: %s", file, m[0])
		}
	}
}
