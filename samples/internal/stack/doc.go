// Package stack gives the samples their servers: those that TEMPORAL_ADDRESS,
// REDIS_URL and DATABASE_URL name, and for what is not named the project's dev stack,
// which starts real servers as child processes. A program of your own needs nothing of
// this: it dials Temporal, Redis and Postgres as ever.
package stack
