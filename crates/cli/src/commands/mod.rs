//! Commands, grouped by domain, and their shared context.

mod access;
mod conversations;
mod delivery;
mod lifecycle;
mod maintenance;

pub use access::{approvals, open, pairing};
pub use conversations::{chat, cron, memory, sessions};
pub use delivery::{channels, links, outbox, send};
pub use lifecycle::{drain, restart, resume, status, stop};
pub use maintenance::{backup, config, prove, service, version};

use petasos_config::{Home, Problem, Resolved};
use petasos_store::{OpenError, Reader, Store};

use crate::failure::Failure;
use crate::logs::Verbosity;
use crate::{lock, print};

#[derive(Debug)]
pub struct Context {
    pub home: Home,
    pub json: bool,
    pub verbosity: Verbosity,
}

/// Checks whether a gateway could start with these settings. Adds problems to them and returns the errors.
pub type StartCheck<'a> = &'a dyn Fn(&Home, &mut Resolved) -> Result<(), Vec<Problem>>;

pub fn print_warnings(problems: &[Problem]) {
    for problem in problems.iter().filter(|it| it.severity != petasos_config::Severity::Error) {
        print::errln!("{} {problem}", print::styled(print::WARNING, "warning:"));
    }
}

/// Opens the database read-only, with or without a running gateway. `None` if it does not exist yet.
pub fn open_reader(home: &Home) -> Result<Option<Reader>, Failure> {
    if !home.database().exists() {
        return missing_database(home).map_or(Ok(None), |error| Err(error.into()));
    }
    Ok(Some(Reader::open(home.database())?))
}

/// The error for a database that existed and is gone, as its marker file shows.
pub fn missing_database(home: &Home) -> Option<OpenError> {
    let marker = home.database_marker();
    (!home.database().exists() && marker.exists())
        .then(|| OpenError::Vanished { path: home.database(), sign: marker })
}

/// Writes without a gateway: locks the home meanwhile.
pub fn write_offline<T>(
    home: &Home,
    update: impl FnOnce(&petasos_store::Tx<'_>) -> petasos_store::Result<T>,
) -> Result<T, Failure> {
    let _lock = lock::acquire(home)?;
    let mut store = Store::open(home.database())?;
    let result = store.write(update)?;
    store.close()?;
    Ok(result)
}
