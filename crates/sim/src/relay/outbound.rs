//! `outbound.rs`, `requests.rs` of the connector: what a gateway asks of the platform, once.

use std::time::Duration;

use petasos_core::{Fault, Reached};
use petasos_relay::{Action, Answer, FromConnector, REFUSED};
use petasos_store::connector::Request as Known;
use serde_json::Value;

use super::{Event, INSTANCE};
use crate::outside::{Answer as Done, Ask, Class, Failed, Trouble};
use crate::plant::Bug;
use crate::sim::{Flow, Halt, Sim};

/// How long answers are remembered.
pub(super) const MEMORY: Duration = Duration::from_secs(24 * 3600);

/// What the platform is being asked.
#[derive(Debug)]
pub(crate) struct Request {
    /// Of the connector's process.
    pub(super) life: u32,
    wire: u64,
    name: String,
    chat: usize,
    ask: Ask,
    trouble: Trouble,
    back: u64,
}

impl Sim {
    pub(super) fn their_question(&mut self, wire: u64, name: String, action: &Value) -> Flow {
        let Ok(action) = Action::read(action) else {
            return self.tell_answer(wire, name, Answer::failed("malformed"));
        };
        let platform = Class::Relayed.platform();
        let chat = action.chat().unwrap_or_default().to_owned();
        let met = self.far().store.met(INSTANCE, platform, &chat).expect("chats are read");
        let chat = self.world.chat_of_lane(&format!("{platform}:{chat}"));
        let (Some(_), Some(chat)) = (met, chat) else {
            return self.tell_answer(wire, name, Answer::declined());
        };
        let ask = match action {
            Action::Send { content, .. } => return self.once(wire, name, chat, content),
            Action::Edit { message_id, content, .. } => Ask::Edit { message: message_id, text: content },
            Action::Delete { message_id, .. } => Ask::Delete { message: message_id },
            other => {
                return self.tell_answer(wire, name, Answer::failed(format!("unsupported op: {other:?}")));
            }
        };
        self.ask_platform(wire, name, chat, ask);
        Ok(())
    }

    /// `Requests::once`: before the platform is asked, the number is on disk.
    fn once(&mut self, wire: u64, name: String, chat: usize, text: String) -> Flow {
        if let Some(waiting) = self.far().open.get_mut(&name) {
            waiting.push(wire);
            return Ok(());
        }
        let (now, request) = (self.their_now(), name.clone());
        let known = match self.bug {
            Some(Bug::RepeatsRequests) => Ok(Known::New),
            _right => self.their_commit("request", |tx| tx.begin_request(INSTANCE, &request, now)),
        };
        match known {
            Ok(Known::New) => {
                self.far().open.insert(name.clone(), vec![wire]);
                let ask = Ask::Send { text, key: name.clone() };
                self.ask_platform(wire, name, chat, ask);
                Ok(())
            }
            Ok(Known::Answered(text)) => {
                let kept = match serde_json::from_str(&text) {
                    Ok(Value::Object(answer)) => Answer::read(&answer),
                    Ok(_) | Err(_) => Answer::doubtful("lost"),
                };
                self.tell_answer(wire, name, kept)
            }
            Ok(Known::Begun) => self.tell_answer(wire, name, Answer::doubtful("lost")),
            Err(Halt::Full) => {
                let later = Answer { retry_after: Some(1), ..Answer::failed("full") };
                self.tell_answer(wire, name, later)
            }
            Err(halt) => Err(halt),
        }
    }

    fn ask_platform(&mut self, wire: u64, name: String, chat: usize, ask: Ask) {
        let trouble = self.trouble();
        let (there, back) = self.travel(trouble);
        let request = Request { life: self.relay.life, wire, name, chat, ask, trouble, back };
        self.relay_later(Event::Reach(Box::new(request)), there);
    }

    /// It has reached the platform, whether whoever asked still lives or not.
    pub(super) fn their_reach(&mut self, request: Request) -> Flow {
        let about = self.relay.abouts.get(&request.name).copied().unwrap_or_default();
        let answer = self.arrives(request.chat, &request.ask, about, request.trouble)?;
        let back = request.back;
        self.relay_later(Event::Answered(Box::new(request), answer), back);
        Ok(())
    }

    pub(super) fn their_answer(&mut self, request: Request, done: Done) -> Flow {
        let Request { wire, name, ask, .. } = request;
        let answer = match done {
            Ok(message) => Answer::sent(message),
            Err(failed) => failure(failed),
        };
        let Ask::Send { .. } = ask else { return self.tell_answer(wire, name, answer) };
        let (known, text) = (answer.success || answer.ambiguous, answer.value().to_string());
        let ended = self.their_commit("answer", |tx| match known {
            true => tx.answer_request(INSTANCE, &name, &text, None),
            false => tx.forget_request(INSTANCE, &name),
        });
        match ended {
            // Whoever asks again hears that nobody knows, which is less than the truth and no lie.
            Ok(()) | Err(Halt::Full) => {}
            Err(halt) => return Err(halt),
        }
        for wire in self.far().open.remove(&name).unwrap_or_default() {
            self.tell_answer(wire, name.clone(), answer.clone())?;
        }
        Ok(())
    }

    fn tell_answer(&mut self, wire: u64, request: String, answer: Answer) -> Flow {
        if let Ok(line) = (FromConnector::Answer { request, answer }).line() {
            self.say_down(wire, line);
        }
        Ok(())
    }
}

/// In the words of the contract: definite, doubtful, or to be tried later.
fn failure(failed: Failed) -> Answer {
    let (code, retry_after) = match failed.fault {
        Fault::Refused if failed.dead_chat => ("forbidden", None),
        Fault::Refused => (REFUSED, None),
        Fault::Later { after } => ("transient", after.map(|after| after.as_secs().max(1))),
        Fault::Fatal => ("transient", None),
    };
    let ambiguous = failed.reached != Reached::No;
    Answer { code: Some(code.to_owned()), ambiguous, retry_after, ..Answer::failed("it failed") }
}
