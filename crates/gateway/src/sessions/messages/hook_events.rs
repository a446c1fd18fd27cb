//! Hook events of a session, and the command hooks.

use petasos_core::Source;
use petasos_core::command::{self as slash, Parsed};
use petasos_core::ids::SessionId;
use petasos_core::journal::MessageOutcome;
use petasos_core::transcript::ToolCall;
use petasos_store::PendingMessage;
use serde_json::{Value, json};

use crate::background::hooks::{HookDecision, context, excerpt};
use crate::sessions::SessionTask;
use crate::sessions::turn::RunningTurn;

impl SessionTask {
    /// Runs only if the author may use the command: a hook cannot grant access.
    pub(in crate::sessions) async fn run_command_hooks(&self, pending: &PendingMessage) -> HookDecision {
        let (command, args) = match slash::parse(&pending.inbound.text) {
            Parsed::Known(name, args) => (name.as_str().to_owned(), args),
            Parsed::Unknown(name) => {
                let args = pending.inbound.text.split_once(char::is_whitespace).map(|(_, args)| args.trim());
                (name, args.unwrap_or_default().to_owned())
            }
            Parsed::Text => return HookDecision::Allow,
        };
        if !self.may_use_command(pending, &command) {
            return HookDecision::Allow;
        }
        let session = self.view_tx.borrow().session.clone();
        let mut event_fields = context(&pending.inbound.source, session.as_ref());
        event_fields["command"] = command.as_str().into();
        event_fields["args"] = excerpt(&args).into();
        event_fields["message"] = excerpt(&pending.inbound.text).into();
        self.handles.hooks.intercept(&command, event_fields).await
    }

    /// `fresh`: the turn also starts a transcript, replacing that one.
    pub(in crate::sessions) fn emit_turn_start(&self, fresh: Option<Option<SessionId>>) {
        let Some(running) = &self.running else { return };
        if let (Some(before), Some(author)) = (fresh, &running.author) {
            self.emit_transcript_change(author, before.as_ref(), Some(&running.turn.session));
        }
        self.handles.hooks.notify("agent:start", || event_fields(running));
    }

    pub(in crate::sessions) fn emit_turn_step(&self, calls: &[ToolCall]) {
        let Some(running) = &self.running else { return };
        self.handles.hooks.notify("agent:step", || {
            let mut event_fields = event_fields(running);
            event_fields["iteration"] = running.turn.step.into();
            event_fields["tool_names"] = calls.iter().map(|call| call.name.as_str()).collect();
            event_fields
        });
    }

    pub(in crate::sessions) fn emit_turn_end(&self, running: &RunningTurn, outcome: MessageOutcome) {
        self.handles.hooks.notify("agent:end", || {
            let mut event_fields = event_fields(running);
            event_fields["response"] = running.answer.as_str().into();
            event_fields["outcome"] = outcome.as_str().into();
            event_fields
        });
    }

    /// A command has switched to another transcript.
    pub(in crate::sessions) fn emit_session_change(&self, author: &Source, before: Option<SessionId>) {
        let now = self.view_tx.borrow().session.clone();
        self.emit_transcript_change(author, before.as_ref(), now.as_ref());
    }

    fn emit_transcript_change(&self, author: &Source, before: Option<&SessionId>, now: Option<&SessionId>) {
        if before.is_some() {
            self.handles.hooks.notify("session:end", || context(author, before));
            self.handles.hooks.notify("session:reset", || context(author, now));
        }
        self.handles.hooks.notify("session:start", || context(author, now));
    }
}

fn event_fields(running: &RunningTurn) -> Value {
    let session = Some(&running.turn.session);
    let mut event_fields =
        running.author.as_ref().map_or_else(|| json!({}), |author| context(author, session));
    event_fields["message"] = running.question.as_str().into();
    event_fields
}
