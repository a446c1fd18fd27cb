//! Load test: three weeks of traffic with small limits for database, cache and memory.

use std::collections::HashSet;

use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::message::{ChatType, Delivery};
use petasos_core::outbox::{Draft, Kind};
use petasos_core::turn::Turn;
use petasos_core::{Inbound, Platform, Source};
use petasos_store::Tx;

use super::tests::{HOUR, RetentionFixture, START, add_conversation, key, prompt, session};
use super::*;
use crate::clock;
use crate::inbound::downloads::{DownloadSettings, Downloader};

const HOURS: u32 = 21 * 24;
const EACH: usize = 6;
const DATABASE: u64 = 1 << 20;
const CACHE: u64 = 64 << 10;
/// Bytes per message, with indexes and partly filled pages.
const ROW_BYTES: u64 = 2048;
/// Bytes per row that is kept for a month (`seen`).
const MARK_BYTES: u64 = 128;

fn rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Adds a conversation of [`EACH`] messages, each accepted, answered by a turn and delivered.
fn converse(tx: &Tx<'_>, chat: usize, at: Millis) -> Result<(), StoreError> {
    add_conversation(tx, chat, EACH, at)?;
    let source = Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, chat.to_string());
    let route = Route::to_source(&source, Delivery::Push);
    for number in 0..EACH {
        let text = format!("question {number} about umbrellas, ").repeat(12);
        let inbound = Inbound::new(source.clone(), format!("{chat}-{number}"), text.clone());
        let inbox = vec![tx.accept(&inbound, &key(chat), at)?.id()];
        let turn = Turn::new(key(chat), session(chat), route.clone(), inbox.clone(), at).unwrap();
        let answer = Draft {
            route: route.clone(),
            session_key: Some(key(chat)),
            turn: Some((turn.id, turn.step)),
            kind: Kind::Answer,
            text,
            buttons: Vec::new(),
        };
        let outcome = MessageOutcome::Answered;
        tx.apply(
            &[
                Write::ClaimInbox { inbox: inbox.clone(), turn: turn.id },
                Write::PutTurn(turn.clone()),
                Write::Enqueue(answer),
                Write::EndTurn { turn: turn.id, outcome, at },
                Write::SettleInbox { inbox, outcome, at },
            ],
            at,
        )?;
        let due = tx.due_of_lane(&route.lane(), 10)?;
        let sent = |item: &petasos_core::outbox::Item| Write::Delivered { item: item.id, message: None, at };
        tx.apply(&due.iter().map(sent).collect::<Vec<_>>(), at)?;
    }
    Ok(())
}

fn receive(home: &Path, chat: usize) {
    let folder = home.join("cache/images").join(chat.to_string());
    std::fs::create_dir_all(&folder).unwrap();
    let file = std::fs::File::create(folder.join("1-0.png")).unwrap();
    file.set_len(4096).unwrap();
    file.set_modified(clock::file_time() - HOUR).unwrap();
}

fn cached(home: &Path) -> u64 {
    let folders = std::fs::read_dir(home.join("cache/images")).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

/// `PETASOS_TRAFFIC_MESSAGES` sets how many messages; `./scripts/full` uses 100,000.
#[tokio::test]
async fn three_weeks_of_traffic_stay_within_limits() {
    let wanted = std::env::var("PETASOS_TRAFFIC_MESSAGES").ok().and_then(|it| it.parse().ok());
    let messages: usize = wanted.unwrap_or(6_000);
    let fixture = RetentionFixture::new();
    let policy = Retention { database: Some(DATABASE), ..prompt() };
    let downloader = Downloader::new(
        fixture.home.path(),
        DownloadSettings { max_cache_bytes: Some(CACHE), ..DownloadSettings::default() },
    );
    let mut chat = 0;
    let mut early = None;
    // Messages, turns and deliveries are kept for a week, rows of seen messages for a month.
    let per_day = messages as u64 / 21;
    let listed = 300 * (messages / EACH).min(5500) as u64;
    let bound = DATABASE
        + DATABASE / 20
        + SPARE_BYTES
        + 8 * per_day * ROW_BYTES
        + messages as u64 * MARK_BYTES
        + listed;
    let empty = fixture.db.read(|it| it.database_size()).await.unwrap().used_bytes();
    let mut without_retention = 0;
    for hour in 1..=HOURS {
        let now = START.after(HOUR * hour);
        while chat * EACH < messages * hour as usize / HOURS as usize {
            chat += 1;
            fixture.db.write(Commit::Submit, move |tx| converse(tx, chat, now)).await.unwrap();
            receive(fixture.home.path(), chat);
        }
        if hour == 24 {
            let size = fixture.db.read(|it| it.database_size()).await.unwrap();
            without_retention = (size.used_bytes() - empty) * u64::from(HOURS / 24);
        }
        while fixture.db.write(Commit::Sweep, move |tx| tx.prune(now)).await.unwrap().more {}
        fixture.pass(&policy, now).await;
        downloader.clean(&HashSet::new()).unwrap();
        let size = fixture.db.read(|it| it.database_size()).await.unwrap();
        assert!(size.bytes <= bound, "hour {hour}: {size:?}, bound {bound}");
        let cached = cached(fixture.home.path());
        assert!(cached <= CACHE, "hour {hour}: {cached} bytes in the cache");
        if hour == 10 * 24 {
            early = Some(rss());
        }
    }
    assert!(without_retention > bound * 5 / 4, "{without_retention} bytes would fit into {bound}");
    let grown = rss().saturating_sub(early.unwrap());
    assert!(grown < 32 << 10, "memory grew by {grown} KiB in eleven days");
    let archived = fixture.files().len();
    assert!(archived > chat / 2, "{archived} of {chat} conversations were archived");
}
