//! `petasos config`: what is set, by whom, and what is wrong with it.

use std::process::ExitCode;

use petasos_core::text::nearest;
use serde_json::json;

use super::Context;
use crate::arguments::{Config, ConfigAction};
use crate::config::{self, Explanation, Problem, Settings, Severity, catalogue};
use crate::failure::Failure;
use crate::print::{self, BOLD, DIM, GOOD, ODD, styled};
use crate::wire::wire;

pub(crate) fn config(context: &Context, wanted: Config) -> Result<ExitCode, Failure> {
    match wanted.action {
        ConfigAction::Check => check(context),
        ConfigAction::Explain { key } => explain(context, &key),
        ConfigAction::Show { all } => show(context, all),
        ConfigAction::Reference => reference(context),
        ConfigAction::Path => path(context),
    }
}

fn check(context: &Context) -> Result<ExitCode, Failure> {
    let mut resolved = config::load(&context.home);
    // What is wrong is kept in `resolved` either way.
    let _ = wire(&context.home, &mut resolved);
    let bad = resolved.problems.iter().any(|problem| problem.severity != Severity::Warning);
    if context.json {
        print::json(&json!({ "ok": !bad, "problems": resolved.problems }))?;
    } else {
        resolved.problems.iter().for_each(Problem::tell);
        if !bad {
            crate::print::say!("{} the configuration can be used", styled(GOOD, "ok:"));
        }
    }
    Ok(if bad { ExitCode::from(78) } else { ExitCode::SUCCESS })
}

fn explain(context: &Context, key: &str) -> Result<ExitCode, Failure> {
    let resolved = config::load(&context.home);
    let Some(found) = config::explain(key, &resolved.settings) else {
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
    if let Some(default) = found.default {
        line("default", default);
    }
    if !found.environment.is_empty() {
        line("environment", &found.environment.join(", "));
    }
    if !found.also.is_empty() {
        line("also as", &found.also.join(", "));
    }
    if !found.used {
        line("note", "accepted, has no effect yet");
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
    let found = config::explain_group(name, settings);
    if found.is_empty() {
        return Err(unknown(name));
    }
    if context.json {
        print::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = found.iter().map(|row| {
        let note = if row.used { "" } else { " (no effect yet)" };
        vec![row.key.clone(), print::cut(&valued(row), 48), format!("{}{note}", row.help)]
    });
    print::table(&["KEY", "VALUE", "MEANING"], &rows.collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}

fn valued(found: &Explanation) -> String {
    match &found.value {
        None => "not set".into(),
        Some(serde_json::Value::String(text)) => format!("{text} (from {})", found.origin),
        Some(value) => format!("{value} (from {})", found.origin),
    }
}

fn unknown(key: &str) -> Failure {
    let known: Vec<String> = catalogue::all().map(|known| known.path.replace('*', "telegram")).collect();
    let failure = Failure::configuration(format!("unknown key {key}"));
    match nearest(key, known.iter().map(String::as_str)) {
        Some(meant) => failure.next(format!("did you mean {meant}?")),
        None => failure.next("petasos config show --all lists every key"),
    }
}

fn show(context: &Context, all: bool) -> Result<ExitCode, Failure> {
    let resolved = config::load(&context.home);
    let mut rows = config::explain_all(&resolved.settings);
    if all {
        let unset =
            catalogue::all().filter(|key| !resolved.settings.is_set(key.path) && !key.path.contains('*'));
        rows.extend(unset.filter_map(|key| config::explain(key.path, &resolved.settings)));
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    if context.json {
        print::json(&rows)?;
    } else {
        let cells = rows.iter().map(|row| {
            let value =
                row.value.as_ref().map_or("-".into(), |it| it.as_str().map_or(it.to_string(), str::to_owned));
            let origin =
                if row.used { row.origin.clone() } else { format!("{} (no effect yet)", row.origin) };
            vec![row.key.clone(), print::cut(&value, 48), origin]
        });
        print::table(&["KEY", "VALUE", "FROM"], &cells.collect::<Vec<_>>());
    }
    Ok(ExitCode::SUCCESS)
}

/// The same table that checks the file, for people.
fn reference(context: &Context) -> Result<ExitCode, Failure> {
    let rows = config::reference();
    if context.json {
        print::json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    crate::print::say!("| key | default | environment | meaning |\n|---|---|---|---|");
    for (key, row) in catalogue::all().zip(&rows) {
        let path = key.path.replace('*', "<platform>");
        let note = if row.used { "" } else { " *(no effect yet)*" };
        let environment = key.env.join(", ");
        crate::print::say!(
            "| `{path}` | {} | {environment} | {}{note} |",
            row.default.unwrap_or("–"),
            row.help
        );
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
