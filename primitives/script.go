package primitives

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names scripts by SHA-1
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

//go:embed lua/*.lua lua/lib/*.lua
var luaFiles embed.FS

// script is one Lua script: its text with the fragments that it includes in
// front, and the SHA-1 by which the server knows it.
type script struct {
	name string
	src  string
	sha  string
}

var (
	scriptLine  = regexp.MustCompile(`can't .*@user_script: ?(\d+)`)
	commandCall = regexp.MustCompile(`call\('([A-Z]+)'`)
)

// explain adds the command to a refusal by an ACL that only names the line of the
// script, as Redis does before version 7.2.
func (s *script) explain(err error) error {
	m := scriptLine.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	n, _ := strconv.Atoi(m[1])
	lines := strings.Split(s.src, "\n")
	if n < 1 || n > len(lines) {
		return err
	}
	if command := commandCall.FindStringSubmatch(lines[n-1]); command != nil {
		return fmt.Errorf("%w (%s)", err, command[1])
	}
	return err
}

// scripts are all scripts of the protocol, one .lua file each. Their heads state
// KEYS, ARGV and returns.
type scripts struct {
	acquire, renew, release               script
	begin, complete, abort, suspend       script
	recordBegin, recordRead, recordForget script
	resolve                               script
	leaseRead, leaseFree, tokenRaise      script
	gate, gateRead                        script
}

// embeddedScripts are the scripts as compiled in, assembled once.
var embeddedScripts = sync.OnceValues(func() (*scripts, error) { return newScripts(luaFiles) })

func newScripts(files fs.FS) (*scripts, error) {
	var s scripts
	for name, dst := range map[string]*script{
		"acquire": &s.acquire, "renew": &s.renew, "release": &s.release,
		"begin": &s.begin, "complete": &s.complete, "abort": &s.abort, "suspend": &s.suspend,
		"record_begin": &s.recordBegin, "record_read": &s.recordRead, "record_forget": &s.recordForget, "resolve": &s.resolve,
		"lease_read": &s.leaseRead, "lease_free": &s.leaseFree, "token_raise": &s.tokenRaise,
		"gate": &s.gate, "gate_read": &s.gateRead,
	} {
		var err error
		if *dst, err = loadScript(files, name); err != nil {
			return nil, err
		}
	}
	return &s, nil
}

// loadScript assembles one script. A line "-- include: a b" stands for the fragments
// of these names under lua/lib. It stands where they are needed first: Redis makes
// every function anew at each call, so the common way through a script comes before
// what it does not need.
func loadScript(files fs.FS, name string) (script, error) {
	body, err := fs.ReadFile(files, "lua/"+name+".lua")
	if err != nil {
		return script{}, fmt.Errorf("primitives: script %s: %w", name, err)
	}
	var src strings.Builder
	for line := range strings.Lines(string(body)) {
		list, ok := strings.CutPrefix(line, "-- include: ")
		if !ok {
			src.WriteString(line)
			continue
		}
		for _, part := range strings.Fields(list) {
			text, err := fs.ReadFile(files, "lua/lib/"+part+".lua")
			if err != nil {
				return script{}, fmt.Errorf("primitives: script %s: %w", name, err)
			}
			src.Write(text)
		}
	}
	return newScript(name, src.String()), nil
}

func newScript(name, src string) script {
	sum := sha1.Sum([]byte(src)) //nolint:gosec // see the import
	return script{name: name, src: src, sha: hex.EncodeToString(sum[:])}
}
