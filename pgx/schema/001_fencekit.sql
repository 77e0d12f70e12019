-- +goose Up
-- The schema of package pgxfence, version 1. Running it again changes nothing.
-- The comments with a plus sign are goose's; other tools pass them over.

CREATE SCHEMA IF NOT EXISTS fencekit;

-- The highest token that each resource has been sealed with, and who holds it.
CREATE TABLE IF NOT EXISTS fencekit.fence (
    resource  text COLLATE "C" PRIMARY KEY CHECK (resource <> ''),
    token     bigint NOT NULL CHECK (token > 0),
    owner     text NOT NULL DEFAULT '',
    sealed_at timestamptz NOT NULL DEFAULT now()
);

-- Effects that have happened: at most one for each key and name.
CREATE TABLE IF NOT EXISTS fencekit.ledger (
    key         text COLLATE "C" NOT NULL CHECK (key <> ''),
    name        text COLLATE "C" NOT NULL CHECK (name <> ''),
    resource    text NOT NULL,
    token       bigint NOT NULL,
    encoding    text NOT NULL CHECK (encoding IN ('json', 'raw')),
    result      bytea NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (key, name)
);
CREATE INDEX IF NOT EXISTS ledger_recorded_at ON fencekit.ledger (recorded_at);

-- The epoch of every Redis replication id that has been seen, in order of arrival.
CREATE TABLE IF NOT EXISTS fencekit.epoch (
    replication_id text COLLATE "C" PRIMARY KEY CHECK (replication_id <> ''),
    epoch          bigint NOT NULL UNIQUE CHECK (epoch BETWEEN 1 AND 8191),
    registered_at  timestamptz NOT NULL DEFAULT now()
);

-- seal raises the resource's fence to the token and keeps its row locked until the
-- transaction ends. A lower token, or an equal one of another owner, raises ZF001
-- with the resource's token as detail: the transaction is aborted, so that nobody
-- can overlook it. The token is left in the setting fencekit.sealed, until the
-- transaction ends, for the enforcement trigger.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION fencekit.seal(sealed_resource text, new_token bigint, new_owner text DEFAULT '') RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held   bigint;
    holder text;
    before text := coalesce(current_setting('fencekit.sealed', true), '');
BEGIN
    IF sealed_resource IS NULL OR new_token IS NULL THEN -- which would pass as the same grant
        RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'fencekit.seal: resource and token must not be null';
    END IF;
    -- The same grant again: locking the row is enough, and leaves no dead one behind.
    SELECT f.token, f.owner INTO held, holder FROM fencekit.fence f WHERE f.resource = sealed_resource FOR NO KEY UPDATE;
    IF NOT FOUND OR held <> new_token OR holder IS DISTINCT FROM new_owner THEN
        INSERT INTO fencekit.fence AS f (resource, token, owner)
        VALUES (sealed_resource, new_token, coalesce(new_owner, ''))
        ON CONFLICT (resource) DO UPDATE SET token = excluded.token, owner = excluded.owner, sealed_at = now()
        WHERE f.token < excluded.token
           OR f.token = excluded.token AND f.owner = excluded.owner;
        IF NOT FOUND THEN
            SELECT f.token INTO held FROM fencekit.fence f WHERE f.resource = sealed_resource;
            RAISE EXCEPTION USING ERRCODE = 'ZF001', DETAIL = held::text,
                MESSAGE = format('stale fencing token %s for %s: the store has seen %s', new_token, quote_literal(sealed_resource), held);
        END IF;
    END IF;
    IF before = '' THEN
        before := set_config('fencekit.sealed', new_token::text, true);
    ELSIF NOT new_token::text = ANY (string_to_array(before, ',')) THEN
        before := set_config('fencekit.sealed', before || ',' || new_token::text, true);
    END IF;
END $$;
-- +goose StatementEnd

-- epoch_of returns the epoch of a replication id and gives a new one the next
-- higher. Registrations wait for each other, so two new ids never share an epoch,
-- and the later one has the higher.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION fencekit.epoch_of(id text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_epoch bigint;
BEGIN
    SELECT e.epoch INTO found_epoch FROM fencekit.epoch e WHERE e.replication_id = id;
    IF found_epoch IS NOT NULL THEN
        RETURN found_epoch;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('fencekit.epoch', 0));
    SELECT e.epoch INTO found_epoch FROM fencekit.epoch e WHERE e.replication_id = id;
    IF found_epoch IS NULL THEN
        INSERT INTO fencekit.epoch (replication_id, epoch)
        SELECT id, coalesce(max(e.epoch), 0) + 1 FROM fencekit.epoch e
        RETURNING epoch INTO found_epoch;
    END IF;
    RETURN found_epoch;
END $$;
-- +goose StatementEnd
