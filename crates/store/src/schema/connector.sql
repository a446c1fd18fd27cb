-- Schema 1 of a connector's database (connector.db). Times are milliseconds since the Unix epoch.
-- Every change is a synced transaction. Commands on the same machine also write to this database.

-- tenants: owners of instances, isolated from each other.
-- Written by: `connector tenant add`; `single_instance` creates its own.
CREATE TABLE tenants (
    id         TEXT    PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- instances: one agent each, independent of the process that runs it.
-- Written by: the commands and requests that add a gateway; the instance's task (idle), in the transaction before the
-- grant; a socket at its hello (epoch), before it receives anything.
-- A crash leaves: `idle` as last granted, and an epoch that later sockets exceed.
CREATE TABLE instances (
    id         TEXT    PRIMARY KEY,
    tenant     TEXT    NOT NULL REFERENCES tenants (id),
    wake_url   TEXT,
    idle       INTEGER NOT NULL DEFAULT 0 CHECK (idle IN (0, 1)),
    epoch      INTEGER NOT NULL DEFAULT 0,
    node       TEXT,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- gateways: credentials of gateway processes. Both secrets are valid until the former one expires.
-- Secrets are stored unhashed, because they verify signatures.
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

-- enrollments: SHA-256 of one-time tokens. `used_by`: the gateway that redeemed it.
CREATE TABLE enrollments (
    token_hash BLOB    PRIMARY KEY,
    tenant     TEXT    NOT NULL REFERENCES tenants (id),
    expires_at INTEGER NOT NULL,
    used_by    TEXT
) STRICT, WITHOUT ROWID;

-- identities: SHA-256 of the tokens with which a tenant's installer provisions gateways.
CREATE TABLE identities (
    token_hash BLOB    PRIMARY KEY,
    tenant     TEXT    NOT NULL REFERENCES tenants (id),
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- queue: events to deliver to an instance, in order of arrival.
-- Written by: the instance's task only: appended before the platform gets an acknowledgement, deleted when the gateway
-- acknowledges.
-- A crash leaves: every unacknowledged event; it is sent again under the same id.
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

-- dead: dead letters, kept for the operator.
-- Written by: the instance's task, in the transaction that removes the queue row; the oldest are deleted.
CREATE TABLE dead (
    id       TEXT    PRIMARY KEY,
    instance TEXT    NOT NULL,
    platform TEXT    NOT NULL,
    payload  TEXT    NOT NULL,
    why      TEXT    NOT NULL CHECK (why IN ('full', 'old', 'not_acknowledged', 'too_long')),
    at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX dead_instance ON dead (instance, at);

-- seen: identities of processed events, by link. Written in the transaction of the event.
CREATE TABLE seen (
    link  TEXT    NOT NULL,
    dedup TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (link, dedup)
) STRICT, WITHOUT ROWID;
CREATE INDEX seen_age ON seen (at);

-- cursors: read position of each link. Updated after the events; repeated events are found in `seen`.
CREATE TABLE cursors (
    link  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- unreadable: raw platform events that no adapter could parse; the newest thousand.
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

-- authors: routes authors to instances. Written by: commands, `/manage/*`, `/link CODE` in a direct message.
-- `direct`: another instance of the same tenant that receives their direct messages.
CREATE TABLE authors (
    platform TEXT NOT NULL,
    user_id  TEXT NOT NULL,
    instance TEXT NOT NULL REFERENCES instances (id),
    direct   TEXT REFERENCES instances (id),
    PRIMARY KEY (platform, user_id)
) STRICT, WITHOUT ROWID;

-- principals: users allowed or denied in the scopes of an instance, regardless of its policy.
CREATE TABLE principals (
    instance TEXT    NOT NULL REFERENCES instances (id),
    platform TEXT    NOT NULL,
    user_id  TEXT    NOT NULL,
    allowed  INTEGER NOT NULL CHECK (allowed IN (0, 1)),
    PRIMARY KEY (instance, platform, user_id)
) STRICT, WITHOUT ROWID;

-- scopes: guilds, workspaces and groups whose messages all go to one instance.
CREATE TABLE scopes (
    platform TEXT NOT NULL,
    scope_id TEXT NOT NULL,
    instance TEXT NOT NULL REFERENCES instances (id),
    PRIMARY KEY (platform, scope_id)
) STRICT, WITHOUT ROWID;

-- links: SHA-256 of codes that bind their sender to an instance. Deleted when used.
CREATE TABLE links (
    code_hash  BLOB    PRIMARY KEY,
    instance   TEXT    NOT NULL REFERENCES instances (id),
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- policies: which messages an instance receives in shared chats, as last reported by its gateway.
CREATE TABLE policies (
    instance        TEXT    NOT NULL REFERENCES instances (id),
    platform        TEXT    NOT NULL,
    require_address INTEGER NOT NULL,
    free_scopes     TEXT    NOT NULL,
    other_bots      INTEGER NOT NULL,
    PRIMARY KEY (instance, platform)
) STRICT, WITHOUT ROWID;

-- chats: chats from which an instance received a message, and to which it may therefore write, by session key.
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

-- vault: platform permissions, such as the address of an ephemeral reply to a command. They never leave the connector: a
-- gateway refers to its own by id, or by session and kind.
-- Written by: the intake, before its event is stored.
-- A crash leaves: at worst a duplicate of a repeated event; both expire.
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

-- requests: requests of gateways that must not be executed twice.
-- Written by: the socket's task, before the platform is called (no answer), and with its answer.
-- `message`: the created message (platform, chat and id), which that instance may edit.
-- A crash leaves: rows without an answer, whose effect is unknown; a repeated request is answered with that.
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

-- media: files in transit between a platform and an instance. `reference`: the platform's reference (JSON); without one
-- the file is stored in `<home>/connector-media` under its id.
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

-- meta: facts about this connector. `revision` increases with every change that open sockets must apply.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
