-- rate_limits: penalties imposed by platforms (HTTP 429, flood control). `scope`: all requests to the platform, those to
-- the chat `name`, or those of the method `name` without a chat.
-- Written by: a lane whose send was refused, with the postponed item; the gateway's rate-limit task (insert, expiry);
-- boot (expiry, and correction after a clock was set back).
-- A crash leaves: every committed penalty; the next process respects it.
CREATE TABLE rate_limits (
    platform TEXT    NOT NULL,
    scope    TEXT    NOT NULL CHECK (scope IN ('platform', 'chat', 'method')),
    name     TEXT    NOT NULL,
    set_at   INTEGER NOT NULL,
    until    INTEGER NOT NULL,
    reason   TEXT    NOT NULL,
    PRIMARY KEY (platform, scope, name)
) STRICT, WITHOUT ROWID;
