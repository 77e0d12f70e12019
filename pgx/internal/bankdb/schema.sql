CREATE TABLE accounts (
    id bigint PRIMARY KEY,
    owner text NOT NULL DEFAULT '',
    balance bigint NOT NULL DEFAULT 0,
    status text NOT NULL DEFAULT 'open',
    fence_token bigint
);
