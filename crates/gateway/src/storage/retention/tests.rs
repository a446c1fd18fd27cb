use petasos_core::message::{ChatType, Delivery};
use petasos_core::session::{Ask, Entry};
use petasos_core::transcript::Message;
use petasos_core::{Inbound, Platform, SessionId, SessionKey, Source};
use petasos_store::{Restored, Store, Tx, local_time};
use tempfile::TempDir;

use super::*;
use crate::lifecycle::config::Settings;
use crate::lifecycle::shutdown::Stopper;
use crate::storage::database::{self, Writer};

pub(super) const START: Millis = Millis(1_794_766_325_000);
pub(super) const HOUR: Duration = Duration::from_secs(3600);

pub(super) struct World {
    pub(super) home: TempDir,
    pub(super) db: Db,
    homes: Vec<Route>,
    folder: tokio::sync::Mutex<Folder>,
    _writer: Writer,
}

impl World {
    pub(super) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path().join("petasos.db")).unwrap();
        let (db, writer) = database::start(store, Stopper::default()).unwrap();
        Self { home, db, homes: Vec::new(), folder: tokio::sync::Mutex::default(), _writer: writer }
    }

    /// A conversation of this chat, used then.
    async fn talk(&self, chat: usize, messages: usize, at: Millis) {
        self.db.write(Commit::Submit, move |tx| talk(tx, chat, messages, at)).await.unwrap();
    }

    /// Steps until there is nothing more to do; gives whether something was announced.
    pub(super) async fn pass(&self, terms: &Retention, now: Millis) -> bool {
        let (mut announced, mut folder) = (false, self.folder.lock().await);
        loop {
            match step(&self.db, self.home.path(), terms, &self.homes, &mut folder, now).await.unwrap() {
                Step::More => {}
                Step::Done => return announced,
                Step::Announced(_) => announced = true,
            }
            if announced && terms.notice > Duration::ZERO {
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

pub(super) fn talk(tx: &Tx<'_>, chat: usize, messages: usize, at: Millis) -> Result<(), StoreError> {
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
async fn announces_before_the_first_conversation_leaves() {
    let world = World::new();
    let terms = Retention::default();
    world.talk(7, 3, START).await;
    assert!(!world.pass(&terms, START.after(179 * DAY)).await);
    assert!(world.pass(&terms, START.after(181 * DAY)).await);
    assert!(!world.pass(&terms, START.after(187 * DAY)).await);
    assert_eq!((world.messages(7).await, world.files().len()), (3, 0));
    let storage = storage(&world.db, world.home.path(), &terms, START.after(187 * DAY)).await.unwrap();
    assert_eq!(storage.archiving_from, Some(START.after(188 * DAY)));
    world.pass(&terms, START.after(188 * DAY)).await;
    assert_eq!((world.messages(7).await, world.files().len()), (0, 1));
}

#[tokio::test]
async fn an_archived_conversation_is_restored_as_it_was() {
    let world = World::new();
    world.talk(7, 700, START).await;
    world.talk(8, 2, START.after(2 * DAY)).await;
    let before =
        world.db.read(|it| Ok((it.session(&session(7))?, it.rows_last(&session(7), 1000)?))).await.unwrap();
    let now = START.after(2 * DAY + 2 * HOUR);
    world.pass(&prompt(), now).await;
    assert_eq!((world.messages(7).await, world.messages(8).await), (0, 2), "only the old one leaves");
    assert!(world.db.read(|it| it.search("umbrellas", Some(&[key(7)]), 10)).await.unwrap().is_empty());
    let archives = world.db.read(|it| it.archives(10)).await.unwrap();
    assert_eq!(
        archives.iter().map(|it| (it.id.clone(), it.messages)).collect::<Vec<_>>(),
        [(session(7), 700)]
    );
    let path = world.files().pop().unwrap();
    let lines = move || file::lines(&path).unwrap();
    let again = lines.clone();
    let restored = world.db.write(Commit::Operator, move |tx| tx.restore(lines(), now)).await.unwrap();
    assert_eq!(restored, Restored::Done { id: session(7), messages: 700 });
    let after =
        world.db.read(|it| Ok((it.session(&session(7))?, it.rows_last(&session(7), 1000)?))).await.unwrap();
    let last = |row: Option<petasos_store::SessionRow>| {
        row.map(|it| petasos_store::SessionRow { last_at: now, ..it })
    };
    assert_eq!((last(before.0), before.1), after);
    assert!(!world.db.read(|it| it.search("umbrellas", Some(&[key(7)]), 10)).await.unwrap().is_empty());
    let twice = world.db.write(Commit::Operator, move |tx| tx.restore(again(), now)).await.unwrap();
    assert_eq!(twice, Restored::Present(session(7)));
    world.pass(&prompt(), now).await;
    assert_eq!(world.messages(7).await, 700, "it counts as used");
}

#[tokio::test]
async fn a_conversation_with_something_under_way_stays() {
    let world = World::new();
    world.talk(7, 3, START).await;
    let platform = Platform::parse("telegram").unwrap();
    let waiting = Inbound::new(Source::new(platform, ChatType::Dm, "7"), "1", "hello");
    world.db.write(Commit::Take, move |tx| tx.accept(&waiting, &key(7), START)).await.unwrap();
    world.pass(&prompt(), START.after(30 * DAY)).await;
    assert_eq!((world.messages(7).await, world.files().len()), (3, 0));
}

#[tokio::test]
async fn a_conversation_used_while_its_file_was_written_stays() {
    let world = World::new();
    world.talk(7, 3, START).await;
    let (now, before) = (START.after(30 * DAY), START.after(29 * DAY));
    let it = world.db.read(move |reader| reader.archivable(Unused::Since(before))).await.unwrap().unwrap();
    world.talk(7, 1, START.after(DAY)).await;
    let done = take_out(&world.db, world.home.path(), Mode::Archive, it, now).await.unwrap();
    assert_eq!(done, Step::Done);
    assert_eq!((world.messages(7).await, world.files().len()), (4, 0));
}

#[tokio::test]
async fn deletes_if_told_to_and_keeps_if_told_to() {
    for (mode, left) in [(Mode::Keep, 3), (Mode::Delete, 0)] {
        let world = World::new();
        world.talk(7, 3, START).await;
        world.pass(&Retention { mode, ..prompt() }, START.after(30 * DAY)).await;
        assert_eq!((world.messages(7).await, world.files().len()), (left, 0), "{mode:?}");
    }
}

/// As if the file had been written then.
fn date(path: &Path, at: Millis) {
    let at = std::time::UNIX_EPOCH + Duration::from_millis(at.0);
    std::fs::File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

#[tokio::test]
async fn deletes_old_archives_whether_or_not_they_are_listed() {
    let world = World::new();
    let terms = Retention { archives: Some(10 * DAY), ..prompt() };
    for chat in [7, 8] {
        world.talk(chat, 3, START).await;
    }
    world.pass(&terms, START.after(2 * DAY)).await;
    let folder = file::folder(world.home.path());
    for unlisted in ["unlisted.jsonl.gz", ".torn.jsonl.gz~"] {
        std::fs::write(folder.join(unlisted), "x").unwrap();
    }
    world.files().iter().for_each(|path| date(path, START.after(2 * DAY)));
    let young = world.db.read(|it| it.archive_of(&session(8))).await.unwrap().unwrap();
    let young = folder.join(young.file.unwrap());
    date(&young, START.after(3 * DAY));
    world.pass(&terms, START.after(12 * DAY + HOUR)).await;
    assert_eq!(world.files(), std::slice::from_ref(&young));
    let listed = world.db.read(|it| it.archives(10)).await.unwrap();
    assert_eq!(listed.iter().map(|it| it.id.clone()).collect::<Vec<_>>(), [session(8)]);
    let storage = storage(&world.db, world.home.path(), &terms, START).await.unwrap();
    assert_eq!(storage.archive_bytes, std::fs::metadata(young).unwrap().len());
}

#[tokio::test]
async fn walks_a_large_archive_in_batches() {
    let world = World::new();
    let folder = file::folder(world.home.path());
    std::fs::create_dir_all(&folder).unwrap();
    for number in 0..1200 {
        std::fs::write(folder.join(format!("{number}.jsonl.gz")), "x").unwrap();
    }
    let (age, now) = (Some(DAY), clock::now().after(2 * DAY));
    let (mut walk, mut left, mut more) = (Folder::default(), Vec::new(), true);
    while more {
        more = walk.step(&world.db, world.home.path(), age, now).await.unwrap();
        left.push(world.files().len());
    }
    assert_eq!(left, [700, 200, 0]);
    assert!(!walk.step(&world.db, world.home.path(), age, now).await.unwrap(), "not again at once");
}

#[tokio::test]
async fn keeps_both_archives_of_a_session_id_that_is_used_again() {
    let world = World::new();
    world.talk(7, 3, START).await;
    world.pass(&prompt(), START.after(2 * DAY)).await;
    world.talk(7, 2, START.after(3 * DAY)).await;
    world.pass(&prompt(), START.after(5 * DAY)).await;
    let mut lines: Vec<usize> =
        world.files().iter().map(|path| file::lines(path).unwrap().map(Result::unwrap).count()).collect();
    lines.sort_unstable();
    // Each has a head and the row of the session besides its messages.
    assert_eq!(lines, [2 + 2, 2 + 3]);
}

#[tokio::test]
async fn deletes_only_the_rows_that_are_in_the_archive() {
    let world = World::new();
    world.talk(7, 3, START).await;
    let now = START.after(2 * DAY);
    let it = world.db.read(move |reader| reader.archivable(Unused::Since(now))).await.unwrap().unwrap();
    let left = world.db.write(Commit::Sweep, move |tx| tx.take_out(&it, None, now)).await.unwrap();
    assert!(left);
    world.talk(7, 2, now).await;
    world.pass(&prompt(), now.after(HOUR)).await;
    assert_eq!(world.messages(7).await, 2, "a conversation that has the same id by then");
}

#[tokio::test]
async fn a_new_conversation_with_a_leaving_id_starts_empty() {
    let world = World::new();
    world.talk(7, 700, START).await;
    let now = START.after(2 * DAY);
    let it = world.db.read(move |reader| reader.archivable(Unused::Since(now))).await.unwrap().unwrap();
    let left = world.db.write(Commit::Sweep, move |tx| tx.take_out(&it, None, now)).await.unwrap();
    assert!(left);
    assert_eq!(world.messages(7).await, 700, "its messages go later, in batches");
    world.talk(7, 0, now).await;
    assert_eq!(world.messages(7).await, 0);
    assert!(!world.db.write(Commit::Sweep, |tx| tx.remove_archived()).await.unwrap().more);
}

#[tokio::test]
async fn size_pressure_spares_conversations_that_chats_are_bound_to() {
    let world = World::new();
    let disk = DiskLimits { percent: 0, bytes: 0, days: 0 };
    let terms = Retention { database: Some(1), age: None, disk, ..prompt() };
    for chat in [7, 8, 9] {
        world.talk(chat, 3, START).await;
    }
    world.db.write(Commit::Submit, |tx| tx.end_session(&session(8), "session_reset", START)).await.unwrap();
    world.db.write(Commit::Submit, |tx| tx.unbind_session(&session(9))).await.unwrap();
    let left = async || (world.messages(7).await, world.messages(8).await, world.messages(9).await);
    let warning = async |now| {
        storage(&world.db, world.home.path(), &terms, now).await.unwrap().warning.unwrap_or_default()
    };
    assert!(!warning(START.after(2 * HOUR)).await.contains("max_database_mb"), "two may leave");
    world.pass(&terms, START.after(2 * HOUR)).await;
    assert_eq!(left().await, (3, 0, 0), "ended and unbound ones leave");
    assert!(warning(START.after(2 * HOUR)).await.contains("max_database_mb"), "nothing more may leave");
    world.pass(&terms, START.after(6 * DAY)).await;
    assert_eq!(left().await, (3, 0, 0));
    world.pass(&terms, START.after(8 * DAY)).await;
    assert_eq!(left().await, (0, 0, 0), "a week without use");
}

#[tokio::test]
async fn tells_a_chat_that_its_conversation_was_archived() {
    let world = World::new();
    world.talk(7, 3, START).await;
    world.pass(&prompt(), START.after(2 * DAY)).await;
    let settings = Settings::new(world.home.path());
    let source = Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "7");
    let opened = world.db.write(Commit::Begin, move |tx| {
        let open = || settings.open(tx, &key(7), &source, "", Ask::Continue, START.after(3 * DAY));
        Ok((open()?.notice, open()?.notice))
    });
    let (first, second) = opened.await.unwrap();
    assert!(first.unwrap().contains(&format!("petasos sessions restore {}", session(7).as_str())));
    assert_eq!(second, None, "once");
}

#[tokio::test]
async fn enqueues_the_announcement_in_the_commit_that_starts_the_notice_period() {
    let telegram = Platform::parse("telegram").unwrap();
    let homes = vec![Route::back_to(&Source::new(telegram, ChatType::Dm, "42"), Delivery::Push)];
    let world = World { homes, ..World::new() };
    world.talk(7, 3, START).await;
    let now = START.after(200 * DAY);
    let mut folder = Folder::default();
    let terms = Retention::default();
    let done = step(&world.db, world.home.path(), &terms, &world.homes, &mut folder, now).await.unwrap();
    assert_eq!(done, Step::Announced(now.after(7 * DAY)));
    let (at, notices) = world.db.read(|it| Ok((announced(it)?, it.outbox_counts()?))).await.unwrap();
    assert_eq!((at, notices.due), (Some(now), 1));
}

#[tokio::test]
async fn archives_text_that_is_not_utf8_with_a_mark() {
    let world = World::new();
    for chat in [7, 8] {
        world.talk(chat, 2, START.after(HOUR * chat as u32)).await;
    }
    let raw = rusqlite::Connection::open(world.home.path().join("petasos.db")).unwrap();
    let broken = "UPDATE messages SET content = CAST(x'61ff62' AS TEXT) WHERE id = 1;
                  UPDATE sessions SET title = CAST(x'ff' AS TEXT) WHERE id LIKE '%7'";
    raw.execute_batch(broken).unwrap();
    drop(raw);
    world.pass(&prompt(), START.after(3 * DAY)).await;
    assert_eq!((world.messages(7).await, world.messages(8).await), (0, 0));
    let mut files = world.files();
    files.sort();
    let text = |path: &Path| file::lines(path).unwrap().map(Result::unwrap).collect::<Vec<_>>().join("\n");
    assert!(text(&files[0]).contains("a\u{fffd}b") && !text(&files[1]).contains("lossy"));
    assert_eq!(text(&files[0]).matches("\"lossy\":true").count(), 2);
    let path = files.remove(0);
    let now = START.after(3 * DAY);
    let restore = move |tx: &Tx<'_>| tx.restore(file::lines(&path)?, now);
    let restored = world.db.write(Commit::Operator, restore).await.unwrap();
    assert_eq!(restored, Restored::Done { id: session(7), messages: 2 });
}
