//! `petasos memory`: what the agent remembers, to be read, changed and forgotten by its owner.

use std::process::{Command, ExitCode};

use petasos_agent::memory::{Memory, Shelf};
use petasos_core::person::Person;
use serde_json::json;

use super::Context;
use crate::arguments::{MemoryAction, Remembered};
use crate::failure::Failure;
use crate::print::{self, DIM, say, styled};

pub fn memory(context: &Context, wanted: Remembered) -> Result<ExitCode, Failure> {
    let person = wanted.person.map_or_else(Person::owner, |name| Person::named(&name));
    let memory = Memory::of(context.home.path(), &person);
    match wanted.action.unwrap_or(MemoryAction::Show) {
        MemoryAction::Show => show(context, &memory),
        MemoryAction::Edit { file } => edit(&memory, file.as_deref()),
        MemoryAction::Clear => clear(context, &memory),
    }
}

fn show(context: &Context, memory: &Memory) -> Result<ExitCode, Failure> {
    let read = |shelf: Shelf| memory.entries(shelf).map_err(|error| unusable(memory, shelf, &error));
    let (work, user) = (read(Shelf::Memory)?, read(Shelf::User)?);
    if context.json {
        print::json(&json!({ "memory": work, "user": user }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if work.is_empty() && user.is_empty() {
        say!("nothing is remembered");
        return Ok(ExitCode::SUCCESS);
    }
    for (shelf, entries) in [(Shelf::Memory, work), (Shelf::User, user)] {
        say!("{}", styled(DIM, &memory.path(shelf).display().to_string()));
        entries.iter().for_each(|entry| say!("- {entry}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn edit(memory: &Memory, file: Option<&str>) -> Result<ExitCode, Failure> {
    let shelf = Shelf::parse(file.unwrap_or("memory"))
        .ok_or_else(|| Failure::new("there are two files: memory and user"))?;
    let editor = ["VISUAL", "EDITOR"].iter().find_map(std::env::var_os).unwrap_or_else(|| "vi".into());
    memory.make().map_err(|error| unusable(memory, shelf, &error))?;
    let ended = Command::new(&editor).arg(memory.path(shelf)).status();
    let ended = ended.map_err(|error| {
        Failure::new(format!("{} cannot be started: {error}", editor.display()))
            .next("EDITOR names another one")
    })?;
    let entries = memory.entries(shelf).map_err(|error| unusable(memory, shelf, &error))?;
    let size: usize = entries.iter().map(|entry| entry.chars().count()).sum();
    say!("{} entries, {size} of {} characters; new conversations know them", entries.len(), shelf.room());
    Ok(if ended.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn clear(context: &Context, memory: &Memory) -> Result<ExitCode, Failure> {
    let cleared = memory.clear().map_err(|error| unusable(memory, Shelf::Memory, &error))?;
    if context.json {
        print::json(&json!({ "cleared": cleared }))?;
    } else if cleared {
        say!("everything is forgotten; conversations that have begun still know it");
    } else {
        say!("nothing was remembered");
    }
    Ok(ExitCode::SUCCESS)
}

fn unusable(memory: &Memory, shelf: Shelf, error: &std::io::Error) -> Failure {
    Failure::new(format!("{} cannot be used: {error}", memory.path(shelf).display()))
}
