-- Schema 1 of a connector's database (connector.db). Times are milliseconds since the Unix epoch.
-- Every change is a synced transaction; commands on the same machine write here too, between those of the connector.

-- tenants: who agents belong to. Nothing of one is ever shown to another.
-- Written by: `connector tenant add`; `single_instance` makes one of its own.
CREATE TABLE tenants (
    id         TEXT    PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- instances: one agent each, whatever process runs it at the moment.
-- Written by: whoever adds a gateway; the instance's task (idle), in the transaction that precedes the grant;
-- a socket that says hello (epoch), before it is given anything.
-- A crash leaves: `idle` as it was last granted, and an epoch that no later socket has.
CREATE TABLE instances (
    id         TEXT    PRIMARY KEY,
    tenant     TEXT    NOT NULL REFERENCES tenants (id),
    wake_url   TEXT,
    idle       INTEGER NOT NULL DEFAULT 0 CHECK (idle IN (0, 1)),
    epoch      INTEGER NOT NULL DEFAULT 0,
    node       TEXT,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- gateways: what a gateway process proves itself with. Both secrets are good until the former one ends.
-- Secrets are kept as they are: signatures are checked with them.
-- Written by: commands, `/relay/provision`, `/relay/enroll`, `/manage/deprovision`.
CREATE TABLE gateways (
    id           TEXT    PRIMARY KEY,
    instance     TEXT    NOT NULL REFERENCES instances (id),
    secret       TEXT    NOT NULL,
    former       TEXT,
    former_until INTEGER,
    delivery_key TEXT    NOT NULL,
    revoked_at   INTEGER,
    created_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX gateways_instance ON gateways (instance);

-- enrollments: one-time tokens, by their SHA-256. Used: who got in with it.
CREATE TABLE enrollments (
    token_hash BLOB    PRIMARY KEY,
    tenant     TEXT    NOT NULL REFERENCES tenants (id),
    expires_at INTEGER NOT NULL,
    used_by    TEXT
) STRICT, WITHOUT ROWID;

-- identities: tokens with which a tenant's own installer provisions gateways, by their SHA-256.
CREATE TABLE identities (
    token_hash BLOB    PRIMARY KEY,
    tenant     TEXT    NOT NULL REFERENCES tenants (id),
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- queue: what is owed to an instance, in the order of its arrival.
-- Written by: the instance's task alone: appended before the platform is told that we have it, deleted when the
-- gateway has acknowledged it.
-- A crash leaves: everything that was not acknowledged; it is sent again under the same id.
CREATE TABLE queue (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    id       TEXT    NOT NULL UNIQUE,
    instance TEXT    NOT NULL REFERENCES instances (id),
    platform TEXT    NOT NULL,
    carries  TEXT    NOT NULL CHECK (carries IN ('inbound', 'forward')),
    payload  TEXT    NOT NULL,
    size     INTEGER NOT NULL,
    strikes  INTEGER NOT NULL DEFAULT 0,
    at       INTEGER NOT NULL
) STRICT;
CREATE INDEX queue_instance ON queue (instance, number);

-- dead: what was put aside instead of being delivered, for a person to look at.
-- Written by: the instance's task, in the transaction that takes it out of the queue; the oldest go.
CREATE TABLE dead (
    id       TEXT    PRIMARY KEY,
    instance TEXT    NOT NULL,
    platform TEXT    NOT NULL,
    payload  TEXT    NOT NULL,
    why      TEXT    NOT NULL CHECK (why IN ('full', 'old', 'not_acknowledged', 'too_long')),
    at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX dead_instance ON dead (instance, at);

-- seen: identities of events that were taken, by link. In the transaction of the event.
CREATE TABLE seen (
    link  TEXT    NOT NULL,
    dedup TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (link, dedup)
) STRICT, WITHOUT ROWID;
CREATE INDEX seen_age ON seen (at);

-- cursors: how far each link has heard. Moves behind the events; what comes twice is in `seen`.
CREATE TABLE cursors (
    link  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- unreadable: what a platform told us and no adapter could read, as it came; the newest thousand.
CREATE TABLE unreadable (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    link  TEXT    NOT NULL,
    event TEXT,
    why   TEXT    NOT NULL,
    size  INTEGER NOT NULL,
    raw   TEXT    NOT NULL,
    at    INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX unreadable_event ON unreadable (link, event) WHERE event IS NOT NULL;

-- authors: whose messages go to which instance. Written by: commands, `/manage/*`, `/link CODE` in a direct message.
-- `direct`: another instance of the same tenant that gets their direct messages.
CREATE TABLE authors (
    platform TEXT NOT NULL,
    user_id  TEXT NOT NULL,
    instance TEXT NOT NULL REFERENCES instances (id),
    direct   TEXT REFERENCES instances (id),
    PRIMARY KEY (platform, user_id)
) STRICT, WITHOUT ROWID;

-- principals: who is let through to an instance in its scopes whatever its policy says, and who is not.
CREATE TABLE principals (
    instance TEXT    NOT NULL REFERENCES instances (id),
    platform TEXT    NOT NULL,
    user_id  TEXT    NOT NULL,
    allowed  INTEGER NOT NULL CHECK (allowed IN (0, 1)),
    PRIMARY KEY (instance, platform, user_id)
) STRICT, WITHOUT ROWID;

-- scopes: guilds, workspaces and groups in which everyone speaks to one instance.
CREATE TABLE scopes (
    platform TEXT NOT NULL,
    scope_id TEXT NOT NULL,
    instance TEXT NOT NULL REFERENCES instances (id),
    PRIMARY KEY (platform, scope_id)
) STRICT, WITHOUT ROWID;

-- links: codes that bind whoever sends one to an instance, by their SHA-256. Deleted when used.
CREATE TABLE links (
    code_hash  BLOB    PRIMARY KEY,
    instance   TEXT    NOT NULL REFERENCES instances (id),
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- policies: what an instance wants to hear in chats with others, as its gateway last said.
CREATE TABLE policies (
    instance        TEXT    NOT NULL REFERENCES instances (id),
    platform        TEXT    NOT NULL,
    require_address INTEGER NOT NULL,
    free_scopes     TEXT    NOT NULL,
    other_bots      INTEGER NOT NULL,
    PRIMARY KEY (instance, platform)
) STRICT, WITHOUT ROWID;

-- chats: where an instance was spoken to, and so may speak, and under which session key.
-- Written by: the instance's task, in the transaction of the event.
CREATE TABLE chats (
    instance    TEXT    NOT NULL REFERENCES instances (id),
    platform    TEXT    NOT NULL,
    chat_id     TEXT    NOT NULL,
    session_key TEXT    NOT NULL,
    thread_id   TEXT,
    scope_id    TEXT,
    chat_type   TEXT    NOT NULL,
    name        TEXT,
    at          INTEGER NOT NULL,
    PRIMARY KEY (instance, platform, chat_id, session_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX chats_session ON chats (session_key);

-- vault: permissions of platforms, such as the address that answers a command for its author's eyes only. They never
-- leave the connector: a gateway knows the id of one of its own, or its session and kind.
-- Written by: the intake, before the event that it came with is kept.
-- A crash leaves: at worst one whose event comes again, under another id; both go when they expire.
CREATE TABLE vault (
    id          TEXT    PRIMARY KEY,
    instance    TEXT    NOT NULL REFERENCES instances (id),
    platform    TEXT    NOT NULL,
    chat_id     TEXT    NOT NULL,
    session_key TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    value       TEXT    NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX vault_session ON vault (session_key, kind, expires_at);
CREATE INDEX vault_age ON vault (expires_at);

-- requests: what gateways asked for and must not happen twice.
-- Written by: the socket's task: before the platform is asked (no answer), and with its answer.
-- `message`: what came of it (platform, chat and id), which is that instance's to change.
-- A crash leaves: rows without an answer, whose effect nobody knows; whoever asks again is told so.
CREATE TABLE requests (
    instance TEXT    NOT NULL,
    request  TEXT    NOT NULL,
    answer   TEXT,
    message  TEXT,
    at       INTEGER NOT NULL,
    PRIMARY KEY (instance, request)
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_age ON requests (at);
CREATE INDEX requests_message ON requests (instance, message) WHERE message IS NOT NULL;

-- media: files on their way between a platform and an instance. `reference`: where the platform has it (JSON);
-- without one the file lies in `<home>/connector-media` under its id.
CREATE TABLE media (
    id         TEXT    PRIMARY KEY,
    instance   TEXT    NOT NULL,
    reference  TEXT,
    name       TEXT,
    mime       TEXT,
    size       INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX media_age ON media (expires_at);
CREATE INDEX media_here ON media (instance, size) WHERE reference IS NULL;

-- meta: facts about this connector. `revision` changes with every change that open sockets must hear of.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
