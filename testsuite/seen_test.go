package testsuite_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/interceptor"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/testsuite"
)

// proveBody proves a body fenced, and returns what the proof says.
func proveBody(t *testing.T, db *pgxpool.Pool, of func(s *shop) body) *fakeT {
	t.Helper()
	return tried(func(f *fakeT) {
		s := newShop(f, db)
		s.kit.Guard(interceptor.For("settle", policy()))
		s.kit.Register(of(s), registerAs("settle"))
		testsuite.ProveFenced(f, s.kit, testsuite.Proof{
			Activity: "settle", Input: order{Account: 1, Amount: 10, ID: "a"}, Reset: s.reset, State: s.state,
		})
	})
}

func exec(sql string) func(s *shop) body {
	return func(s *shop) body {
		return func(ctx context.Context, _ order) error {
			_, err := s.pool.Exec(ctx, sql)
			return err
		}
	}
}

const raw = "UPDATE accounts SET status = 'settled' WHERE id = 1"

// An activity that the kit does not see cannot be proved.
func TestWritesPastTheKit(t *testing.T) {
	t.Parallel()
	for name, reads := range map[string]bool{"and sends nothing else": false, "and reads through it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			f := proveBody(t, db, func(s *shop) body {
				return func(ctx context.Context, o order) error {
					if reads {
						if _, err := read(ctx, s, o); err != nil {
							return err
						}
					}
					_, err := db.Exec(ctx, raw) // the test's pool, not the kit's
					return err
				}
			})
			requireFails(t, f, "cause: the activity writes past the kit: give it Kit.Pool, Kit.Redis")
		})
	}
	requireFails(t, proveBody(t, database(t), func(*shop) body {
		return func(context.Context, order) error { return nil }
	}), "sends nothing through the kit")
}

// A write is called what it is.
func TestCauses(t *testing.T) {
	t.Parallel()
	for sql, cause := range map[string]string{
		"WITH u AS (" + raw + " RETURNING 1) SELECT count(*) FROM u": "cause: unfenced write",
		"BEGIN; " + raw + "; COMMIT":                                 "cause: unfenced write",
		"DELETE FROM marks WHERE false":                              "cause: unfenced write", // it changes nothing, and nobody refuses it
	} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			requireFails(t, proveBody(t, database(t), func(s *shop) body {
				return func(ctx context.Context, o order) error {
					if err := exec(sql)(s)(ctx, o); err != nil {
						return err
					}
					return settled(s)(ctx, o)
				}
			}), cause)
		})
	}
}

// A write that finds nothing to change any more was not refused.
func TestUnfencedIsNotRefused(t *testing.T) {
	t.Parallel()
	f := proveBody(t, database(t), exec(raw+" AND status <> 'settled'"))
	requireFails(t, f, "cause: unfenced write")
}

// Statements that change something and do not look like it are writes.
func TestWritesUntold(t *testing.T) {
	t.Parallel()
	const procedure = `CREATE PROCEDURE settle() LANGUAGE sql AS $$ ` + raw + ` $$`
	for _, sql := range []string{
		"DO $$ BEGIN " + raw + "; END $$", "/* now */ CALL settle()", "TRUNCATE marks",
		"CREATE TABLE IF NOT EXISTS copied AS SELECT * FROM marks", "DROP TABLE IF EXISTS copied2; SELECT 'do' AS x INTO copied2",
	} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			_, err := db.Exec(t.Context(), procedure)
			require.NoError(t, err)
			run := func(f *fakeT, of func(s *shop) body) {
				s := newShop(f, db)
				s.kit.Guard(interceptor.For("settle", policy()))
				s.kit.Register(of(s), registerAs("settle"))
				reset := func(ctx context.Context) error {
					_, err := db.Exec(ctx, "DROP TABLE IF EXISTS copied, copied2")
					return errors.Join(err, s.reset(ctx))
				}
				testsuite.ProveFenced(f, s.kit, testsuite.Proof{Activity: "settle", Input: order{Account: 1}, Reset: reset, State: s.state})
			}
			f := tried(func(f *fakeT) { run(f, exec(sql)) })
			requireFails(t, f, "cause: unfenced write")
		})
	}
	// The same under a seal, and what only reads.
	requirePasses(t, proveBody(t, database(t), func(s *shop) body {
		return func(ctx context.Context, o order) error {
			for _, sql := range []string{"SELECT 'do; call x' AS truncate -- ; do", "CREATE TEMP TABLE IF NOT EXISTS mine AS SELECT 1"} {
				if err := exec(sql)(s)(ctx, o); err != nil {
					return err
				}
			}
			return pgxfence.InTx(ctx, s.pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "DO $$ BEGIN "+raw+"; END $$")
				return err
			})
		}
	}))
}

// A caller's own script is none of the kit's, whatever it answers.
func TestOwnScripts(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"'ok'", "{'ok'}", "{'stale'}", "{'passed'}"} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			requireFails(t, proveBody(t, database(t), func(s *shop) body {
				return func(ctx context.Context, _ order) error {
					return s.kit.Redis().Eval(ctx, "redis.call('INCR', KEYS[1]) return "+answer, []string{s.kit.Prefix() + ":n"}).Err()
				}
			}), "cause: unfenced write", "primitives.Gate")
		})
	}
}

func TestNoGuardNamesIt(t *testing.T) {
	t.Parallel()
	s := newShop(t, database(t))
	s.kit.Guard(interceptor.For("settel", policy()))
	s.kit.Register(settled(s), registerAs("settle"))
	f := tried(func(f *fakeT) {
		testsuite.ProveFenced(f, s.kit, testsuite.Proof{Activity: "settle", Input: order{Account: 1}, Reset: s.reset, State: s.state})
	})
	requireFails(t, f, "cause: no guard names this activity")
	require.NotContains(t, f.text, "background context")
}
