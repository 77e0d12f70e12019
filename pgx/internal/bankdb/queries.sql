-- name: GetAccount :one
SELECT id, balance FROM accounts WHERE id = $1;

-- name: AddToBalance :one
UPDATE accounts SET balance = balance + sqlc.arg(amount) WHERE id = sqlc.arg(id) RETURNING balance;

-- name: SetBalanceFenced :execrows
UPDATE accounts SET balance = sqlc.arg(balance), fence_token = sqlc.arg(token)::bigint
WHERE id = sqlc.arg(id) AND coalesce(fence_token, 0) <= sqlc.arg(token)::bigint;
