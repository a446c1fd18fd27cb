//! `petasos backup` and `petasos restore`.

use std::process::ExitCode;

use petasos_core::text::format_bytes;

use crate::arguments::{BackupArguments, RestoreArguments};
use crate::backup::schedule::BackupSchedule;
use crate::backup::{self, BackupPlan, Force, SecretsMode};
use crate::commands::Context;
use crate::failure::Failure;
use crate::print::{self, BOLD, DIM, now, styled};

pub fn backup(context: &Context, arguments: &BackupArguments) -> Result<ExitCode, Failure> {
    let settings = petasos_config::load(&context.home).settings;
    let secrets = if arguments.include_secrets { SecretsMode::Include } else { SecretsMode::Exclude };
    if !context.home.database().exists() {
        let error = crate::commands::missing_database(&context.home).map(Failure::from);
        let none = || Failure::new("there is no database to back up yet").next("petasos run creates it");
        return Err(error.unwrap_or_else(none));
    }
    let created = match &arguments.out {
        Some(path) => backup::create_at(&context.home, path, secrets, now())?,
        None => {
            let plan = BackupSchedule::from_settings(&context.home, &settings).plan;
            let keep = arguments.keep.or(plan.keep);
            backup::create(&context.home, &BackupPlan { secrets, keep, ..plan }, now())?
        }
    };
    if context.json {
        print::json(&created)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: u64 = created.manifest.database.rows.values().sum();
    print::outln!("Backup created and verified: {}", styled(BOLD, &created.path.display().to_string()));
    print::outln!("  {}, {}", print::count(rows, "row", "rows"), format_bytes(created.bytes));
    if secrets == SecretsMode::Exclude {
        let note = "Credentials are not included (.env, keys and tokens in config.yaml); --include-secrets includes them";
        print::outln!("  {}", styled(DIM, note));
    }
    if created.removed > 0 {
        print::outln!("  {} removed", print::count(created.removed as u64, "older backup", "older backups"));
    }
    Ok(ExitCode::SUCCESS)
}

pub fn restore(context: &Context, arguments: &RestoreArguments) -> Result<ExitCode, Failure> {
    let force = if arguments.force { Force::Yes } else { Force::No };
    let restored = backup::restore(&context.home, &arguments.backup, force, now())?;
    if context.json {
        print::json(&restored)?;
        return Ok(ExitCode::SUCCESS);
    }
    print::outln!("Restored: {}", styled(BOLD, &restored.home.display().to_string()));
    if let Some(replaced) = &restored.replaced {
        print::outln!("  the replaced files are kept in {}", replaced.display());
    }
    if !restored.manifest.secrets {
        print::outln!("  the backup contains no credentials: add them to .env or config.yaml again");
    }
    print::outln!(
        "  messages that may have been answered after the backup are reported in their chats, not answered again"
    );
    print::outln!("  next: petasos run");
    Ok(ExitCode::SUCCESS)
}
