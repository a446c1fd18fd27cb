-- rate_limits: waits that platforms imposed (HTTP 429, flood control). `scope` says which requests wait: all of the
-- platform, those of the chat `name`, or those of the method `name` that names no chat.
-- Written by: a lane whose send was refused, with the postponed item; the gateway's rate-limit task (insert, expiry);
-- boot (expiry, and waits that a clock set back would have made longer).
-- A crash leaves: every wait whose commit was done; the next process respects it.
CREATE TABLE rate_limits (
    platform TEXT    NOT NULL,
    scope    TEXT    NOT NULL CHECK (scope IN ('platform', 'chat', 'method')),
    name     TEXT    NOT NULL,
    set_at   INTEGER NOT NULL,
    until    INTEGER NOT NULL,
    reason   TEXT    NOT NULL,
    PRIMARY KEY (platform, scope, name)
) STRICT, WITHOUT ROWID;
