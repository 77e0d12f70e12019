CREATE TABLE IF NOT EXISTS sqlc_accounts (
    name text PRIMARY KEY,
    balance bigint NOT NULL DEFAULT 0,
    status text NOT NULL DEFAULT 'open'
);
