-- name: CreateAccount :exec
INSERT INTO sqlc_accounts (name, balance) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: GetAccount :one
SELECT * FROM sqlc_accounts WHERE name = $1;

-- name: AddToBalance :one
UPDATE sqlc_accounts SET balance = balance + sqlc.arg(cents) WHERE name = sqlc.arg(name) RETURNING balance;

-- name: SetStatus :exec
UPDATE sqlc_accounts SET status = sqlc.arg(status) WHERE name = sqlc.arg(name);
