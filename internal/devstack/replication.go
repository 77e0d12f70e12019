package devstack

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// roleOf is "master" or "slave", by the server's own word.
func roleOf(ctx context.Context, r *Redis) (string, error) {
	fields, err := infoFields(ctx, r)
	return fields["role"], err
}

// replicasOnline succeeds when primary streams to count replicas.
func replicasOnline(ctx context.Context, primary *Redis, count int) error {
	fields, err := infoFields(ctx, primary)
	if err != nil {
		return err
	}
	online := 0
	for i := range count {
		if strings.Contains(fields["slave"+strconv.Itoa(i)], "state=online") {
			online++
		}
	}
	if fields["role"] != "master" || online < count {
		return fmt.Errorf("%s is a %s with %d of %d replicas online", primary.Addr(), fields["role"], online, count)
	}
	return nil
}

// followerOf succeeds when r is a replica of primary and in step with it.
func followerOf(ctx context.Context, r, primary *Redis) error {
	fields, err := infoFields(ctx, r)
	if err != nil {
		return err
	}
	got := fields["role"] + " of " + fields["master_port"] + ", link " + fields["master_link_status"]
	want := "slave of " + strconv.Itoa(primary.node.port) + ", link up"
	if got != want {
		return fmt.Errorf("%s is %q, not yet %q", r.Addr(), got, want)
	}
	return nil
}

// infoFields reads the replication section of INFO.
func infoFields(ctx context.Context, r *Redis) (map[string]string, error) {
	text, err := r.control().Info(ctx, "replication").Result()
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, err
}
