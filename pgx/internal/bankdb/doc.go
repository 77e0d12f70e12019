// Package bankdb is what sqlc makes of schema.sql and queries.sql; the tests of
// pgxfence run it in sealed transactions. Regenerate it with sqlc 1.30:
//
//	sqlc generate
package bankdb
