//! `petasos backup` and `petasos restore`.

use std::process::ExitCode;

use petasos_core::text::size;

use super::Context;
use crate::arguments::{Backup, Restore};
use crate::backup::schedule::Schedule;
use crate::backup::{self, Force, Plan, Secrets};
use crate::failure::Failure;
use crate::print::{self, BOLD, DIM, now, styled};

pub fn backup(context: &Context, wanted: &Backup) -> Result<ExitCode, Failure> {
    let settings = petasos_config::load(&context.home).settings;
    let secrets = if wanted.include_secrets { Secrets::Include } else { Secrets::LeaveOut };
    if !context.home.database().exists() {
        let error = super::vanished(&context.home).map(Failure::from);
        let none = || Failure::new("there is no database to back up yet").next("petasos run creates it");
        return Err(error.unwrap_or_else(none));
    }
    let made = match &wanted.out {
        Some(path) => backup::make_at(&context.home, path, secrets, now())?,
        None => {
            let plan = Schedule::of(&context.home, &settings).plan;
            let keep = wanted.keep.or(plan.keep);
            backup::make(&context.home, &Plan { secrets, keep, ..plan }, now())?
        }
    };
    if context.json {
        print::json(&made)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: u64 = made.manifest.database.rows.values().sum();
    print::say!("backup made and checked: {}", styled(BOLD, &made.path.display().to_string()));
    print::say!("  {} rows, {}", rows, size(made.bytes));
    if secrets == Secrets::LeaveOut {
        let words =
            "credentials are left out (.env, keys and tokens of config.yaml); --include-secrets adds them";
        print::say!("  {}", styled(DIM, words));
    }
    if made.removed > 0 {
        print::say!("  {} removed", print::count(made.removed as u64, "older backup", "older backups"));
    }
    Ok(ExitCode::SUCCESS)
}

pub fn restore(context: &Context, wanted: &Restore) -> Result<ExitCode, Failure> {
    let force = if wanted.force { Force::Yes } else { Force::No };
    let restored = backup::restore(&context.home, &wanted.backup, force, now())?;
    if context.json {
        print::json(&restored)?;
        return Ok(ExitCode::SUCCESS);
    }
    print::say!("restored: {}", styled(BOLD, &restored.home.display().to_string()));
    if let Some(replaced) = &restored.replaced {
        print::say!("  what was there is kept in {}", replaced.display());
    }
    if !restored.manifest.secrets {
        print::say!("  the backup has no credentials: put them into .env or config.yaml again");
    }
    print::say!(
        "  messages that may have been answered since are reported to their chats, not answered again"
    );
    print::say!("  next: petasos run");
    Ok(ExitCode::SUCCESS)
}
