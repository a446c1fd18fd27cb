//! One file per command. What they share: the home, and how to print.

pub mod approvals;
pub mod backup;
pub mod channels;
pub mod chat;
pub mod config;
pub mod cron;
pub mod drain;
pub mod links;
pub mod memory;
pub mod open;
pub mod outbox;
pub mod pairing;
pub mod prove;
pub mod restart;
pub mod resume;
pub mod send;
pub mod service;
pub mod sessions;
pub mod status;
pub mod stop;
pub mod version;
mod wait;

use petasos_config::{Home, Problem, Resolved};
use petasos_store::{OpenError, Reader, Store};

use crate::failure::Failure;
use crate::logs::Loudness;
use crate::{lock, print};

/// What every command is given.
#[derive(Debug)]
pub struct Context {
    pub home: Home,
    pub json: bool,
    pub loudness: Loudness,
}

/// Whether a gateway could start with these settings. Problems are added to them; the errors come back, too.
pub type Check<'a> = &'a dyn Fn(&Home, &mut Resolved) -> Result<(), Vec<Problem>>;

/// Tells of warnings, once.
pub fn warn(problems: &[Problem]) {
    for problem in problems.iter().filter(|it| it.severity != petasos_config::Severity::Error) {
        print::warn_of!("{} {problem}", print::styled(print::ODD, "warning:"));
    }
}

/// The database as it is, whoever runs. `None`: there is none yet.
pub fn reader(home: &Home) -> Result<Option<Reader>, Failure> {
    if !home.database().exists() {
        return vanished(home).map_or(Ok(None), |error| Err(error.into()));
    }
    Ok(Some(Reader::open(home.database())?))
}

/// There was a database, and it is not there any more: that is not the same as none yet.
pub fn vanished(home: &Home) -> Option<OpenError> {
    let sign = home.database_marker();
    (!home.database().exists() && sign.exists()).then(|| OpenError::Vanished { path: home.database(), sign })
}

/// Writes without a gateway: takes the home for that moment.
pub fn write<T>(
    home: &Home,
    job: impl FnOnce(&petasos_store::Tx<'_>) -> petasos_store::Result<T>,
) -> Result<T, Failure> {
    let _lock = lock::take(home)?;
    let mut store = Store::open(home.database())?;
    let done = store.write(job)?;
    store.close()?;
    Ok(done)
}
