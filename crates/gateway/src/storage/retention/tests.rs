use petasos_core::message::{ChatType, Delivery};
use petasos_core::session::{Entry, ResolveMode};
use petasos_core::transcript::Message;
use petasos_core::{Inbound, Platform, SessionId, SessionKey, Source};
use petasos_store::{RestoreOutcome, Store, Tx, local_time};
use tempfile::TempDir;

use super::*;
use crate::lifecycle::config::Settings;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::storage::database::{self, Writer};

pub(super) const START: Millis = Millis(1_794_766_325_000);
pub(super) const HOUR: Duration = Duration::from_secs(3600);

pub(super) struct RetentionFixture {
    pub(super) home: TempDir,
    pub(super) db: Db,
    homes: Vec<Route>,
    folder: tokio::sync::Mutex<ArchiveFolder>,
    _writer: Writer,
}

impl RetentionFixture {
    pub(super) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path().join("petasos.db")).unwrap();
        let (db, writer) = database::start(store, ShutdownHandle::default()).unwrap();
        Self { home, db, homes: Vec::new(), folder: tokio::sync::Mutex::default(), _writer: writer }
    }

    async fn converse(&self, chat: usize, messages: usize, at: Millis) {
        self.db.write(Commit::Submit, move |tx| add_conversation(tx, chat, messages, at)).await.unwrap();
    }

    /// Steps until nothing is left to do. Returns whether removals were announced.
    pub(super) async fn pass(&self, policy: &Retention, now: Millis) -> bool {
        let mut announced = false;
        let mut folder = self.folder.lock().await;
        loop {
            match step(&self.db, self.home.path(), policy, &self.homes, &mut folder, now).await.unwrap() {
                StepResult::More => {}
                StepResult::Done => return announced,
                StepResult::Announced(_) => announced = true,
            }
            if announced && policy.notice > Duration::ZERO {
                return true;
            }
        }
    }

    pub(super) fn files(&self) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(file::folder(self.home.path())).into_iter().flatten();
        entries.map(|it| it.unwrap().path()).collect()
    }

    async fn messages(&self, chat: usize) -> usize {
        let id = session(chat);
        self.db.read(move |reader| Ok(reader.rows_last(&id, 10_000)?.len())).await.unwrap()
    }
}

pub(super) fn key(chat: usize) -> SessionKey {
    SessionKey(format!("agent:main:telegram:dm:{chat}"))
}

pub(super) fn session(chat: usize) -> SessionId {
    SessionId(format!("20261101_000000_{chat:08x}"))
}

pub(super) fn add_conversation(
    tx: &Tx<'_>,
    chat: usize,
    messages: usize,
    at: Millis,
) -> Result<(), StoreError> {
    let platform = Platform::parse("telegram").unwrap();
    let source = Source::new(platform, ChatType::Dm, chat.to_string());
    tx.create_session(&session(chat), &key(chat), Some(&source), None, at)?;
    tx.put_entry(&Entry::new(key(chat), session(chat), Some(source), local_time(at)))?;
    for number in 0..messages {
        let text = format!("message {number} of chat {chat} about umbrellas, lanterns and {}", at.0);
        tx.append(&session(chat), &Message::user(text, at))?;
    }
    Ok(())
}

pub(super) fn prompt() -> Retention {
    Retention { notice: Duration::ZERO, age: Some(DAY), ..Retention::default() }
}

#[tokio::test]
async fn announces_before_archiving_the_first_conversation() {
    let fixture = RetentionFixture::new();
    let policy = Retention::default();
    fixture.converse(7, 3, START).await;
    assert!(!fixture.pass(&policy, START.after(179 * DAY)).await);
    assert!(fixture.pass(&policy, START.after(181 * DAY)).await);
    assert!(!fixture.pass(&policy, START.after(187 * DAY)).await);
    assert_eq!((fixture.messages(7).await, fixture.files().len()), (3, 0));
    let storage =
        storage_status(&fixture.db, fixture.home.path(), &policy, START.after(187 * DAY)).await.unwrap();
    assert_eq!(storage.archiving_from, Some(START.after(188 * DAY)));
    fixture.pass(&policy, START.after(188 * DAY)).await;
    assert_eq!((fixture.messages(7).await, fixture.files().len()), (0, 1));
}

#[tokio::test]
async fn restores_archived_conversation_unchanged() {
    let fixture = RetentionFixture::new();
    fixture.converse(7, 700, START).await;
    fixture.converse(8, 2, START.after(2 * DAY)).await;
    let before =
        fixture.db.read(|it| Ok((it.session(&session(7))?, it.rows_last(&session(7), 1000)?))).await.unwrap();
    let now = START.after(2 * DAY + 2 * HOUR);
    fixture.pass(&prompt(), now).await;
    assert_eq!((fixture.messages(7).await, fixture.messages(8).await), (0, 2), "only the old one leaves");
    assert!(fixture.db.read(|it| it.search("umbrellas", Some(&[key(7)]), 10)).await.unwrap().is_empty());
    let archives = fixture.db.read(|it| it.archives(10)).await.unwrap();
    assert_eq!(
        archives.iter().map(|it| (it.id.clone(), it.messages)).collect::<Vec<_>>(),
        [(session(7), 700)]
    );
    let path = fixture.files().pop().unwrap();
    let lines = move || file::lines(&path).unwrap();
    let again = lines.clone();
    let restored = fixture.db.write(Commit::Operator, move |tx| tx.restore(lines(), now)).await.unwrap();
    assert_eq!(restored, RestoreOutcome::Done { id: session(7), messages: 700 });
    let after =
        fixture.db.read(|it| Ok((it.session(&session(7))?, it.rows_last(&session(7), 1000)?))).await.unwrap();
    let last = |row: Option<petasos_store::SessionRow>| {
        row.map(|it| petasos_store::SessionRow { last_at: now, ..it })
    };
    assert_eq!((last(before.0), before.1), after);
    assert!(!fixture.db.read(|it| it.search("umbrellas", Some(&[key(7)]), 10)).await.unwrap().is_empty());
    let twice = fixture.db.write(Commit::Operator, move |tx| tx.restore(again(), now)).await.unwrap();
    assert_eq!(twice, RestoreOutcome::Present(session(7)));
    fixture.pass(&prompt(), now).await;
    assert_eq!(fixture.messages(7).await, 700, "a restored conversation counts as used");
}

#[tokio::test]
async fn keeps_conversation_with_waiting_message() {
    let fixture = RetentionFixture::new();
    fixture.converse(7, 3, START).await;
    let platform = Platform::parse("telegram").unwrap();
    let waiting = Inbound::new(Source::new(platform, ChatType::Dm, "7"), "1", "hello");
    fixture.db.write(Commit::AcceptBatch, move |tx| tx.accept(&waiting, &key(7), START)).await.unwrap();
    fixture.pass(&prompt(), START.after(30 * DAY)).await;
    assert_eq!((fixture.messages(7).await, fixture.files().len()), (3, 0));
}

#[tokio::test]
async fn keeps_conversation_used_while_being_archived() {
    let fixture = RetentionFixture::new();
    fixture.converse(7, 3, START).await;
    let now = START.after(30 * DAY);
    let before = START.after(29 * DAY);
    let it =
        fixture.db.read(move |reader| reader.archivable(ArchiveRule::Since(before))).await.unwrap().unwrap();
    fixture.converse(7, 1, START.after(DAY)).await;
    let done =
        archive_or_delete(&fixture.db, fixture.home.path(), RetentionAction::Archive, it, now).await.unwrap();
    assert_eq!(done, StepResult::Done);
    assert_eq!((fixture.messages(7).await, fixture.files().len()), (4, 0));
}

#[tokio::test]
async fn delete_and_keep_modes_write_no_archive() {
    for (mode, left) in [(RetentionAction::Keep, 3), (RetentionAction::Delete, 0)] {
        let fixture = RetentionFixture::new();
        fixture.converse(7, 3, START).await;
        fixture.pass(&Retention { mode, ..prompt() }, START.after(30 * DAY)).await;
        assert_eq!((fixture.messages(7).await, fixture.files().len()), (left, 0), "{mode:?}");
    }
}

fn set_modified(path: &Path, at: Millis) {
    let at = std::time::UNIX_EPOCH + Duration::from_millis(at.0);
    std::fs::File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

#[tokio::test]
async fn deletes_old_archives_listed_or_not() {
    let fixture = RetentionFixture::new();
    let policy = Retention { archives: Some(10 * DAY), ..prompt() };
    for chat in [7, 8] {
        fixture.converse(chat, 3, START).await;
    }
    fixture.pass(&policy, START.after(2 * DAY)).await;
    let folder = file::folder(fixture.home.path());
    for unlisted in ["unlisted.jsonl.gz", ".torn.jsonl.gz~"] {
        std::fs::write(folder.join(unlisted), "x").unwrap();
    }
    fixture.files().iter().for_each(|path| set_modified(path, START.after(2 * DAY)));
    let young = fixture.db.read(|it| it.archive_of(&session(8))).await.unwrap().unwrap();
    let young = folder.join(young.file.unwrap());
    set_modified(&young, START.after(3 * DAY));
    fixture.pass(&policy, START.after(12 * DAY + HOUR)).await;
    assert_eq!(fixture.files(), std::slice::from_ref(&young));
    let listed = fixture.db.read(|it| it.archives(10)).await.unwrap();
    assert_eq!(listed.iter().map(|it| it.id.clone()).collect::<Vec<_>>(), [session(8)]);
    let storage = storage_status(&fixture.db, fixture.home.path(), &policy, START).await.unwrap();
    assert_eq!(storage.archive_bytes, std::fs::metadata(young).unwrap().len());
}

#[tokio::test]
async fn walks_a_large_archive_in_batches() {
    let fixture = RetentionFixture::new();
    let folder = file::folder(fixture.home.path());
    std::fs::create_dir_all(&folder).unwrap();
    for number in 0..1200 {
        std::fs::write(folder.join(format!("{number}.jsonl.gz")), "x").unwrap();
    }
    let age = Some(DAY);
    let now = clock::now().after(2 * DAY);
    let mut walk = ArchiveFolder::default();
    let mut left = Vec::new();
    let mut more = true;
    while more {
        more = walk.step(&fixture.db, fixture.home.path(), age, now).await.unwrap();
        left.push(fixture.files().len());
    }
    assert_eq!(left, [700, 200, 0]);
    assert!(!walk.step(&fixture.db, fixture.home.path(), age, now).await.unwrap(), "not again at once");
}

#[tokio::test]
async fn keeps_both_archives_of_a_session_id_that_is_used_again() {
    let fixture = RetentionFixture::new();
    fixture.converse(7, 3, START).await;
    fixture.pass(&prompt(), START.after(2 * DAY)).await;
    fixture.converse(7, 2, START.after(3 * DAY)).await;
    fixture.pass(&prompt(), START.after(5 * DAY)).await;
    let mut lines: Vec<usize> =
        fixture.files().iter().map(|path| file::lines(path).unwrap().map(Result::unwrap).count()).collect();
    lines.sort_unstable();
    // Each has a head and the row of the session besides its messages.
    assert_eq!(lines, [2 + 2, 2 + 3]);
}

#[tokio::test]
async fn deletes_only_rows_that_were_archived() {
    let fixture = RetentionFixture::new();
    fixture.converse(7, 3, START).await;
    let now = START.after(2 * DAY);
    let it =
        fixture.db.read(move |reader| reader.archivable(ArchiveRule::Since(now))).await.unwrap().unwrap();
    let left = fixture.db.write(Commit::Sweep, move |tx| tx.archive_session(&it, None, now)).await.unwrap();
    assert!(left);
    fixture.converse(7, 2, now).await;
    fixture.pass(&prompt(), now.after(HOUR)).await;
    assert_eq!(fixture.messages(7).await, 2, "a conversation that has the same id by then");
}

#[tokio::test]
async fn new_conversation_with_reused_id_starts_empty() {
    let fixture = RetentionFixture::new();
    fixture.converse(7, 700, START).await;
    let now = START.after(2 * DAY);
    let it =
        fixture.db.read(move |reader| reader.archivable(ArchiveRule::Since(now))).await.unwrap().unwrap();
    let left = fixture.db.write(Commit::Sweep, move |tx| tx.archive_session(&it, None, now)).await.unwrap();
    assert!(left);
    assert_eq!(fixture.messages(7).await, 700, "its messages go later, in batches");
    fixture.converse(7, 0, now).await;
    assert_eq!(fixture.messages(7).await, 0);
    assert!(!fixture.db.write(Commit::Sweep, |tx| tx.remove_archived()).await.unwrap().more);
}

#[tokio::test]
async fn size_limit_spares_conversations_bound_to_chats() {
    let fixture = RetentionFixture::new();
    let disk = DiskLimits { percent: 0, bytes: 0, days: 0 };
    let policy = Retention { database: Some(1), age: None, disk, ..prompt() };
    for chat in [7, 8, 9] {
        fixture.converse(chat, 3, START).await;
    }
    fixture.db.write(Commit::Submit, |tx| tx.end_session(&session(8), "session_reset", START)).await.unwrap();
    fixture.db.write(Commit::Submit, |tx| tx.unbind_session(&session(9))).await.unwrap();
    let left = async || (fixture.messages(7).await, fixture.messages(8).await, fixture.messages(9).await);
    let warning = async |now| {
        storage_status(&fixture.db, fixture.home.path(), &policy, now)
            .await
            .unwrap()
            .warning
            .unwrap_or_default()
    };
    assert!(!warning(START.after(2 * HOUR)).await.contains("max_database_mb"), "two may leave");
    fixture.pass(&policy, START.after(2 * HOUR)).await;
    assert_eq!(left().await, (3, 0, 0), "ended and unbound ones leave");
    assert!(warning(START.after(2 * HOUR)).await.contains("max_database_mb"), "nothing more may leave");
    fixture.pass(&policy, START.after(6 * DAY)).await;
    assert_eq!(left().await, (3, 0, 0));
    fixture.pass(&policy, START.after(8 * DAY)).await;
    assert_eq!(left().await, (0, 0, 0), "a week without use");
}

#[tokio::test]
async fn notifies_chat_of_archived_conversation() {
    let fixture = RetentionFixture::new();
    fixture.converse(7, 3, START).await;
    fixture.pass(&prompt(), START.after(2 * DAY)).await;
    let settings = Settings::new(fixture.home.path());
    let source = Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "7");
    let opened = fixture.db.write(Commit::Begin, move |tx| {
        let open = || settings.open(tx, &key(7), &source, "", ResolveMode::Continue, START.after(3 * DAY));
        Ok((open()?.notice, open()?.notice))
    });
    let (first, second) = opened.await.unwrap();
    assert!(first.unwrap().contains(&format!("petasos sessions restore {}", session(7).as_str())));
    assert_eq!(second, None, "once");
}

#[tokio::test]
async fn enqueues_announcement_with_start_of_notice_period() {
    let telegram = Platform::parse("telegram").unwrap();
    let homes = vec![Route::to_source(&Source::new(telegram, ChatType::Dm, "42"), Delivery::Push)];
    let fixture = RetentionFixture { homes, ..RetentionFixture::new() };
    fixture.converse(7, 3, START).await;
    let now = START.after(200 * DAY);
    let mut folder = ArchiveFolder::default();
    let policy = Retention::default();
    let done =
        step(&fixture.db, fixture.home.path(), &policy, &fixture.homes, &mut folder, now).await.unwrap();
    assert_eq!(done, StepResult::Announced(now.after(7 * DAY)));
    let (at, notices) = fixture.db.read(|it| Ok((announced(it)?, it.outbox_counts()?))).await.unwrap();
    assert_eq!((at, notices.due), (Some(now), 1));
}

#[tokio::test]
async fn archives_invalid_utf8_with_lossy_mark() {
    let fixture = RetentionFixture::new();
    for chat in [7, 8] {
        fixture.converse(chat, 2, START.after(HOUR * chat as u32)).await;
    }
    let raw = rusqlite::Connection::open(fixture.home.path().join("petasos.db")).unwrap();
    let broken = "UPDATE messages SET content = CAST(x'61ff62' AS TEXT) WHERE id = 1;
                  UPDATE sessions SET title = CAST(x'ff' AS TEXT) WHERE id LIKE '%7'";
    raw.execute_batch(broken).unwrap();
    drop(raw);
    fixture.pass(&prompt(), START.after(3 * DAY)).await;
    assert_eq!((fixture.messages(7).await, fixture.messages(8).await), (0, 0));
    let mut files = fixture.files();
    files.sort();
    let text = |path: &Path| file::lines(path).unwrap().map(Result::unwrap).collect::<Vec<_>>().join("\n");
    assert!(text(&files[0]).contains("a\u{fffd}b") && !text(&files[1]).contains("lossy"));
    assert_eq!(text(&files[0]).matches("\"lossy\":true").count(), 2);
    let path = files.remove(0);
    let now = START.after(3 * DAY);
    let restore = move |tx: &Tx<'_>| tx.restore(file::lines(&path)?, now);
    let restored = fixture.db.write(Commit::Operator, restore).await.unwrap();
    assert_eq!(restored, RestoreOutcome::Done { id: session(7), messages: 2 });
}
