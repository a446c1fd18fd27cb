//! A home folder with a database, and constructors for test data.

use std::path::PathBuf;
use std::process::Command;

use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::message::{ChatType, Delivery};
use petasos_core::outbox::{Draft, Item, Kind};
use petasos_core::turn::Turn;
use petasos_core::{
    Inbound, InboxId, LaneId, LinkId, Millis, OutboxId, Platform, Route, SessionId, SessionKey, Source,
    TurnId,
};
use petasos_store::{Accepted, Result, Store, Tx};
use tempfile::TempDir;

pub(crate) struct Home {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("petasos.db")).unwrap();
        Self { folder, store }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.store.path().into()
    }

    /// A connection that bypasses the store.
    pub(crate) fn raw(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    pub(crate) fn reopen(self) -> Self {
        let path = self.path();
        let Self { folder, store } = self;
        drop(store);
        Self { folder, store: Store::open(path).unwrap() }
    }

    /// Copies the files as a power failure leaves them, without a checkpoint.
    pub(crate) fn crash(self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["petasos.db", "petasos.db-wal", ".petasos-db"] {
            if let Err(error) = std::fs::copy(self.folder.path().join(name), folder.path().join(name)) {
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            }
        }
        let store = Store::open(folder.path().join("petasos.db")).unwrap();
        Self { folder, store }
    }

    pub(crate) fn write<T>(&mut self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> T {
        self.store.write(job).unwrap()
    }

    pub(crate) fn apply(&mut self, writes: &[Write]) -> Result<()> {
        self.store.write(|tx| tx.apply(writes, NOW))
    }

    pub(crate) fn accept(&mut self, chat: &str, dedup: &str) -> InboxId {
        let accepted = self.write(|tx| tx.accept(&inbound(chat, dedup), &key(chat), NOW));
        match accepted {
            Accepted::New(id) => id,
            Accepted::Duplicate(id) => panic!("{dedup} was accepted before, as {id}"),
        }
    }

    /// Enqueues one message and returns the stored item.
    pub(crate) fn enqueue(&mut self, chat: &str, text: &str) -> Item {
        self.apply(&[Write::Enqueue(draft(chat, text))]).unwrap();
        self.store.due_of_lane(&lane(&format!("telegram:{chat}")), 100).unwrap().pop().unwrap()
    }

    pub(crate) fn item(&self, id: OutboxId) -> Item {
        self.store.item(id).unwrap().unwrap()
    }
}

/// Command that runs one ignored test of this binary in its own process.
pub(crate) fn own_process(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command
}

pub(crate) const NOW: Millis = Millis(1_794_766_325_000);

pub(crate) fn later(seconds: u64) -> Millis {
    Millis(NOW.0 + seconds * 1000)
}

pub(crate) fn telegram() -> Platform {
    Platform::parse("telegram").unwrap()
}

pub(crate) fn key(chat: &str) -> SessionKey {
    SessionKey(format!("agent:main:telegram:dm:{chat}"))
}

pub(crate) fn session(name: &str) -> SessionId {
    SessionId(name.into())
}

pub(crate) fn source(chat: &str) -> Source {
    Source::new(telegram(), ChatType::Dm, chat)
}

pub(crate) fn inbound(chat: &str, dedup: &str) -> Inbound {
    Inbound::new(source(chat), dedup, format!("message {dedup}"))
}

pub(crate) fn turn(chat: &str, inbox: &[InboxId]) -> Turn {
    let route = Route::to_source(&source(chat), Delivery::Push);
    Turn::new(key(chat), session("s1"), route, inbox.to_vec(), NOW).unwrap()
}

pub(crate) fn draft(chat: &str, text: &str) -> Draft {
    Draft {
        route: Route::to_source(&source(chat), Delivery::Push),
        session_key: Some(key(chat)),
        turn: None,
        kind: Kind::Notice,
        text: text.into(),
        buttons: Vec::new(),
    }
}

pub(crate) fn answer_draft(chat: &str, turn: TurnId, step: u32, text: &str) -> Draft {
    Draft { turn: Some((turn, step)), kind: Kind::Answer, ..draft(chat, text) }
}

pub(crate) fn start(turn: &Turn) -> Vec<Write> {
    vec![Write::ClaimInbox { inbox: turn.inbox.clone(), turn: turn.id }, Write::PutTurn(turn.clone())]
}

/// The writes of core at the end of an answered turn.
pub(crate) fn finish(chat: &str, turn: &Turn, text: &str) -> Vec<Write> {
    let outcome = MessageOutcome::Answered;
    vec![
        Write::Enqueue(answer_draft(chat, turn.id, turn.step, text)),
        Write::EndTurn { turn: turn.id, outcome, at: NOW },
        Write::SettleInbox { inbox: turn.inbox.clone(), outcome, at: NOW },
    ]
}

pub(crate) fn lane(text: &str) -> LaneId {
    LaneId::parse(text).unwrap()
}

pub(crate) fn link() -> LinkId {
    LinkId { platform: telegram(), account: "1".into() }
}
