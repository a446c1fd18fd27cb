//! How many sockets fit. The system limits how many files a process may have open, and what gateways leave over must be
//! enough for the queue, the platforms and the files on their way.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are open besides the sockets of gateways.
const OTHERS: u64 = 512;

/// As many as are wanted, or as many as the system lets us have.
pub(crate) fn sockets(wanted: usize) -> usize {
    let needed = u64::try_from(wanted).unwrap_or(u64::MAX).saturating_add(OTHERS);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None`: as many as you like.
    let Some(soft) = current.filter(|soft| *soft < needed) else { return wanted };
    let most = maximum.map_or(needed, |hard| hard.min(needed));
    let have = match setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum }) {
        Ok(()) => most,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files cannot be raised");
            soft
        }
    };
    if have >= needed {
        return wanted;
    }
    let fit = usize::try_from(have.saturating_sub(OTHERS)).unwrap_or(usize::MAX).max(1);
    tracing::warn!(
        wanted,
        fit,
        open_files = have,
        "not as many gateways can connect as connector.max_sockets allows; raise the limit of open files (ulimit -n, LimitNOFILE)"
    );
    fit
}
