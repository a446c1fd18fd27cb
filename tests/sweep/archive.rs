//! Archiving: an old session is complete, in either the database or the archive.

use std::path::PathBuf;
use std::time::Duration;

use petasos_core::message::ChatType;
use petasos_core::session::Entry;
use petasos_core::transcript::Message;
use petasos_core::{Platform, SessionId, SessionKey, Source};
use petasos_gateway::{Side, clock};
use petasos_store::{Reader, Store, local_time};

use crate::fixture::{SweepFixture, SweepResult, wait};
use crate::support::{ProgramFixture, expect_success};

const ID: &str = "old_conversation";
const MESSAGES: usize = 700;

pub fn with_old_conversation() -> SweepFixture {
    let program =
        ProgramFixture::with_config("retention: {max_age_days: 30, notice_days: 0, every_seconds: 1}\n");
    let mut store = Store::open(program.database()).expect("a database");
    let at = clock::now().before(Duration::from_secs(40 * 24 * 3600));
    let id = SessionId(ID.into());
    let key = SessionKey("agent:main:telegram:dm:55".into());
    let source = Source::new(Platform::parse("telegram").expect("known"), ChatType::Dm, "55");
    let filled = store.write(|tx| {
        tx.bind_session(&Entry::new(key, id.clone(), Some(source), local_time(at)), at)?;
        (0..MESSAGES)
            .try_for_each(|number| tx.append(&id, &Message::user(format!("umbrella {number}"), at)).map(drop))
    });
    filled.expect("stored");
    SweepFixture::new(program)
}

pub fn wait_for_retention(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    Ok(())
}

/// The session is where the commit left it. The next process archives it, and it can be restored completely.
pub fn check(fixture: &mut SweepFixture, side: Side) -> SweepResult {
    let found = find_session(fixture)?;
    let want = match side {
        Side::Before => (Some(MESSAGES), None),
        Side::After => (None, Some(true)),
    };
    if found != want {
        return Err(format!("rows in the database and archive after the case: {found:?}"));
    }
    fixture.launch();
    wait("the conversation is archived", || find_session(fixture) == Ok((None, Some(true))))?;
    fixture.program.terminate();
    expect_success(&fixture.program.run(&["sessions", "restore", ID]));
    match find_session(fixture)? {
        (Some(MESSAGES), None) => Ok(()),
        other => Err(format!("rows in the database and archive after the restore: {other:?}")),
    }
}

/// The message count of the session, if it is in the database; whether the archive file exists, if an archive is listed.
fn find_session(fixture: &SweepFixture) -> Result<(Option<usize>, Option<bool>), String> {
    let id = SessionId(ID.into());
    let reader = Reader::open(fixture.program.database()).map_err(|error| error.to_string())?;
    let asked = reader.snapshot(|reader| {
        let messages = reader.rows_last(&id, MESSAGES + 1)?.len();
        Ok((reader.session(&id)?.map(|_| messages), reader.archive_of(&id)?))
    });
    let (rows, archive) = asked.map_err(|error| error.to_string())?;
    let folder: PathBuf = fixture.program.home.path().join("archive");
    Ok((rows, archive.map(|it| it.file.is_some_and(|name| folder.join(name).exists()))))
}
