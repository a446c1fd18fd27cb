-- Schema 2. Indexes for every statement of start-up, turns and periodic work.

-- routing: columns copied from the entry, written with it.
-- `platform`, `chat`: the origin. `pending`: an interrupted turn is to be resumed. `finalized`: the expiry was processed.
ALTER TABLE routing ADD COLUMN platform TEXT;
ALTER TABLE routing ADD COLUMN chat TEXT;
ALTER TABLE routing ADD COLUMN pending INTEGER NOT NULL DEFAULT 0 CHECK (pending IN (0, 1));
ALTER TABLE routing ADD COLUMN finalized INTEGER NOT NULL DEFAULT 0 CHECK (finalized IN (0, 1));
UPDATE routing SET
    platform = lower(entry ->> '$.origin.platform'),
    chat = entry ->> '$.origin.chat_id',
    pending = coalesce(entry ->> '$.resume_pending' = 1 AND NOT entry ->> '$.suspended' = 1, 0),
    finalized = coalesce(entry ->> '$.expiry_finalized' = 1, 0)
WHERE json_valid(entry);
CREATE INDEX routing_place ON routing (platform, chat);
CREATE INDEX routing_recent ON routing (platform, updated_at);
CREATE INDEX routing_session ON routing (session);
CREATE INDEX routing_pending ON routing (updated_at) WHERE pending = 1;
CREATE INDEX routing_open ON routing (updated_at) WHERE finalized = 0;

CREATE INDEX outbox_dead ON outbox (ended_at) WHERE state = 'dead';
CREATE INDEX dead_chats_age ON dead_chats (marked_at);
CREATE INDEX todos_age ON todos (at);
CREATE INDEX approved_age ON approved (at);
CREATE INDEX logins_age ON logins (expires_at);
CREATE INDEX login_links_age ON login_links (expires_at);
