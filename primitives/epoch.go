package primitives

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// EpochStore makes tokens strict. It gives every Redis replication id (master_replid)
// that it has not seen before a higher epoch than all before it, once and for good, and
// outlives Redis: package pgxfence has one in Postgres.
//
// Redis draws a new replication id when it starts without data and when a replica is
// promoted. So a promoted replica whose clock is an hour behind grants higher tokens all
// the same, and an old primary that still answers in a split brain only lower ones.
type EpochStore interface {
	// Epoch returns the epoch of a replication id, from 1 to 8191. Any number of
	// processes may ask at a time.
	Epoch(ctx context.Context, replicationID string) (int64, error)
}

// epochs are the epochs that this process knows, as scripts take them.
type epochs struct {
	store EpochStore // nil: tokens are not strict

	mu   sync.RWMutex
	list []string // "ID EPOCH", oldest first
}

// maxEpochs bounds what is sent with each call. An id that is forgotten is asked for
// again.
const maxEpochs = 64

func (e *epochs) known() string {
	if e.store == nil {
		return "0"
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	return strings.Join(e.list, " ")
}

// register learns the epoch of a replication id that Redis has told us of. The id that
// it follows is registered before it: the old primary may not have granted anything
// under that yet, and must not be taken for the newer one when it does.
func (e *epochs) register(ctx context.Context, id, follows string) error {
	for _, id := range []string{follows, id} {
		if id == follows && strings.Trim(id, "0") == "" { // it follows none
			continue
		}
		epoch, err := e.ask(ctx, id)
		if err != nil {
			return err
		}
		e.learn(id, epoch)
	}
	return nil
}

func (e *epochs) ask(ctx context.Context, id string) (int64, error) {
	if e.store == nil || id == "" || strings.Trim(id, "0123456789abcdef") != "" {
		return 0, &CorruptError{"the reply about its replication", fmt.Sprintf("%q is not a replication id", id)}
	}
	epoch, err := e.store.Epoch(ctx, id)
	if err == nil && (epoch < 1 || epoch > maxEpoch) {
		err = fmt.Errorf("the epoch store answered %d, which is outside 1 to 8191", epoch)
	}
	if err != nil {
		return 0, &UnavailableError{"epoch", err}
	}
	return epoch, nil
}

func (e *epochs) learn(id string, epoch int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := id + " " + strconv.FormatInt(epoch, 10)
	if !slices.Contains(e.list, known) {
		e.list = append(e.list, known)
		e.list = e.list[max(0, len(e.list)-maxEpochs):]
	}
}
