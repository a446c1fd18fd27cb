//! `petasos memory`: shows, edits and clears the agent's memory.

use std::process::{Command, ExitCode};

use petasos_agent::memory::{Memory, MemoryFile};
use petasos_core::person::Person;
use serde_json::json;

use crate::arguments::{MemoryAction, MemoryArguments};
use crate::commands::Context;
use crate::failure::Failure;
use crate::print::{self, DIM, count, outln, styled};

pub fn memory(context: &Context, arguments: MemoryArguments) -> Result<ExitCode, Failure> {
    let person = arguments.person.map_or_else(Person::owner, |name| Person::named(&name));
    let memory = Memory::of(context.home.path(), &person);
    match arguments.action.unwrap_or(MemoryAction::Show) {
        MemoryAction::Show => show(context, &memory),
        MemoryAction::Edit { file } => edit(&memory, file.as_deref()),
        MemoryAction::Clear => clear(context, &memory),
    }
}

fn show(context: &Context, memory: &Memory) -> Result<ExitCode, Failure> {
    let entries =
        |file: MemoryFile| memory.entries(file).map_err(|error| memory_failure(memory, file, &error));
    let memory_entries = entries(MemoryFile::Memory)?;
    let user_entries = entries(MemoryFile::User)?;
    if context.json {
        print::json(&json!({ "memory": memory_entries, "user": user_entries }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if memory_entries.is_empty() && user_entries.is_empty() {
        outln!("Memory is empty");
        return Ok(ExitCode::SUCCESS);
    }
    for (file, entries) in [(MemoryFile::Memory, memory_entries), (MemoryFile::User, user_entries)] {
        outln!("{}", styled(DIM, &memory.path(file).display().to_string()));
        entries.iter().for_each(|entry| outln!("- {entry}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn edit(memory: &Memory, file: Option<&str>) -> Result<ExitCode, Failure> {
    let name = file.unwrap_or("memory");
    let unknown = || Failure::new(format!("unknown memory file {name}")).next("use memory or user");
    let file = MemoryFile::parse(name).ok_or_else(unknown)?;
    let editor = ["VISUAL", "EDITOR"].iter().find_map(std::env::var_os).unwrap_or_else(|| "vi".into());
    memory.create_folder().map_err(|error| memory_failure(memory, file, &error))?;
    let status = Command::new(&editor).arg(memory.path(file)).status();
    let status = status.map_err(|error| {
        Failure::new(format!("{} cannot be started: {error}", editor.display()))
            .next("set EDITOR to another editor")
    })?;
    let entries = memory.entries(file).map_err(|error| memory_failure(memory, file, &error))?;
    let size: usize = entries.iter().map(|entry| entry.chars().count()).sum();
    let stored = count(entries.len(), "entry", "entries");
    outln!("{stored}, {size} of {} characters; used by new conversations", file.capacity());
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn clear(context: &Context, memory: &Memory) -> Result<ExitCode, Failure> {
    let cleared = memory.clear().map_err(|error| memory_failure(memory, MemoryFile::Memory, &error))?;
    if context.json {
        print::json(&json!({ "cleared": cleared }))?;
    } else if cleared {
        outln!("Memory cleared; conversations that have read it still contain it");
    } else {
        outln!("Memory was already empty");
    }
    Ok(ExitCode::SUCCESS)
}

fn memory_failure(memory: &Memory, file: MemoryFile, error: &std::io::Error) -> Failure {
    Failure::new(format!("{} cannot be used: {error}", memory.path(file).display()))
}
