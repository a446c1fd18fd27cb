-- Schema 4. Old sessions are archived.

-- archives: archived sessions, and sessions being deleted.
-- Written by: retention, in the transaction that deletes the session, after the archive file was synced and verified
-- (`removing`), and after the last message row is deleted (not `removing`); a restore (deletes the row).
-- A crash leaves: `removing` rows, whose messages the next pass deletes. `file` is NULL for a deletion without archive.
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
