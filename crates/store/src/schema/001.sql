-- Schema 1. Times are milliseconds since the Unix epoch. JSON columns hold types of petasos-core.
-- One writer thread makes every change in a synced transaction. "A crash leaves" means: between two commits.
--
-- SQLite uses a partial index only if the query repeats the condition of the index literally, hence conditions such as
-- `state <> 'done' AND state = 'due'` in the queries.

-- inbox: accepted messages.
-- Written by: ingest (accept), a turn's decisions (claim, settle), retention (settled rows only).
-- A crash leaves: 'queued' rows, which run after boot; 'claimed' rows, whose turn is open in `turns`.
-- AUTOINCREMENT: ids are never reused, and so neither are turn ids.
CREATE TABLE inbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    session_key TEXT    NOT NULL,
    message     TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('queued', 'claimed', 'settled')),
    turn        INTEGER,
    outcome     TEXT,
    received_at INTEGER NOT NULL,
    settled_at  INTEGER,
    CHECK ((state = 'settled') = (outcome IS NOT NULL)),
    CHECK (state <> 'claimed' OR turn IS NOT NULL)
) STRICT;
CREATE INDEX inbox_session ON inbox (session_key, id);
CREATE INDEX inbox_open ON inbox (session_key, id) WHERE state <> 'settled';
CREATE INDEX inbox_settled ON inbox (settled_at) WHERE state = 'settled';

-- seen: identities of accepted messages, and of messages enqueued on request; they outlive their rows.
-- Written by: ingest, in the transaction of the inbox or outbox row; retention.
-- A crash leaves: nothing partial; a repeated message finds its row.
CREATE TABLE seen (
    platform TEXT    NOT NULL,
    dedup    TEXT    NOT NULL,
    inbox    INTEGER,
    outbox   INTEGER,
    at       INTEGER NOT NULL,
    PRIMARY KEY (platform, dedup),
    CHECK ((inbox IS NULL) <> (outbox IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX seen_age ON seen (at);

-- cursors: read position of each link.
-- Written by: ingest, in the transaction of the messages up to that point.
-- A crash leaves: a cursor that is not ahead of its messages.
CREATE TABLE cursors (
    link  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- unreadable: raw platform events that no adapter could parse; the newest thousand.
-- Written by: ingest, in the transaction of its batch and the cursor; retention.
-- A crash leaves: nothing partial; a repeated event with an id finds its row.
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
CREATE INDEX unreadable_age ON unreadable (at);

-- turns: the journal. Recovery starts from the stored state.
-- Written by: a session's decisions. The id is the number of the inbox row that started the turn.
-- A crash leaves: open rows (ended_at IS NULL), at most one per session, which boot recovers.
CREATE TABLE turns (
    id          INTEGER PRIMARY KEY,
    session_key TEXT    NOT NULL,
    session     TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    outcome     TEXT,
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT;
CREATE UNIQUE INDEX turns_open ON turns (session_key) WHERE ended_at IS NULL;
CREATE INDEX turns_ended ON turns (ended_at) WHERE ended_at IS NOT NULL;

-- outbox: messages to deliver.
-- Written by: a turn's decisions (enqueue, preview), delivery (sending, sent, postponed, dead-lettered), the operator
-- (retry, drop), retention (done rows; dead ones after a month).
-- A crash leaves: 'sending' rows, whose part has an unknown outcome (see the table in outbox/mod.rs); 'due' rows,
-- which are sent; 'streaming' rows, which wait for their turn.
CREATE TABLE outbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    lane        TEXT    NOT NULL,
    route       TEXT    NOT NULL,
    session_key TEXT,
    turn        INTEGER,
    step        INTEGER,
    kind        TEXT    NOT NULL,
    text        TEXT    NOT NULL,
    buttons     TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('streaming', 'due', 'sending', 'done', 'dead')),
    preview     TEXT    NOT NULL DEFAULT 'none' CHECK (preview IN ('none', 'asked', 'shown')),
    preview_id  TEXT,
    sent        TEXT    NOT NULL DEFAULT '[]',
    doubtful    INTEGER NOT NULL DEFAULT 0 CHECK (doubtful IN (0, 1)),
    attempts    INTEGER NOT NULL DEFAULT 0,
    tried_at    INTEGER,
    spent       INTEGER NOT NULL DEFAULT 0,
    not_before  INTEGER NOT NULL DEFAULT 0,
    created_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    last_error  TEXT,
    -- It takes the place of that item's message, once that is known.
    amends      INTEGER,
    CHECK ((preview = 'shown') = (preview_id IS NOT NULL)),
    CHECK ((turn IS NULL) = (step IS NULL))
) STRICT;
CREATE UNIQUE INDEX outbox_step ON outbox (turn, step) WHERE turn IS NOT NULL;
CREATE INDEX outbox_lane ON outbox (lane, id) WHERE state IN ('due', 'sending');
CREATE INDEX outbox_open ON outbox (state, id) WHERE state <> 'done';
CREATE INDEX outbox_amends ON outbox (amends) WHERE amends IS NOT NULL;
CREATE INDEX outbox_done ON outbox (ended_at) WHERE state = 'done';

-- topics: platform topics created by name, and their ids.
-- Written by: delivery, before the first message to the topic; deleted when the platform reports that it is gone.
-- A crash leaves: at worst an unrecorded topic at the platform; the next message creates another.
CREATE TABLE topics (
    platform TEXT    NOT NULL,
    chat     TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    thread   TEXT    NOT NULL,
    made_at  INTEGER NOT NULL,
    PRIMARY KEY (platform, chat, name)
) STRICT, WITHOUT ROWID;

-- dead_chats: chats that refuse our messages; only one probe a day is sent there.
-- Written by: delivery (marked with the refused item, probed, cleared by a delivery), ingest (cleared by a message from
-- the chat), the operator (cleared by a retry).
-- A crash leaves: the mark as last committed; at worst one more refusal.
CREATE TABLE dead_chats (
    platform  TEXT    NOT NULL,
    chat      TEXT    NOT NULL,
    reason    TEXT    NOT NULL,
    marked_at INTEGER NOT NULL,
    probed_at INTEGER,
    PRIMARY KEY (platform, chat)
) STRICT, WITHOUT ROWID;

-- routing: the session that each session key is bound to, with flags (session::Entry as JSON).
-- Written by: the session's task, boot recovery, shutdown marks, import.
-- A crash leaves: the entry as last committed; a stop writes the resume mark before it interrupts a turn.
CREATE TABLE routing (
    session_key TEXT PRIMARY KEY,
    session     TEXT    NOT NULL,
    entry       TEXT    NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX routing_age ON routing (updated_at);

-- sessions: one row per session, with counters.
-- Written by: the writers of routing, and every appended message.
-- A crash leaves: an open row (ended_at IS NULL) for every session in use.
CREATE TABLE sessions (
    id             TEXT PRIMARY KEY,
    session_key    TEXT    NOT NULL,
    platform       TEXT,
    display_name   TEXT,
    origin         TEXT,
    -- Whose it is (person::Person); what is found in it is told to nobody else.
    person         TEXT,
    parent         TEXT,
    system_prompt  TEXT,
    model          TEXT,
    title          TEXT,
    started_at     INTEGER NOT NULL,
    last_at        INTEGER NOT NULL,
    ended_at       INTEGER,
    end_reason     TEXT,
    message_count  INTEGER NOT NULL DEFAULT 0,
    input_tokens   INTEGER NOT NULL DEFAULT 0,
    output_tokens  INTEGER NOT NULL DEFAULT 0,
    cache_read     INTEGER NOT NULL DEFAULT 0,
    cache_write    INTEGER NOT NULL DEFAULT 0,
    -- How making room in it went (compaction::Pace as JSON); NULL: never tried.
    pace           TEXT
) STRICT;
CREATE INDEX sessions_key ON sessions (session_key, last_at);
CREATE INDEX sessions_last ON sessions (last_at);
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;

-- failures: consecutive interruptions of a session by a stop or a crash.
-- Written by: shutdown and boot recovery (count), a successful turn (clear).
-- A crash leaves: counts that are at most one too low.
CREATE TABLE failures (
    session_key TEXT PRIMARY KEY,
    count       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- messages: transcripts, append-only. `state` is the visibility to the model: full ('active'), without the text
-- ('emptied'), or hidden ('undone', 'compacted'). Rows are ordered by id, except that a summary takes the `place` of
-- the last row that it replaces.
-- Written by: a turn's decisions; /undo and /compress change states.
-- A crash leaves: complete steps; the turn completes a tool call without a result as unknown. Rows are compacted in the
-- transaction of their summary.
CREATE TABLE messages (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    session             TEXT    NOT NULL,
    role                TEXT    NOT NULL,
    content             TEXT    NOT NULL,
    tool_calls          TEXT,
    tool_call_id        TEXT,
    tool_name           TEXT,
    effect              TEXT,
    platform_message_id TEXT,
    state               TEXT    NOT NULL DEFAULT 'active'
        CHECK (state IN ('active', 'emptied', 'undone', 'compacted')),
    place               INTEGER,
    at                  INTEGER NOT NULL,
    pictures            TEXT,
    CHECK ((role = 'summary') = (place IS NOT NULL))
) STRICT;
CREATE INDEX messages_session ON messages (session, id);
-- Rows visible to the model: reading them must not scan the rows that a summary replaced.
CREATE INDEX messages_seen ON messages (session, coalesce(place, id))
    WHERE state IN ('active', 'emptied') AND role <> 'session_meta';

-- words: full-text index of user and assistant rows; tool output and notices are excluded.
-- Written by: triggers only, so that it cannot drift from `messages`.
CREATE VIRTUAL TABLE words USING fts5 (
    content, content = 'messages', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE TRIGGER messages_index AFTER INSERT ON messages
WHEN new.role IN ('user', 'assistant') AND new.content <> '' BEGIN
    INSERT INTO words (rowid, content) VALUES (new.id, new.content);
END;
CREATE TRIGGER messages_forget AFTER DELETE ON messages
WHEN old.role IN ('user', 'assistant') AND old.content <> '' BEGIN
    INSERT INTO words (words, rowid, content) VALUES ('delete', old.id, old.content);
END;

-- pairing: pairing requests and approved users per platform, as JSON.
-- Written by: ingest (requests), the operator (approve, revoke). Codes are stored salted and hashed.
-- A crash leaves: every sent code stored; a stored code that was not sent expires.
CREATE TABLE pairing (
    platform TEXT PRIMARY KEY,
    book     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- completions: ends of background work, addressed to a session.
-- Written by: the producer (insert, once per dispatch; consumed, if the session learned the result another way), the
-- dispatcher (delivered, in the transaction of the inbox row; undeliverable, with the reason, in the transaction of the
-- notice to the chat), the settling of that inbox row (consumed).
-- A crash leaves: 'queued' rows, which are delivered; 'delivered' rows, whose message is in the inbox. Only 'consumed' and
-- 'undeliverable' rows are pruned.
CREATE TABLE completions (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    dispatch    TEXT    NOT NULL UNIQUE,
    session_key TEXT    NOT NULL,
    -- The transcript that the work was started in; NULL: whichever is current.
    session     TEXT,
    origin      TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    payload     TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('queued', 'delivered', 'consumed', 'undeliverable')),
    reason      TEXT,
    inbox       INTEGER,
    created_at  INTEGER NOT NULL,
    consumed_at INTEGER,
    CHECK (state <> 'delivered' OR inbox IS NOT NULL),
    CHECK ((state = 'undeliverable') = (reason IS NOT NULL))
) STRICT;
CREATE INDEX completions_open ON completions (session_key, id) WHERE state <> 'consumed';
CREATE INDEX completions_inbox ON completions (inbox) WHERE inbox IS NOT NULL;
CREATE INDEX completions_done ON completions (consumed_at) WHERE state IN ('consumed', 'undeliverable');

-- processes: background processes of a session.
-- Written by: the terminal (recorded before the start, started, ended), retention (ended ones).
-- A crash leaves: rows without an end. The next start finds their processes by pid and start marker or by command line,
-- and monitors them or records their end.
CREATE TABLE processes (
    id          TEXT PRIMARY KEY,
    session_key TEXT    NOT NULL,
    session     TEXT    NOT NULL,
    origin      TEXT    NOT NULL,
    command     TEXT    NOT NULL,
    cwd         TEXT    NOT NULL,
    promise     TEXT    NOT NULL,
    pid         INTEGER,
    born        TEXT,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    exit_code   INTEGER,
    reason      TEXT,
    ended_by    TEXT,
    CHECK ((ended_at IS NULL) = (reason IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX processes_open ON processes (session_key) WHERE ended_at IS NULL;
CREATE INDEX processes_ended ON processes (ended_at) WHERE ended_at IS NOT NULL;

-- jobs: scheduled jobs (cron::Job as JSON). next_at is the next unprocessed occurrence; NULL: paused or finished.
-- Written by: tools and the operator, the scheduler (next_at), the reporting of a run (its result).
-- A crash leaves: due jobs, for which the next start applies the policy for missed runs.
CREATE TABLE jobs (
    id         TEXT PRIMARY KEY,
    job        TEXT    NOT NULL,
    next_at    INTEGER,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_due ON jobs (next_at) WHERE next_at IS NOT NULL;

-- occurrences: runs of jobs, each with a copy of the job. One row per due time, so a due time runs once.
-- Written by: the scheduler (accepted, in the transaction of the inbox row and next_at), the settling of that message
-- (ran), the reporting (delivered, in the transaction that enqueues the result), retention.
-- A crash leaves: 'accepted' rows, whose message is in the inbox; 'ran' rows, which are reported.
-- `inbox` is NULL for a missed run, which is reported but does not run.
CREATE TABLE occurrences (
    job      TEXT    NOT NULL,
    due      INTEGER NOT NULL,
    body     TEXT    NOT NULL,
    state    TEXT    NOT NULL CHECK (state IN ('accepted', 'ran', 'delivered')),
    inbox    INTEGER,
    outcome  TEXT,
    skipped  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (job, due),
    CHECK (inbox IS NOT NULL OR state <> 'accepted')
) STRICT, WITHOUT ROWID;
CREATE INDEX occurrences_inbox ON occurrences (inbox) WHERE inbox IS NOT NULL;
CREATE INDEX occurrences_ran ON occurrences (due) WHERE state = 'ran';
CREATE INDEX occurrences_over ON occurrences (ended_at) WHERE state = 'delivered';

-- todos: todo list of a session (JSON).
-- Written by: its tool. A crash leaves: the list as last committed.
CREATE TABLE todos (
    session TEXT PRIMARY KEY,
    items   TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- delegations: asynchronous work of subagents.
-- Written by: the gateway's delegation (begun with the messages of its subagents, ended with its completion), boot,
-- retention (ended ones).
-- A crash leaves: rows without an end. Boot ends them as unknown and notifies their session once.
CREATE TABLE delegations (
    id          TEXT PRIMARY KEY,
    session_key TEXT    NOT NULL,
    session     TEXT    NOT NULL,
    origin      TEXT    NOT NULL,
    tasks       TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    status      TEXT,
    result      TEXT,
    CHECK ((ended_at IS NULL) = (status IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX delegations_open ON delegations (started_at) WHERE ended_at IS NULL;
CREATE INDEX delegations_ended ON delegations (ended_at) WHERE ended_at IS NOT NULL;

-- questions: approval requests and clarifying questions for which a turn waits, and their ends (JSON of the gateway).
-- Written by: the gateway's questions (asked with the message that shows it, ended once, in the transaction of the notice
-- to the chat), boot, retention (ended ones).
-- A crash leaves: rows without an end. Their turn no longer waits: boot ends them as lost. The tool call that waited was
-- certainly not run.
CREATE TABLE questions (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT    NOT NULL UNIQUE,
    session_key TEXT    NOT NULL,
    session     TEXT    NOT NULL,
    turn        INTEGER NOT NULL,
    call        TEXT    NOT NULL,
    origin      TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    body        TEXT    NOT NULL,
    outbox      INTEGER,
    asked_row   INTEGER,
    asked_at    INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    ended_row   INTEGER,
    ending      TEXT,
    CHECK ((ended_at IS NULL) = (ending IS NULL))
) STRICT;
CREATE INDEX questions_open ON questions (session_key, number) WHERE ended_at IS NULL;
CREATE INDEX questions_turn ON questions (turn);
CREATE INDEX questions_ended ON questions (ended_at) WHERE ended_at IS NOT NULL;

-- approved: command categories that need no approval, in one session or everywhere (scope '').
-- Written by: the gateway's questions, in the transaction that ends the question; the operator; retention (sessions).
-- A crash leaves: the approval, committed before the command ran.
CREATE TABLE approved (
    scope    TEXT    NOT NULL,
    category TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (scope, category)
) STRICT, WITHOUT ROWID;

-- runs: API runs. A run is an accepted message with a run id. Its state is in its turn, its output in the transcript
-- between `after_row` and `last_row`; its events are derived from these rows.
-- Written by: the API, in the transaction of the inbox row (insert); the turn's decisions (claimed, moved, ended); the
-- client (hidden); retention (ended ones).
-- A crash leaves: rows without an end, whose message waits or whose turn is open: they continue like any other.
CREATE TABLE runs (
    id          TEXT PRIMARY KEY,
    inbox       INTEGER NOT NULL UNIQUE,
    owner       TEXT    NOT NULL,
    session     TEXT    NOT NULL,
    session_key TEXT    NOT NULL,
    wish        TEXT    NOT NULL,
    hidden      INTEGER NOT NULL DEFAULT 0 CHECK (hidden IN (0, 1)),
    created_at  INTEGER NOT NULL,
    claimed_at  INTEGER,
    after_row   INTEGER,
    last_row    INTEGER,
    ended_at    INTEGER,
    outcome     TEXT,
    usage       TEXT,
    partial     INTEGER NOT NULL DEFAULT 0 CHECK (partial IN (0, 1)),
    said        TEXT,
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_session ON runs (session, inbox);
CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;

-- repeats: idempotency keys of API requests and their runs, kept for a day.
-- Written by: the API, in the transaction of the run; retention.
-- A crash leaves: a key only together with its run.
CREATE TABLE repeats (
    owner       TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL,
    run         TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX repeats_age ON repeats (at);

-- logins, login_links: web cookies and one-time links. Only SHA-256 of a token is stored.
-- Written by: the web server. A crash leaves: a link that is either redeemed with its login, or still valid.
CREATE TABLE logins (
    token_hash BLOB PRIMARY KEY,
    label      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE login_links (
    token_hash BLOB PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- meta: facts about this installation.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
