package interceptor_test

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit-go/internal/devstack"
	pgxfence "github.com/fencekit/fencekit-go/pgx"
	"github.com/fencekit/fencekit-go/primitives/fence"
)

// The Postgres for all tests, and the template of their databases.
var (
	sharedPostgres = devstack.Shared(func(ctx context.Context) (*devstack.Postgres, error) {
		return devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	})
	bankTemplate = sync.OnceValues(func() (string, error) {
		s, err := sharedPostgres()
		if err != nil {
			return "", err
		}
		ctx := context.Background()
		name, err := s.CreateDatabase(ctx, "")
		if err != nil {
			return "", err
		}
		conn, err := pgx.Connect(ctx, s.URL(name))
		if err != nil {
			return "", err
		}
		if err = pgxfence.Migrate(ctx, conn); err == nil {
			_, err = conn.Exec(ctx, `
				CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL, owner text NOT NULL, fence_token bigint);
				INSERT INTO accounts VALUES (1, 0, 'nobody', NULL)`)
		}
		return name, errors.Join(err, conn.Close(ctx))
	})
)

var accounts = pgxfence.Table{Name: pgx.Identifier{"accounts"}}

// bank is a database of a test's own, with one account.
type bank struct {
	*pgxpool.Pool

	e *env
}

func (e *env) bank() *bank {
	e.Helper()
	template, err := bankTemplate()
	require.NoError(e, err)
	s, err := sharedPostgres()
	require.NoError(e, err)
	pool, err := pgxpool.New(context.Background(), s.URL(s.DatabaseForTest(e, template)))
	require.NoError(e, err)
	e.Cleanup(pool.Close)
	return &bank{Pool: pool, e: e}
}

// sign writes a name into the account, under the token in ctx.
func (b *bank) sign(ctx context.Context, name string) error {
	return accounts.Update(ctx, b.Pool, pgxfence.Change{
		Key: pgxfence.Values{"id": int64(1)}, Set: pgxfence.Values{"owner": name}})
}

// signInTx is sign in a sealed transaction.
func (b *bank) signInTx(ctx context.Context, name string) error {
	return pgxfence.InTx(ctx, b.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE accounts SET owner = $1 WHERE id = 1`, name)
		return err
	})
}

// deposit adds to the balance, once for each key.
func (b *bank) deposit(ctx context.Context, key string) (string, error) {
	r, err := pgxfence.Once(ctx, b.Pool, pgxfence.Effect{Key: key, Name: "deposit"}, func(tx pgx.Tx) (string, error) {
		_, err := tx.Exec(ctx, `UPDATE accounts SET balance = balance + 100 WHERE id = 1`)
		return "deposited", err
	})
	return r.Value, err
}

// account is what stands in the account.
func (b *bank) account() (balance int64, owner string) {
	b.e.Helper()
	require.NoError(b.e, b.QueryRow(b.e.Context(), `SELECT balance, owner FROM accounts`).Scan(&balance, &owner))
	return balance, owner
}

// raise has the account remember a token.
func (b *bank) raise(token fence.Value) {
	b.e.Helper()
	_, err := b.Exec(b.e.Context(), `UPDATE accounts SET fence_token = $1`, int64(token))
	require.NoError(b.e, err)
}
