package compose

import (
	"context"
	"regexp"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func load(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../../docker-compose.yml"})
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

var pinned = regexp.MustCompile(`^[a-z/]+:\d+\.\d+(\.\d+)?$`)

// Every service is of a pinned version, says when it is healthy, and is reachable from
// this machine only.
func TestComposeFile(t *testing.T) {
	project := load(t)
	if names := project.ServiceNames(); !slices.Equal(names, []string{"postgres", "redis", "temporal"}) {
		t.Errorf("services are %v", names)
	}
	for name, s := range project.Services {
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %s names no version", name, s.Image)
		}
		if s.HealthCheck == nil || len(s.HealthCheck.Test) == 0 || s.HealthCheck.Disable {
			t.Errorf("%s has no health check", name)
		}
		if len(s.Ports) == 0 {
			t.Errorf("%s has no port", name)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to %q", name, p.Published, p.HostIP)
			}
		}
	}
}

// Redis neither evicts nor forgets.
func TestRedisKeepsWhatItIsGiven(t *testing.T) {
	command := load(t).Services["redis"].Command
	for _, want := range [][]string{{"--maxmemory-policy", "noeviction"}, {"--appendonly", "yes"}} {
		at := slices.Index(command, want[0])
		if at < 0 || at+1 >= len(command) || command[at+1] != want[1] {
			t.Errorf("redis runs as %v, without %v", command, want)
		}
	}
}
