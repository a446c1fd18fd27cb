//! Programs of the owner's that are told what happens, and asked before a command is obeyed.
//!
//! Owns the list, read once at the start (`read.rs`), and one mailbox per hook: a hook hears its events one after the
//! other, and one that is slow delays nobody but itself; what no longer fits is dropped and logged. Only commands wait
//! for an answer, and never longer than [`PATIENCE`]. Nothing is kept: what a hook has not heard when the process ends
//! is not told again.

mod read;
mod run;

use std::sync::Arc;
use std::time::Duration;

use petasos_core::Source;
use petasos_core::ids::SessionId;
use petasos_core::text::Unit;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use crate::lifecycle::shutdown::Stopper;
pub use read::{Broken, Hook, read};
pub use run::Said;

/// Events that may wait at one hook.
const DEPTH: usize = 64;
/// Programs that run at the same time, of those that are told and of those that are asked.
const PARALLEL: usize = 8;
/// How long a command waits for all its hooks together.
const PATIENCE: Duration = Duration::from_secs(30);
/// Characters of a message that a hook is told.
const SHOWN: usize = 500;

/// The way to the hooks.
#[derive(Debug)]
pub(crate) struct Hooks {
    hooks: Vec<(Arc<Hook>, mpsc::Sender<Told>)>,
    /// For those that are asked: they do not wait for those that are told.
    asking: Semaphore,
}

#[derive(Debug)]
struct Told {
    event: &'static str,
    context: Value,
}

impl Hooks {
    /// Starts whoever listens; they end with the gateway.
    pub(crate) fn start(hooks: Vec<Hook>, stopper: &Stopper) -> Self {
        let permits = Arc::new(Semaphore::new(PARALLEL));
        let start = |hook: Hook| {
            let hook = Arc::new(hook);
            let (sender, inbox) = mpsc::channel(DEPTH);
            petasos_runtime::spawn(listen(hook.clone(), inbox, permits.clone(), stopper.clone()));
            (hook, sender)
        };
        Self { hooks: hooks.into_iter().map(start).collect(), asking: Semaphore::new(PARALLEL) }
    }

    /// Tells whoever wants to know. Waits for nobody.
    pub(crate) fn tell(&self, event: &'static str, context: impl FnOnce() -> Value) {
        let mut wanted = self.hooks.iter().filter(|(hook, _)| hook.hears(event)).peekable();
        if wanted.peek().is_none() {
            return;
        }
        let context = context();
        for (hook, sender) in wanted {
            if sender.try_send(Told { event, context: context.clone() }).is_err() {
                tracing::warn!(hook = hook.name, event, "a hook is too slow; it was not told");
            }
        }
    }

    /// Asks before a command is obeyed: those that name it first. The first that does not simply allow it decides.
    pub(crate) async fn ask(&self, command: &str, context: Value) -> Said {
        let event = format!("command:{command}");
        let all = self.hooks.iter().map(|(hook, _)| hook.clone());
        let (mut wanted, rest): (Vec<_>, Vec<_>) =
            all.filter(|hook| hook.hears(&event)).partition(|hook| hook.names(&event));
        wanted.extend(rest);
        let asking = async {
            for hook in &wanted {
                let answer = {
                    let _permit = self.asking.acquire().await;
                    run::ask(hook, &event, &context).await
                };
                match answer {
                    Ok(Said::Allow) => {}
                    Ok(decided) => {
                        tracing::info!(
                            hook = hook.name,
                            event,
                            decision = decided.as_str(),
                            "a hook decided"
                        );
                        return decided;
                    }
                    Err(error) => tracing::warn!(hook = hook.name, event, %error, "a hook failed"),
                }
            }
            Said::Allow
        };
        tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_late| {
            tracing::warn!(event, "the hooks of a command take too long; it is obeyed without them");
            Said::Allow
        })
    }
}

async fn listen(hook: Arc<Hook>, mut inbox: mpsc::Receiver<Told>, permits: Arc<Semaphore>, stopper: Stopper) {
    let hearing = async {
        while let Some(Told { event, context }) = inbox.recv().await {
            let _permit = permits.acquire().await;
            if let Err(error) = run::tell(&hook, event, &context).await {
                tracing::warn!(hook = hook.name, event, %error, "a hook failed");
            }
        }
    };
    petasos_runtime::select! {
        () = hearing => {}
        // Dropping it ends the program that runs.
        () = stopper.stopped() => {}
    }
}

/// Who and where, and in which transcript.
pub(crate) fn context(source: &Source, session: Option<&SessionId>) -> Value {
    json!({
        "platform": source.platform.to_string(),
        "user_id": source.user_id,
        "chat_id": source.chat_id,
        "thread_id": source.thread_id,
        "chat_type": source.chat_type.as_str(),
        "session_id": session.map(SessionId::as_str),
    })
}

/// As much of a text as hooks are told.
pub(crate) fn shown(text: &str) -> &str {
    Unit::Chars.prefix(text, SHOWN)
}
