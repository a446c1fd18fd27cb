-- Schema 5. Signatures without a timestamp are kept without a time limit.

-- signatures: fingerprints of requests whose signature has no timestamp, so that only this table detects a replay.
-- Written by: the transaction that accepts or enqueues the message; the periodic pruning, which keeps the newest 250,000.
-- A crash leaves: nothing partial; each row is committed with its message.
CREATE TABLE signatures (
    key    TEXT PRIMARY KEY,
    inbox  INTEGER,
    outbox INTEGER,
    at     INTEGER NOT NULL,
    CHECK ((inbox IS NULL) <> (outbox IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX signatures_age ON signatures (at);
