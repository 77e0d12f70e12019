package pgxfence

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit-go/primitives/fence"
)

// SchemaVersion is the version of the schema fencekit that this code needs. A newer
// one in the database is fine.
const SchemaVersion = 1

//go:embed schema/*.sql
var schemaFiles embed.FS

// Schema holds the SQL files that make up the schema fencekit, for a migration tool
// such as tern, goose or atlas: numbered, idempotent, one schema of their own. See
// [Migrate] for doing it by one call.
func Schema() fs.FS {
	sub, err := fs.Sub(schemaFiles, "schema")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return sub
}

// Migrate brings the schema fencekit up to [SchemaVersion], in one transaction,
// after whoever else is doing so. If it is there already nothing is run, so a role
// without any right to create will do.
func Migrate(ctx context.Context, conn Beginner) error {
	err := CheckSchema(ctx, conn)
	if !errors.Is(err, ErrSchema) {
		return err
	}
	return pgx.BeginFunc(ctx, beginner{conn}, func(tx pgx.Tx) error {
		for _, sql := range []string{
			"SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('fencekit.migrate', 0))",
			// Makes the session hear of a schema that was created while it waited:
			// CREATE SCHEMA IF NOT EXISTS alone would go by what it remembers.
			"SELECT FROM pg_catalog.pg_namespace LIMIT 1",
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return runFiles(ctx, tx)
	})
}

// beginner makes pgx.BeginFunc work on a [Beginner].
type beginner struct{ Beginner }

// Begin is BeginTx without options.
func (b beginner) Begin(ctx context.Context) (pgx.Tx, error) { return b.BeginTx(ctx, pgx.TxOptions{}) }

func runFiles(ctx context.Context, tx pgx.Tx) error {
	names, err := fs.Glob(schemaFiles, "schema/*.sql")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(schemaFiles, name)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, string(text), pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("pgxfence: %s: %w", name, err)
		}
	}
	return nil
}

// CheckSchema returns [ErrSchema] if the schema fencekit is not there, is older
// than this code needs, or is out of the role's reach: call it when the program
// starts.
func CheckSchema(ctx context.Context, db Querier) error {
	return attempt(ctx, db, func(s *session) error {
		have, found := 0, false
		_, err := s.query(ctx, statement{sql: "SELECT fencekit.version()"}, fence.Token{}, readOne(&have, &found, pgx.RowTo))
		switch {
		case stateOf(err) == "42501":
			return fmt.Errorf("%w: the role lacks USAGE on it: %w", ErrSchema, err)
		case err != nil:
			return err
		case have < SchemaVersion:
			return fmt.Errorf("%w: it has version %d, this code needs %d: run Migrate", ErrSchema, have, SchemaVersion)
		}
		return nil
	})
}
