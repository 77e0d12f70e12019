// Package bankdb is what sqlc makes of schema.sql and queries.sql. It knows nothing of
// fences. Regenerate it with sqlc 1.30:
//
//	sqlc generate
package bankdb
