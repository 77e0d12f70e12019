// Package docs holds no code: its tests keep the project's documents true.
package docs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
)

const root = "../.."

// documents are all Markdown files of the project, by path from its root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		texts[path] = string(text)
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, texts)
	return texts
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notSlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// slugs are the anchors of a document as they are on the web.
func slugs(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		found[strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	texts := documents(t)
	for path, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
				require.FileExists(t, strings.TrimSuffix(file, "/"), "%s links to %s", path, m[1])
			}
			if anchor != "" {
				require.Contains(t, slugs(texts[file]), anchor, "%s links to %s", path, m[1])
			}
		}
	}
}

var testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Za-z0-9_]+)`")

// Each guarantee names its tests; a test that is renamed must be renamed there too.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	require.NoError(t, err)
	for path, text := range documents(t) {
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			require.Contains(t, code.String(), "func "+m[1]+"(", "%s names %s", path, m[1])
		}
	}
}

// The README's quick start is compiled with the interceptor's examples.
func TestReadmeQuickStart(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	source, err := os.ReadFile(filepath.Join(root, "interceptor", "example_readme_test.go"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(source), "// README: begin\n")
	require.True(t, found)
	snippet, _, found := strings.Cut(rest, "\n// README: end")
	require.True(t, found)
	require.Contains(t, string(readme), "```go\n"+snippet+"```")
}

var program = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")

// The README's program runs, and run again it replays.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	r := devstack.RedisForTest(t)
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	m := program.FindSubmatch(text)
	require.NotNil(t, m, "README.md has a Go program")
	const address, prefix = `"127.0.0.1:6379"`, `"shop"`
	source := string(m[1])
	require.Contains(t, source, address)
	require.Contains(t, source, prefix)
	source = strings.NewReplacer(address, `"`+r.Addr()+`"`, prefix, `"`+filepath.Base(t.TempDir())+t.Name()+`", Timeout: 60e9`).Replace(source)

	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	first, second := run(t, file), run(t, file)
	require.Regexp(t, `^charged under token \d+ <nil>\n$`, first)
	require.Equal(t, first, second)
}

func run(t *testing.T, file string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "run", file)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}
