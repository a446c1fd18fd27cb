-- Schema 5. Signatures without a time are remembered without an end.

-- signatures: fingerprints of accepted requests whose signature carries no time, so that only this table tells a replay.
-- Written by: the transaction that accepts the message or owes it; the periodic pruning, which keeps the newest 250,000.
-- A crash leaves: nothing; each row is committed with the message it belongs to.
CREATE TABLE signatures (
    key    TEXT PRIMARY KEY,
    inbox  INTEGER,
    outbox INTEGER,
    at     INTEGER NOT NULL,
    CHECK ((inbox IS NULL) <> (outbox IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX signatures_age ON signatures (at);
