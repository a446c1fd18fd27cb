//! What hooks are told of a session, and what they are asked.

use petasos_core::Source;
use petasos_core::command::{self as slash, Parsed};
use petasos_core::ids::SessionId;
use petasos_core::journal::Outcome;
use petasos_core::transcript::ToolCall;
use petasos_store::Pending;
use serde_json::{Value, json};

use crate::background::hooks::{Said, context, shown};
use crate::sessions::Session;
use crate::sessions::turn::Running;

impl Session {
    /// Asked only about what the author may use: a hook opens nothing that is closed.
    pub(in crate::sessions) async fn ask_hooks(&self, pending: &Pending) -> Said {
        let (command, args) = match slash::parse(&pending.inbound.text) {
            Parsed::Known(name, args) => (name.as_str().to_owned(), args),
            Parsed::Unknown(name) => {
                let args = pending.inbound.text.split_once(char::is_whitespace).map(|(_, args)| args.trim());
                (name, args.unwrap_or_default().to_owned())
            }
            Parsed::Text => return Said::Allow,
        };
        if !self.allows(pending, &command) {
            return Said::Allow;
        }
        let session = self.show.borrow().session.clone();
        let mut about = context(&pending.inbound.source, session.as_ref());
        about["command"] = command.as_str().into();
        about["args"] = shown(&args).into();
        about["message"] = shown(&pending.inbound.text).into();
        self.handles.hooks.ask(&command, about).await
    }

    /// A turn begins. `fresh`: so does its transcript, in the place of that one.
    pub(in crate::sessions) fn hooks_hear_the_start(&self, fresh: Option<Option<SessionId>>) {
        let Some(running) = &self.running else { return };
        if let (Some(before), Some(author)) = (fresh, &running.author) {
            self.changed_to(author, before.as_ref(), Some(&running.turn.session));
        }
        self.handles.hooks.tell("agent:start", || about(running));
    }

    pub(in crate::sessions) fn hooks_hear_a_step(&self, calls: &[ToolCall]) {
        let Some(running) = &self.running else { return };
        self.handles.hooks.tell("agent:step", || {
            let mut about = about(running);
            about["iteration"] = running.turn.step.into();
            about["tool_names"] = calls.iter().map(|call| call.name.as_str()).collect();
            about
        });
    }

    pub(in crate::sessions) fn hooks_hear_the_end(&self, running: &Running, outcome: Outcome) {
        self.handles.hooks.tell("agent:end", || {
            let mut about = about(running);
            about["response"] = running.answered.as_str().into();
            about["outcome"] = outcome.as_str().into();
            about
        });
    }

    /// Somebody asked for a new transcript, and it is there.
    pub(in crate::sessions) fn hooks_hear_of_a_session(&self, author: &Source, before: Option<SessionId>) {
        let now = self.show.borrow().session.clone();
        self.changed_to(author, before.as_ref(), now.as_ref());
    }

    fn changed_to(&self, author: &Source, before: Option<&SessionId>, now: Option<&SessionId>) {
        if before.is_some() {
            self.handles.hooks.tell("session:end", || context(author, before));
            self.handles.hooks.tell("session:reset", || context(author, now));
        }
        self.handles.hooks.tell("session:start", || context(author, now));
    }
}

fn about(running: &Running) -> Value {
    let session = Some(&running.turn.session);
    let mut about = running.author.as_ref().map_or_else(|| json!({}), |author| context(author, session));
    about["message"] = running.asked.as_str().into();
    about
}
