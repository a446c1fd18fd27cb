//! `/memory`: what is remembered of whoever asks.

use petasos_agent::memory::{Memory, Shelf};
use petasos_core::journal::Outcome;
use petasos_core::person::Person;
use petasos_store::Pending;

use crate::sessions::{Ended, Session};

impl Session {
    pub(in crate::sessions) async fn memory(&mut self, pending: &Pending, args: &str) -> Result<(), Ended> {
        let memory = Memory::of(&self.handles.home, &Person::of(&pending.inbound.source, &self.key));
        let wanted = args.trim().to_lowercase();
        // Small files; a disk that does not answer is no reason for the session to wait.
        let text = petasos_runtime::blocking(move || said(&memory, &wanted)).await;
        let text = text.unwrap_or_else(|_panicked| "⚠️ What I remember could not be read.".into());
        self.answer(pending, text, Outcome::Answered).await
    }
}

fn said(memory: &Memory, wanted: &str) -> String {
    let shown = match wanted {
        "" | "show" => shown(memory),
        "clear" => memory.clear().map(|cleared| match cleared {
            true => {
                "🧠 Forgotten. This conversation still knows it; /new starts one that does not.".to_owned()
            }
            false => "🧠 There was nothing to forget.".to_owned(),
        }),
        _ => return "Use /memory to see what I remember, or /memory clear to have me forget it.".into(),
    };
    shown.unwrap_or_else(|error| format!("⚠️ What I remember cannot be used: {error}"))
}

fn shown(memory: &Memory) -> std::io::Result<String> {
    let mut text = String::new();
    for (shelf, title) in [(Shelf::Memory, "What I noted"), (Shelf::User, "What I know about you")] {
        let entries = memory.entries(shelf)?;
        if !entries.is_empty() {
            text.push_str(&format!("\n\n{title}:\n"));
            text.push_str(&entries.iter().map(|entry| format!("- {entry}")).collect::<Vec<_>>().join("\n"));
        }
    }
    if text.is_empty() {
        return Ok("🧠 I remember nothing yet.".into());
    }
    Ok(format!("🧠{text}\n\n/memory clear has me forget all of it."))
}
