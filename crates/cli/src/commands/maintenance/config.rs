//! `petasos config`: checks, explains and shows the configuration.

use std::process::ExitCode;

use petasos_config::{Explanation, Settings, Severity};
use petasos_core::text::nearest;
use serde_json::json;

use crate::arguments::{ConfigAction, ConfigArguments};
use crate::commands::{Context, StartCheck};
use crate::failure::Failure;
use crate::print::{self, BOLD, DIM, SUCCESS, WARNING, styled};

pub fn config(
    context: &Context,
    arguments: ConfigArguments,
    can_start: StartCheck<'_>,
) -> Result<ExitCode, Failure> {
    match arguments.action {
        ConfigAction::Check => check(context, can_start),
        ConfigAction::Explain { key } => explain(context, &key),
        ConfigAction::Show { all } => show(context, all),
        ConfigAction::Reference => reference(context),
        ConfigAction::Path => path(context),
    }
}

fn check(context: &Context, can_start: StartCheck<'_>) -> Result<ExitCode, Failure> {
    let mut resolved = petasos_config::load_checked(&context.home);
    // The problems are kept in `resolved` either way.
    let _ = can_start(&context.home, &mut resolved);
    let invalid = resolved.problems.iter().any(|problem| problem.severity != Severity::Warning);
    if context.json {
        print::json(&json!({ "ok": !invalid, "problems": resolved.problems }))?;
    } else {
        resolved.problems.iter().for_each(print::problem);
        if !invalid {
            crate::print::outln!("{} the configuration is valid", styled(SUCCESS, "ok:"));
        }
    }
    Ok(if invalid { ExitCode::from(78) } else { ExitCode::SUCCESS })
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
    crate::print::outln!("{}  {}", styled(BOLD, &found.key), found.help);
    let line =
        |name: &str, text: &str| crate::print::outln!("  {} {text}", styled(DIM, &format!("{name:<11}")));
    line("value", &value_and_source(&found));
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
        None if !found.used => line("note", "accepted, but has no effect yet"),
        None => line("takes effect", if found.reload == "live" { "at once" } else { "at the next start" }),
    }
    if resolved.has_errors() {
        crate::print::errln!(
            "{} the configuration has errors; petasos config check shows them",
            styled(WARNING, "warning:")
        );
    }
    Ok(ExitCode::SUCCESS)
}

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
        vec![row.key.clone(), print::truncate(&value_and_source(row), 48), format!("{}{note}", row.help)]
    });
    print::table(&["KEY", "VALUE", "MEANING"], &rows.collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}

fn note(row: &Explanation) -> Option<&'static str> {
    match row.denies {
        Some(_) => Some("not implemented: denies"),
        None => (!row.used).then_some("no effect yet"),
    }
}

fn value_and_source(found: &Explanation) -> String {
    match &found.value {
        None => "not set".into(),
        Some(serde_json::Value::String(text)) => format!("{text} (from {})", found.origin),
        // Without the decimal point of a whole number.
        Some(serde_json::Value::Number(number)) if number.is_f64() => {
            format!("{} (from {})", number.as_f64().unwrap_or_default(), found.origin)
        }
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
            vec![row.key.clone(), print::truncate(&value, 48), origin]
        });
        print::table(&["KEY", "VALUE", "FROM"], &cells.collect::<Vec<_>>());
    }
    Ok(ExitCode::SUCCESS)
}

/// The catalogue of keys as a Markdown table.
fn reference(context: &Context) -> Result<ExitCode, Failure> {
    let rows = petasos_config::reference();
    if context.json {
        print::json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    crate::print::outln!("| key | default | environment | meaning |\n|---|---|---|---|");
    for row in &rows {
        let note = note(row).map_or_else(String::new, |note| format!(" *({note})*"));
        let default = row.default.as_deref().unwrap_or("–");
        let environment = row.environment.join(", ");
        crate::print::outln!("| `{}` | {default} | {environment} | {}{note} |", row.key, row.help);
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
        let mut output = serde_json::Map::new();
        output.extend(files.iter().map(|(name, path)| ((*name).to_owned(), json!(path))));
        output.insert("named_by".into(), json!(home.named_by));
        print::json(&output)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (name, path) in files {
        let there = if path.exists() { "" } else { " (missing)" };
        crate::print::outln!("{name:<9} {}{}", path.display(), styled(DIM, there));
    }
    Ok(ExitCode::SUCCESS)
}
