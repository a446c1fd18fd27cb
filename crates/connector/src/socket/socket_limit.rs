//! Derives the socket limit from the limit of open files, leaving a reserve for queue, platforms and file transfers.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const RESERVED: u64 = 512;

pub(crate) fn apply(wanted: usize) -> usize {
    let needed = u64::try_from(wanted).unwrap_or(u64::MAX).saturating_add(RESERVED);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(soft) = current.filter(|soft| *soft < needed) else { return wanted };
    let raised = maximum.map_or(needed, |hard| hard.min(needed));
    let open_files = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        Ok(()) => raised,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files");
            soft
        }
    };
    if open_files >= needed {
        return wanted;
    }
    let fit = usize::try_from(open_files.saturating_sub(RESERVED)).unwrap_or(usize::MAX).max(1);
    tracing::warn!(
        wanted,
        fit,
        open_files,
        "fewer gateways can connect than connector.max_sockets allows; raise the limit of open files (ulimit -n, LimitNOFILE)"
    );
    fit
}
