-- Schema 1. Times are milliseconds since the Unix epoch. JSON columns hold types of petasos-core.
-- Every change goes through one writer thread in synced transactions, so "a crash leaves" below means:
-- between two commits.
--
-- SQLite uses a partial index only where a query repeats the index's condition word for word; hence
-- conditions such as `state <> 'done' AND state = 'due'` in the queries.

-- inbox: what was accepted and not yet forgotten.
-- Written by: ingest (accept), a turn's decisions (claim, settle), retention (settled rows only).
-- A crash leaves: 'queued' rows, which are run at boot; 'claimed' rows, whose turn is open in `turns`.
-- AUTOINCREMENT: an id is never used twice, so neither is a turn's.
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

-- seen: identities of accepted messages, and of messages that were owed on somebody's word; outlives their rows.
-- Written by: ingest, in the transaction of the inbox or outbox row; retention.
-- A crash leaves: nothing half-done; a message offered again finds its row here.
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

-- cursors: how far a link has read its platform.
-- Written by: ingest, in the transaction of the messages up to that point.
-- A crash leaves: a cursor never ahead of its messages.
CREATE TABLE cursors (
    link  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- unreadable: what a platform told us and no adapter could read, as it came; the newest thousand.
-- Written by: ingest, in the transaction of its neighbours and the cursor; retention.
-- A crash leaves: nothing half-done; what is told again and has an id is found here.
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

-- turns: the journal. The state is what recovery starts from.
-- Written by: a session's decisions. The id is the number of the inbox row that started the turn.
-- A crash leaves: open rows (ended_at IS NULL), which boot recovers; at most one per session.
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

-- outbox: what we owe to a chat.
-- Written by: a turn's decisions (owe, preview), deliver (sending, sent, postponed, buried), a person
-- (retry, drop), retention (done rows; dead ones after a month).
-- A crash leaves: 'sending' rows, whose part has an unknown outcome (see outbox::recover); 'due' rows,
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

-- topics: topics that were asked for by name, and the ids under which the platform made them.
-- Written by: deliver, before anything is sent there; taken out when the platform says that one is gone.
-- A crash leaves: at worst a topic at the platform that is not in here; the next message makes another.
CREATE TABLE topics (
    platform TEXT    NOT NULL,
    chat     TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    thread   TEXT    NOT NULL,
    made_at  INTEGER NOT NULL,
    PRIMARY KEY (platform, chat, name)
) STRICT, WITHOUT ROWID;

-- dead_chats: chats that refused us; nothing is sent there but a probe a day.
-- Written by: deliver (marked with the item that was refused, probed, cleared by what arrived), ingest (cleared by a
-- message from there), a person (cleared by a retry).
-- A crash leaves: the mark as last committed; the worst is one more refusal.
CREATE TABLE dead_chats (
    platform  TEXT    NOT NULL,
    chat      TEXT    NOT NULL,
    reason    TEXT    NOT NULL,
    marked_at INTEGER NOT NULL,
    probed_at INTEGER,
    PRIMARY KEY (platform, chat)
) STRICT, WITHOUT ROWID;

-- routing: which transcript a conversation uses now, with its flags (session::Entry as JSON).
-- Written by: the session's task, boot recovery, shutdown marks, import.
-- A crash leaves: the entry as last committed; a resume mark is in it before a turn is interrupted.
CREATE TABLE routing (
    session_key TEXT PRIMARY KEY,
    session     TEXT    NOT NULL,
    entry       TEXT    NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX routing_age ON routing (updated_at);

-- sessions: one row per transcript.
-- Written by: the same as routing, and by every appended message (counters).
-- A crash leaves: a live row (ended_at IS NULL) for every transcript in use.
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

-- failures: how often in a row a session was interrupted by a stop or a crash.
-- Written by: shutdown and boot recovery (count), a successful turn (clear).
-- A crash leaves: counts that are at most one too low.
CREATE TABLE failures (
    session_key TEXT PRIMARY KEY,
    count       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- messages: transcripts, never shortened. The state says what the model sees of a row: all of it ('active'), that
-- it was there ('emptied'), or nothing ('undone', 'compacted'). The id is the order, but for a summary, which stands
-- in the `place` of the last row it replaced.
-- Written by: a turn's decisions; /undo and /compress change states.
-- A crash leaves: whole steps; a tool call without a result is completed as unknown by the turn. Rows are compacted
-- in the transaction that brings their summary.
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
-- What a model sees: reading it must not cost what lies behind a summary.
CREATE INDEX messages_seen ON messages (session, coalesce(place, id))
    WHERE state IN ('active', 'emptied') AND role <> 'session_meta';

-- words: full-text index over what people and the model said; tool output and notices stay out.
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

-- pairing: who asked to talk to us and who may (pairing::Book as JSON), per platform.
-- Written by: ingest (requests), the operator (approve, revoke). Codes are stored salted and hashed.
-- A crash leaves: a code that was sent is stored; a stored code may not have been sent and expires.
CREATE TABLE pairing (
    platform TEXT PRIMARY KEY,
    book     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- completions: ended background work, addressed to a session.
-- Written by: whoever ran the work (insert, once per dispatch; consumed, if the session learned of it otherwise), the
-- hand-over (delivered, in the transaction that accepts it as a message of the inbox; undeliverable, with the reason, in
-- the transaction that tells the chat), the settling of that message (consumed).
-- A crash leaves: 'queued' rows, which are handed over; 'delivered' ones, whose message is in the inbox. Only
-- 'consumed' and 'undeliverable' ones are pruned.
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

-- processes: what runs in the background for a session.
-- Written by: the terminal (begun before anything is started, started, ended), retention (ended ones).
-- A crash leaves: rows without an end. The next start finds their processes, by number and birth or by command line,
-- and looks after them, or records how they ended.
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

-- jobs: scheduled work (cron::Job as JSON). next_at is the first occurrence that nobody has dealt with; NULL: it rests or is
-- over.
-- Written by: whoever sets jobs (a tool, a person), the schedule (next_at), the delivery of a run (how it went).
-- A crash leaves: jobs that are due, which the next start finds; what was missed is decided then.
CREATE TABLE jobs (
    id         TEXT PRIMARY KEY,
    job        TEXT    NOT NULL,
    next_at    INTEGER,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_due ON jobs (next_at) WHERE next_at IS NOT NULL;

-- occurrences: one run of a job, with the job as it was then. One row per due time, so there is one run.
-- Written by: the schedule (accepted, in the transaction that makes it a message of the inbox and moves next_at), the
-- settling of that message (ran), the delivery (delivered, in the transaction that owes the answer), retention.
-- A crash leaves: 'accepted' rows, whose message is in the inbox; 'ran' rows, which are delivered.
-- inbox is NULL for one that was missed: somebody is told, and nothing runs.
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

-- todos: the list a conversation keeps of what it has to do (JSON).
-- Written by: its tool. A crash leaves: the list as last committed.
CREATE TABLE todos (
    session TEXT PRIMARY KEY,
    items   TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- delegations: work that a turn gave to subagents and did not wait for.
-- Written by: the gateway's delegation (begun with the messages of its children, ended with the completion it owes),
-- boot, retention (ended ones).
-- A crash leaves: rows without an end. Boot ends them as unknown, and their session is told once.
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

-- questions: what people were asked while a turn waited for them, and how that ended (JSON of whoever asked).
-- Written by: the gateway's questions (asked with the message that shows it, ended once, in the transaction that says so
-- in the chat), boot, retention (ended ones).
-- A crash leaves: rows without an end. Nobody waits behind them any more: boot ends them as lost, and their call, which
-- waited for the answer, was certainly not run.
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

-- approved: kinds of commands that run unasked: in one transcript, or everywhere (scope '').
-- Written by: the gateway's questions, in the transaction that ends the question; a person; retention (transcripts).
-- A crash leaves: what was promised before the command ran.
CREATE TABLE approved (
    scope    TEXT    NOT NULL,
    category TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (scope, category)
) STRICT, WITHOUT ROWID;

-- runs: what programs asked for over HTTP. A run is an accepted message with a name; what it does is in its turn, what
-- it says is in its transcript between `after_row` and `last_row`. Its events are read off these rows, never stored.
-- Written by: whoever accepts it, in the transaction of its inbox row (insert); the turn's decisions (claimed, moved,
-- ended); its owner (hidden); retention (ended ones).
-- A crash leaves: rows without an end, whose message waits or whose turn is open: they go on like any other.
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

-- repeats: what a client called a request, so that the same one again is the same run. A day long.
-- Written by: whoever accepts a run, in its transaction; retention.
-- A crash leaves: a name only together with its run.
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
-- Written by: the web server. A crash leaves: a link either redeemed with its login, or still good.
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
