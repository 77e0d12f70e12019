-- No fence column: Once needs none.
CREATE TABLE IF NOT EXISTS ledger_accounts (
    name text PRIMARY KEY,
    balance bigint NOT NULL DEFAULT 0
);
