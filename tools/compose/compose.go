// Package compose holds no code: its test reads docker-compose.yml as docker compose
// does, in a module of its own for what that depends on.
package compose
