-- How far each batch has come. The fence column is all that the kit asks for.
CREATE TABLE batches (
    id text PRIMARY KEY,
    done integer NOT NULL DEFAULT 0,
    cents bigint NOT NULL DEFAULT 0,
    worker text,
    fence_token bigint
);

-- What was paid. Nothing in it keeps an invoice from being paid twice, on purpose.
CREATE TABLE payouts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch text NOT NULL REFERENCES batches,
    invoice integer NOT NULL,
    cents bigint NOT NULL,
    worker text NOT NULL
);
