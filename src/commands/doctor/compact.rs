//! `petasos doctor --compact`: rewrites the database without free pages.

use std::process::ExitCode;

use petasos_cli::commands::Context;
use petasos_cli::failure::Failure;
use petasos_cli::lock;
use petasos_cli::print::outln;
use petasos_store::Store;

const RESERVED_BYTES: u64 = 64 << 20;

pub(crate) fn compact(context: &Context) -> Result<ExitCode, Failure> {
    let _lock = lock::acquire(&context.home)?;
    let path = context.home.database();
    let store = Store::open(&path)?;
    let before = store.database_size()?;
    let disk = rustix::fs::statvfs(context.home.path());
    let free = disk.map(|found| found.f_bavail.saturating_mul(found.f_frsize)).unwrap_or_default();
    check_space(before.bytes, free)?;
    store.compact()?;
    store.checkpoint_truncate()?;
    let after = store.database_size()?;
    if let Some(damage) = store.location().reader()?.quick_check()? {
        return Err(Failure::new(format!("the database is damaged: {damage}")).next("petasos doctor"));
    }
    store.close()?;
    match (before.bytes >> 10, after.bytes >> 10) {
        (before, after) if after < before => {
            outln!("The database was compacted from {before} KB to {after} KB");
        }
        (_, after) => outln!("The database has no free space to remove; its size is {after} KB"),
    }
    Ok(ExitCode::SUCCESS)
}

/// The copy and the write-ahead log that it goes through need space.
fn check_space(database: u64, free: u64) -> Result<(), Failure> {
    let needed = database * 2 + RESERVED_BYTES;
    if free >= needed {
        return Ok(());
    }
    let message = format!("not enough space: {} MB needed, {} MB free", needed >> 20, free >> 20);
    Err(Failure::new(message).next("free some space; nothing was changed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_without_space_for_copy_and_log() {
        assert!(check_space(100 << 20, 264 << 20).is_ok());
        let message = check_space(100 << 20, (264 << 20) - 1).expect_err("too little").to_string();
        assert!(message.contains("264 MB needed, 263 MB free"), "{message}");
    }
}
