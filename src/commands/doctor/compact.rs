//! `petasos doctor --compact`: the database without free pages.

use std::process::ExitCode;

use petasos_store::Store;

use crate::commands::Context;
use crate::failure::Failure;
use crate::print::say;
use crate::serve;

/// Kept free beside the copy.
const MARGIN: u64 = 64 << 20;

pub(crate) fn compact(context: &Context) -> Result<ExitCode, Failure> {
    let _lock = serve::take(&context.home)?;
    let path = context.home.database();
    let store = Store::open(&path)?;
    let before = store.database_size()?;
    let needed = needed(before.bytes);
    let disk = rustix::fs::statvfs(context.home.path());
    let free = disk.map(|found| found.f_bavail.saturating_mul(found.f_frsize)).unwrap_or_default();
    if free < needed {
        let lack = format!("not enough room: {} MB are needed, {} MB are free", needed >> 20, free >> 20);
        return Err(Failure::new(lack).next("make room; nothing was changed"));
    }
    store.compact()?;
    store.fold()?;
    let after = store.database_size()?;
    if let Some(damage) = store.place().reader()?.quick_check()? {
        return Err(Failure::new(format!("the database is damaged: {damage}")).next("petasos doctor"));
    }
    store.close()?;
    say!("the database took {} KB and takes {} KB", before.bytes >> 10, after.bytes >> 10);
    Ok(ExitCode::SUCCESS)
}

/// The copy and the log it goes through.
const fn needed(bytes: u64) -> u64 {
    bytes * 2 + MARGIN
}
