//! `/memory`: shows or clears what the agent remembers of the author.

use petasos_agent::memory::{Memory, MemoryFile};
use petasos_core::journal::MessageOutcome;
use petasos_core::person::Person;
use petasos_store::PendingMessage;

use crate::notices::commands as notices;
use crate::sessions::{SessionError, SessionTask};

impl SessionTask {
    pub(in crate::sessions) async fn memory(
        &mut self,
        pending: &PendingMessage,
        args: &str,
    ) -> Result<(), SessionError> {
        let memory = Memory::of(&self.handles.home, &Person::of(&pending.inbound.source, &self.key));
        let wanted = args.trim().to_lowercase();
        // Off the event loop: the disk may hang.
        let text = petasos_runtime::blocking(move || run(&memory, &wanted)).await;
        let text = text.unwrap_or_else(|_panicked| notices::MEMORY_UNREADABLE.into());
        self.reply(pending, text, MessageOutcome::Answered).await
    }
}

fn run(memory: &Memory, wanted: &str) -> String {
    let list = match wanted {
        "" | "show" => list(memory),
        "clear" => memory.clear().map(|cleared| {
            let text = if cleared { notices::MEMORY_CLEARED } else { notices::MEMORY_ALREADY_EMPTY };
            text.to_owned()
        }),
        _ => return notices::MEMORY_USAGE.into(),
    };
    list.unwrap_or_else(notices::memory_failed)
}

fn list(memory: &Memory) -> std::io::Result<String> {
    let mut sections = Vec::new();
    for (shelf, title) in
        [(MemoryFile::Memory, notices::MEMORY_NOTES), (MemoryFile::User, notices::MEMORY_ABOUT_USER)]
    {
        let entries = memory.entries(shelf)?;
        if !entries.is_empty() {
            sections.push((title, entries));
        }
    }
    if sections.is_empty() {
        return Ok(notices::MEMORY_EMPTY.into());
    }
    Ok(notices::memory(&sections))
}
