-- No fence column: Once needs none.
CREATE TABLE IF NOT EXISTS saga_accounts (
    name text PRIMARY KEY,
    balance bigint NOT NULL DEFAULT 0,
    closed boolean NOT NULL DEFAULT false,
    reachable boolean NOT NULL DEFAULT true
);
