//! Owner-supplied programs that run on gateway events and can intercept commands.
//!
//! Owns the hook list, loaded once at startup (`manifest.rs`), and one bounded queue per hook, so that a slow hook
//! delays only itself; events that do not fit are dropped and logged. Only commands wait for a response, at most
//! [`DECISION_TIMEOUT`]. Nothing is persisted: events still queued when the process ends are lost.

mod manifest;
mod run;

use std::sync::Arc;
use std::time::Duration;

use petasos_core::Source;
use petasos_core::ids::SessionId;
use petasos_core::text::Unit;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use crate::lifecycle::shutdown::ShutdownHandle;
pub use manifest::{Hook, InvalidHook, read};
pub use run::HookDecision;

const QUEUE_CAPACITY: usize = 64;
/// Concurrent programs, counted separately for events and for decisions.
const PARALLEL: usize = 8;
/// For all hooks of one command together.
const DECISION_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TEXT_CHARS: usize = 500;

#[derive(Debug)]
pub(crate) struct Hooks {
    hooks: Vec<(Arc<Hook>, mpsc::Sender<QueuedEvent>)>,
    /// Separate from the permits for events, so that decisions never queue behind them.
    decision_permits: Semaphore,
}

#[derive(Debug)]
struct QueuedEvent {
    event: &'static str,
    context: Value,
}

impl Hooks {
    /// Starts one queue task per hook; they end with the gateway.
    pub(crate) fn start(hooks: Vec<Hook>, shutdown: &ShutdownHandle) -> Self {
        let permits = Arc::new(Semaphore::new(PARALLEL));
        let start = |hook: Hook| {
            let hook = Arc::new(hook);
            let (sender, inbox) = mpsc::channel(QUEUE_CAPACITY);
            petasos_runtime::spawn(run_queue(hook.clone(), inbox, permits.clone(), shutdown.clone()));
            (hook, sender)
        };
        Self { hooks: hooks.into_iter().map(start).collect(), decision_permits: Semaphore::new(PARALLEL) }
    }

    /// Queues an event for the hooks that match it, without waiting.
    pub(crate) fn notify(&self, event: &'static str, context: impl FnOnce() -> Value) {
        let mut wanted = self.hooks.iter().filter(|(hook, _)| hook.matches(event)).peekable();
        if wanted.peek().is_none() {
            return;
        }
        let context = context();
        for (hook, sender) in wanted {
            if sender.try_send(QueuedEvent { event, context: context.clone() }).is_err() {
                tracing::warn!(hook = hook.name, event, "hook queue is full; event dropped");
            }
        }
    }

    /// Runs the hooks of a command, those that list it by name first. The first decision other than `Allow` counts.
    pub(crate) async fn intercept(&self, command: &str, context: Value) -> HookDecision {
        let event = format!("command:{command}");
        let all = self.hooks.iter().map(|(hook, _)| hook.clone());
        let (mut wanted, rest): (Vec<_>, Vec<_>) =
            all.filter(|hook| hook.matches(&event)).partition(|hook| hook.lists_exactly(&event));
        wanted.extend(rest);
        let deciding = async {
            for hook in &wanted {
                let decision = {
                    let _permit = self.decision_permits.acquire().await;
                    run::request_decision(hook, &event, &context).await
                };
                match decision {
                    Ok(HookDecision::Allow) => {}
                    Ok(decided) => {
                        tracing::info!(
                            hook = hook.name,
                            event,
                            decision = decided.as_str(),
                            "hook intercepted a command"
                        );
                        return decided;
                    }
                    Err(error) => tracing::warn!(hook = hook.name, event, %error, "hook failed"),
                }
            }
            HookDecision::Allow
        };
        tokio::time::timeout(DECISION_TIMEOUT, deciding).await.unwrap_or_else(|_elapsed| {
            tracing::warn!(event, "command hooks timed out; the command runs without them");
            HookDecision::Allow
        })
    }
}

async fn run_queue(
    hook: Arc<Hook>,
    mut inbox: mpsc::Receiver<QueuedEvent>,
    permits: Arc<Semaphore>,
    shutdown: ShutdownHandle,
) {
    let handling = async {
        while let Some(QueuedEvent { event, context }) = inbox.recv().await {
            let _permit = permits.acquire().await;
            if let Err(error) = run::notify(&hook, event, &context).await {
                tracing::warn!(hook = hook.name, event, %error, "hook failed");
            }
        }
    };
    petasos_runtime::select! {
        () = handling => {}
                // Dropping `handling` kills the running program.
        () = shutdown.stopped() => {}
    }
}

/// Event fields that identify the chat, the person and the session.
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

pub(crate) fn excerpt(text: &str) -> &str {
    Unit::Chars.prefix(text, MAX_TEXT_CHARS)
}
