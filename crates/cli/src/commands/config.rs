//! `petasos config`: what is set, by whom, and what is wrong with it.

use std::process::ExitCode;

use petasos_config::{Explanation, Settings, Severity};
use petasos_core::text::nearest;
use serde_json::json;

use super::{Check, Context};
use crate::arguments::{Config, ConfigAction};
use crate::failure::Failure;
use crate::print::{self, BOLD, DIM, GOOD, ODD, styled};

pub fn config(context: &Context, wanted: Config, can_start: Check<'_>) -> Result<ExitCode, Failure> {
    match wanted.action {
        ConfigAction::Check => check(context, can_start),
        ConfigAction::Explain { key } => explain(context, &key),
        ConfigAction::Show { all } => show(context, all),
        ConfigAction::Reference => reference(context),
        ConfigAction::Path => path(context),
    }
}

fn check(context: &Context, can_start: Check<'_>) -> Result<ExitCode, Failure> {
    let mut resolved = petasos_config::load(&context.home);
    // What is wrong is kept in `resolved` either way.
    let _ = can_start(&context.home, &mut resolved);
    let bad = resolved.problems.iter().any(|problem| problem.severity != Severity::Warning);
    if context.json {
        print::json(&json!({ "ok": !bad, "problems": resolved.problems }))?;
    } else {
        resolved.problems.iter().for_each(print::problem);
        if !bad {
            crate::print::say!("{} the configuration can be used", styled(GOOD, "ok:"));
        }
    }
    Ok(if bad { ExitCode::from(78) } else { ExitCode::SUCCESS })
}

fn explain(context: &Context, key: &str) -> Result<ExitCode, Failure> {
    let resolved = petasos_config::load(&context.home);
    let Some(found) = petasos_config::explain(key, &resolved.settings) else {
        return group(context, key, &resolved.settings);
    };
    if context.json {
        print::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    crate::print::say!("{}  {}", styled(BOLD, &found.key), found.help);
    let line =
        |name: &str, text: &str| crate::print::say!("  {} {text}", styled(DIM, &format!("{name:<11}")));
    line("value", &valued(&found));
    line("expects", &found.expects);
    if let Some(default) = &found.default {
        line("default", default);
    }
    if !found.environment.is_empty() {
        line("environment", &found.environment.join(", "));
    }
    if !found.also.is_empty() {
        line("also as", &found.also.join(", "));
    }
    match found.denies {
        Some(denies) => line("note", &format!("not implemented; {denies}")),
        None if !found.used => line("note", "accepted, has no effect yet"),
        None => line("takes effect", if found.reload == "live" { "at once" } else { "at the next start" }),
    }
    if resolved.has_errors() {
        crate::print::warn_of!(
            "{} the configuration has errors; petasos config check shows them",
            styled(ODD, "warning:")
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// A section, or a variable.
fn group(context: &Context, name: &str, settings: &Settings) -> Result<ExitCode, Failure> {
    let found = petasos_config::explain_group(name, settings);
    if found.is_empty() {
        return Err(unknown(name));
    }
    if context.json {
        print::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = found.iter().map(|row| {
        let note = note(row).map_or_else(String::new, |note| format!(" ({note})"));
        vec![row.key.clone(), print::cut(&valued(row), 48), format!("{}{note}", row.help)]
    });
    print::table(&["KEY", "VALUE", "MEANING"], &rows.collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}

/// What is to be known about a key that does not do what it says.
fn note(row: &Explanation) -> Option<&'static str> {
    match row.denies {
        Some(_) => Some("not implemented: denies"),
        None => (!row.used).then_some("no effect yet"),
    }
}

fn valued(found: &Explanation) -> String {
    match &found.value {
        None => "not set".into(),
        Some(serde_json::Value::String(text)) => format!("{text} (from {})", found.origin),
        Some(value) => format!("{value} (from {})", found.origin),
    }
}

fn unknown(key: &str) -> Failure {
    let known = petasos_config::known_paths();
    let failure = Failure::configuration(format!("unknown key {key}"));
    match nearest(key, known.iter().map(String::as_str)) {
        Some(meant) => failure.next(format!("did you mean {meant}?")),
        None => failure.next("petasos config show --all lists every key"),
    }
}

fn show(context: &Context, all: bool) -> Result<ExitCode, Failure> {
    let resolved = petasos_config::load(&context.home);
    let mut rows = petasos_config::explain_all(&resolved.settings);
    if all {
        rows.extend(petasos_config::explain_unset(&resolved.settings));
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    if context.json {
        print::json(&rows)?;
    } else {
        let cells = rows.iter().map(|row| {
            let value =
                row.value.as_ref().map_or("-".into(), |it| it.as_str().map_or(it.to_string(), str::to_owned));
            let origin = match note(row) {
                None => row.origin.clone(),
                Some(note) => format!("{} ({note})", row.origin),
            };
            vec![row.key.clone(), print::cut(&value, 48), origin]
        });
        print::table(&["KEY", "VALUE", "FROM"], &cells.collect::<Vec<_>>());
    }
    Ok(ExitCode::SUCCESS)
}

/// The same table that checks the file, for people.
fn reference(context: &Context) -> Result<ExitCode, Failure> {
    let rows = petasos_config::reference();
    if context.json {
        print::json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    crate::print::say!("| key | default | environment | meaning |\n|---|---|---|---|");
    for row in &rows {
        let note = note(row).map_or_else(String::new, |note| format!(" *({note})*"));
        let default = row.default.as_deref().unwrap_or("–");
        let environment = row.environment.join(", ");
        crate::print::say!("| `{}` | {default} | {environment} | {}{note} |", row.key, row.help);
    }
    Ok(ExitCode::SUCCESS)
}

fn path(context: &Context) -> Result<ExitCode, Failure> {
    let home = &context.home;
    let files = [
        ("home", home.path().to_path_buf()),
        ("config", home.config_file()),
        ("env", home.dotenv_file()),
        ("database", home.database()),
    ];
    if context.json {
        let mut told = serde_json::Map::new();
        told.extend(files.iter().map(|(name, path)| ((*name).to_owned(), json!(path))));
        told.insert("named_by".into(), json!(home.named_by));
        print::json(&told)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (name, path) in files {
        let there = if path.exists() { "" } else { " (not there)" };
        crate::print::say!("{name:<9} {}{}", path.display(), styled(DIM, there));
    }
    Ok(ExitCode::SUCCESS)
}
