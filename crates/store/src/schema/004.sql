-- Schema 4. Conversations leave the database when they are old.

-- archives: conversations that were archived, or are being deleted.
-- Written by: retention, in the transaction that takes the session out, after the archive file was synced and verified
-- (`removing`); when the last message row is gone (not `removing`); a restore (deletes the row).
-- A crash leaves: `removing` rows, whose messages the next pass deletes. `file` is NULL for one that is only deleted.
CREATE TABLE archives (
    session     TEXT PRIMARY KEY,
    session_key TEXT    NOT NULL,
    title       TEXT,
    messages    INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,
    file        TEXT,
    bytes       INTEGER NOT NULL,
    archived_at INTEGER NOT NULL,
    last_row    INTEGER NOT NULL,
    removing    INTEGER NOT NULL DEFAULT 1 CHECK (removing IN (0, 1))
) STRICT, WITHOUT ROWID;
CREATE INDEX archives_removing ON archives (archived_at) WHERE removing = 1;
CREATE INDEX archives_age ON archives (archived_at);
CREATE INDEX topics_age ON topics (made_at);
