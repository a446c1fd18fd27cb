//! `petasos doctor --compact`: the database without free pages.

use std::process::ExitCode;

use petasos_cli::commands::Context;
use petasos_cli::failure::Failure;
use petasos_cli::lock;
use petasos_cli::print::say;
use petasos_store::Store;

/// Kept free beside the copy.
const MARGIN: u64 = 64 << 20;

pub(crate) fn compact(context: &Context) -> Result<ExitCode, Failure> {
    let _lock = lock::take(&context.home)?;
    let path = context.home.database();
    let store = Store::open(&path)?;
    let before = store.database_size()?;
    let disk = rustix::fs::statvfs(context.home.path());
    let free = disk.map(|found| found.f_bavail.saturating_mul(found.f_frsize)).unwrap_or_default();
    check_room(before.bytes, free)?;
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

/// There must be room for the copy and for the log it goes through.
fn check_room(database: u64, free: u64) -> Result<(), Failure> {
    let needed = database * 2 + MARGIN;
    if free >= needed {
        return Ok(());
    }
    let lack = format!("not enough room: {} MB are needed, {} MB are free", needed >> 20, free >> 20);
    Err(Failure::new(lack).next("make room; nothing was changed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_without_room_for_the_copy_and_the_log() {
        assert!(check_room(100 << 20, 264 << 20).is_ok());
        let lack = check_room(100 << 20, (264 << 20) - 1).expect_err("too little").to_string();
        assert!(lack.contains("264 MB are needed, 263 MB are free"), "{lack}");
    }
}
