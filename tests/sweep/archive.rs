//! An old conversation leaves the database: it is in exactly one of database and archive, whole.

use std::path::PathBuf;
use std::time::Duration;

use petasos_core::message::ChatType;
use petasos_core::session::Entry;
use petasos_core::transcript::Message;
use petasos_core::{Platform, SessionId, SessionKey, Source};
use petasos_gateway::{Side, clock};
use petasos_store::{Reader, Store, local_time};

use crate::life::{Life, Outcome, wait};
use crate::support::{Bench, fine};

const ID: &str = "old_conversation";
const MESSAGES: usize = 700;

pub fn with_old_conversation() -> Life {
    let bench = Bench::with("retention: {max_age_days: 30, notice_days: 0, every_seconds: 1}\n");
    let mut store = Store::open(bench.database()).expect("a database");
    let at = clock::now().before(Duration::from_secs(40 * 24 * 3600));
    let (id, key) = (SessionId(ID.into()), SessionKey("agent:main:telegram:dm:55".into()));
    let source = Source::new(Platform::parse("telegram").expect("known"), ChatType::Dm, "55");
    let filled = store.write(|tx| {
        tx.bind_session(&Entry::new(key, id.clone(), Some(source), local_time(at)), at)?;
        (0..MESSAGES)
            .try_for_each(|number| tx.append(&id, &Message::user(format!("umbrella {number}"), at)).map(drop))
    });
    filled.expect("stored");
    Life::new(bench)
}

pub fn wait_for_retention(life: &mut Life) -> Outcome {
    life.launch();
    Ok(())
}

/// The conversation is where the commit left it; the next process archives it, and it comes back whole.
pub fn check(life: &mut Life, side: Side) -> Outcome {
    let found = whereabouts(life)?;
    let want = match side {
        Side::Before => (Some(MESSAGES), None),
        Side::After => (None, Some(true)),
    };
    if found != want {
        return Err(format!("rows in the database and archive after the death: {found:?}"));
    }
    life.launch();
    wait("the conversation is archived", || whereabouts(life) == Ok((None, Some(true))))?;
    life.bench.terminate();
    fine(&life.bench.run(&["sessions", "restore", ID]));
    match whereabouts(life)? {
        (Some(MESSAGES), None) => Ok(()),
        other => Err(format!("rows in the database and archive after the restore: {other:?}")),
    }
}

/// How many messages the session has, if there is one; whether the file of its archive is there, if one is listed.
fn whereabouts(life: &Life) -> Result<(Option<usize>, Option<bool>), String> {
    let id = SessionId(ID.into());
    let reader = Reader::open(life.bench.database()).map_err(|error| error.to_string())?;
    let asked = reader.ask(|reader| {
        let messages = reader.rows_last(&id, MESSAGES + 1)?.len();
        Ok((reader.session(&id)?.map(|_| messages), reader.archive_of(&id)?))
    });
    let (rows, archive) = asked.map_err(|error| error.to_string())?;
    let folder: PathBuf = life.bench.home.path().join("archive");
    Ok((rows, archive.map(|it| it.file.is_some_and(|name| folder.join(name).exists()))))
}
