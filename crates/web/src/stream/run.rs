//! The run stream: what happened and happens in a run, as events.
//!
//! A position in the stream names the rows sent, how much of the next one, and a fingerprint of that: after a crash the
//! model may say something else, and a client that comes back at a position is told so.

use std::time::Duration;

use petasos_core::Millis;
use petasos_core::ids::{RowId, SessionKey, TurnId};
use petasos_core::journal::Outcome;
use petasos_core::transcript::{Role, ToolCall};
use petasos_gateway::{Approval, Error, Handle, RunEnd, RunRow, Said, View};

use super::{BATCH, Batch, Followed, Ready};

/// Something that happened, in its order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RunEvent {
    /// More of an answer's text. `restarted`: what was sent of it is void, this is how it begins.
    Text {
        text: String,
        restarted: bool,
    },
    /// The text of an answer is complete.
    TextComplete {
        text: String,
    },
    ToolCalled {
        call: ToolCall,
    },
    ToolReturned {
        call: String,
        name: String,
        content: String,
        failed: bool,
        took: Duration,
    },
    /// The run waits for its client to approve a command.
    ApprovalRequested(Approval),
    /// It does not wait any more.
    ApprovalEnded(Approval),
    /// Nothing comes after this.
    Ended(RunEnd),
}

/// A position in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Position {
    rows: usize,
    /// Bytes of the next row's text, then its calls.
    offset: usize,
    fingerprint: u32,
}

impl Position {
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let mut parts = id.splitn(3, '.');
        let rows = parts.next()?.parse().ok()?;
        let offset = parts.next()?.parse().ok()?;
        let fingerprint = u32::from_str_radix(parts.next()?, 16).ok()?;
        Some(Self { rows, offset, fingerprint })
    }

    pub(crate) fn id(self) -> String {
        format!("{}.{}.{:08x}", self.rows, self.offset, self.fingerprint)
    }
}

/// One run, followed from a position on.
pub(crate) struct RunStream {
    run: RunRow,
    script: Script,
    /// The last row that was read.
    after: RowId,
}

impl RunStream {
    /// From `from` on, or from the beginning.
    pub(crate) fn new(run: RunRow, from: Option<Position>) -> Self {
        let after = run.after_row.unwrap_or(RowId(0));
        let script = Script::new(run.id.clone(), from.unwrap_or_default());
        Self { run, script, after }
    }
}

impl Followed for RunStream {
    type Event = (Position, RunEvent);

    const POLL: Option<Duration> = Some(Duration::from_secs(5));

    fn key(&self) -> &SessionKey {
        &self.run.key
    }

    fn enter(&mut self, _: &View, _: &mut Ready<Self::Event>) -> bool {
        true
    }

    async fn read(&mut self, handle: &Handle, ready: &mut Ready<Self::Event>) -> Result<Batch, Error> {
        let Some((run, rows, approvals)) = handle.run_rows(&self.run.id, self.after, BATCH).await? else {
            return Ok(Batch::End);
        };
        let full = rows.len() == BATCH;
        self.run = run;
        let cancelled = self.run.end.as_ref().is_some_and(|end| end.outcome == Outcome::Cancelled);
        let last = self.run.last_row;
        for row in rows {
            self.after = row.id;
            // What stands for an answer that was cut off is for the transcript.
            if !(cancelled && Some(row.id) == last) {
                self.script.row(row, &approvals, ready);
            }
        }
        match self.run.end.clone() {
            _ if full => Ok(Batch::Full),
            None => Ok(Batch::Last),
            Some(end) => {
                self.script.ended(end, ready);
                Ok(Batch::End)
            }
        }
    }

    fn look(&mut self, view: &View, ready: &mut Ready<Self::Event>) {
        let ours = view.live.as_ref().filter(|live| live.turn == TurnId::from(self.run.inbox));
        if let Some(live) = ours.filter(|live| live.step as usize == self.script.answers) {
            self.script.grows(&live.text, ready);
        }
    }
}

/// What was sent, and how to send the rest.
#[derive(Debug)]
struct Script {
    run: String,
    /// The reader has everything up to here already.
    from: Position,
    /// The question was seen: what follows is ours.
    begun: bool,
    rows: usize,
    /// Answers among the rows.
    answers: usize,
    /// What was sent of the next one.
    text: String,
    asked_at: Millis,
}

impl Script {
    fn new(run: String, from: Position) -> Self {
        let (rows, answers, asked_at) = (0, 0, Millis(0));
        Self { run, from, begun: false, rows, answers, text: String::new(), asked_at }
    }

    fn position(&self) -> Position {
        Position { rows: self.rows, offset: self.text.len(), fingerprint: fingerprint(&self.text) }
    }

    /// A row that is on disk.
    fn row(&mut self, row: Said, asked: &[Approval], out: &mut Ready<(Position, RunEvent)>) {
        let (id, message) = (row.id, row.message);
        if !self.begun {
            self.begun =
                message.role == Role::User && message.platform_message_id.as_ref() == Some(&self.run);
            return;
        }
        match message.role {
            Role::Assistant => {
                self.grows(&message.content, out);
                self.asked_at = message.at;
                self.answer_done(&message.content, message.tool_calls, out);
            }
            Role::Tool => {
                let content = message.content;
                let event = RunEvent::ToolReturned {
                    call: message.tool_call_id.unwrap_or_default(),
                    name: message.tool_name.unwrap_or_default(),
                    failed: is_error(&content),
                    content,
                    took: message.at.since(self.asked_at),
                };
                self.rows += 1;
                self.send(self.position(), event, out);
            }
            Role::Notice => {
                let event = asked.iter().find_map(|it| match () {
                    () if it.asked_row == Some(id) => Some(RunEvent::ApprovalRequested(it.clone())),
                    () if it.ended_row == Some(id) => Some(RunEvent::ApprovalEnded(it.clone())),
                    () => None,
                });
                if let Some(event) = event {
                    self.rows += 1;
                    self.send(self.position(), event, out);
                }
            }
            Role::User | Role::Summary => {}
        }
    }

    fn answer_done(&mut self, text: &str, calls: Vec<ToolCall>, out: &mut Ready<(Position, RunEvent)>) {
        let spoken = Position { rows: self.rows, offset: text.len(), fingerprint: fingerprint(text) };
        if !text.trim().is_empty() && (self.from == Position::default() || self.rows > self.from.rows) {
            out.push_back((spoken, RunEvent::TextComplete { text: text.to_owned() }));
        }
        for (at, call) in calls.into_iter().enumerate() {
            self.send(Position { offset: text.len() + at + 1, ..spoken }, RunEvent::ToolCalled { call }, out);
        }
        self.rows += 1;
        self.answers += 1;
        self.text.clear();
    }

    /// The text of the next answer, as far as it has come.
    fn grows(&mut self, text: &str, out: &mut Ready<(Position, RunEvent)>) {
        if self.rows < self.from.rows || text.is_empty() {
            return;
        }
        let mut void = !text.starts_with(&self.text);
        if self.rows == self.from.rows && self.from.offset > 0 && self.text.is_empty() {
            // The reader has some of this answer: is it how this text begins?
            let seen = text.get(..self.from.offset.min(text.len())).unwrap_or_default();
            void = fingerprint(seen) != self.from.fingerprint;
            if !void {
                seen.clone_into(&mut self.text);
            }
        }
        if void {
            self.text.clear();
            self.from = Position { rows: self.rows, ..Position::default() };
        }
        let more = text[self.text.len()..].to_owned();
        text.clone_into(&mut self.text);
        if !more.is_empty() {
            self.send(self.position(), RunEvent::Text { text: more, restarted: void }, out);
        }
    }

    /// Stands behind everything.
    fn ended(&self, end: RunEnd, out: &mut Ready<(Position, RunEvent)>) {
        let position = Position { rows: self.rows + 1, ..Position::default() };
        self.send(position, RunEvent::Ended(end), out);
    }

    /// Unless the reader has it already.
    fn send(&self, position: Position, event: RunEvent, out: &mut Ready<(Position, RunEvent)>) {
        if (position.rows, position.offset) > (self.from.rows, self.from.offset) {
            out.push_back((position, event));
        }
    }
}

fn is_error(content: &str) -> bool {
    let parsed: Option<serde_json::Value> = serde_json::from_str(content).ok();
    parsed.is_some_and(|it| it.get("error").is_some_and(|error| !error.is_null() && error != ""))
}

/// Tells texts apart (FNV-1a).
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use petasos_core::transcript::{EffectState, Message};
    use petasos_gateway::Said;

    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "clock".into(), arguments: "{}".into() }
    }

    fn rows() -> Vec<Said> {
        let question = Message { platform_message_id: Some("run".into()), ..Message::user("q", Millis(0)) };
        let before =
            Message { platform_message_id: Some("older".into()), ..Message::user("before", Millis(0)) };
        let messages = [
            before,
            Message::assistant("an older answer", Millis(0)),
            question,
            Message::asking("Let me look.", vec![call("a"), call("b")], Millis(10)),
            Message::tool(&call("a"), "noon", EffectState::Known, Millis(20)),
            Message::notice("May I?", Millis(21)),
            Message::notice("a remark", Millis(22)),
            Message::notice("You may.", Millis(23)),
            Message::tool(&call("b"), "{\"error\":\"no\"}", EffectState::Known, Millis(30)),
            Message::assistant("Noon.", Millis(40)),
        ];
        let rows = messages.into_iter().enumerate();
        rows.map(|(at, message)| Said {
            id: RowId(at as i64),
            message,
            state: petasos_gateway::RowState::Active,
        })
        .collect()
    }

    fn question() -> Approval {
        Approval {
            id: "q".into(),
            command: "rm -r x".into(),
            folder: None,
            categories: vec![],
            advised_against: false,
            choices: vec![],
            asked_at: Millis(21),
            asked_row: Some(RowId(5)),
            ended_row: Some(RowId(7)),
            ending: None,
        }
    }

    fn sent(from: Position) -> Vec<(Position, RunEvent)> {
        let (mut script, mut out) = (Script::new("run".into(), from), Ready::new());
        rows().into_iter().for_each(|row| script.row(row, &[question()], &mut out));
        out.into()
    }

    fn without_complete(events: Vec<(Position, RunEvent)>) -> Vec<(Position, RunEvent)> {
        events.into_iter().filter(|(_, event)| !matches!(event, RunEvent::TextComplete { .. })).collect()
    }

    #[test]
    fn a_run_is_sent_from_its_question_on() {
        let names: Vec<_> = sent(Position::default())
            .into_iter()
            .map(|(_, event)| match event {
                RunEvent::Text { text, restarted } => format!("text {text} {restarted}"),
                RunEvent::TextComplete { text } => format!("said {text}"),
                RunEvent::ToolCalled { call } => format!("called {}", call.id),
                RunEvent::ToolReturned { call, failed, took, .. } => {
                    format!("returned {call} {failed} {took:?}")
                }
                RunEvent::ApprovalRequested(asked) => format!("asked {}", asked.id),
                RunEvent::ApprovalEnded(asked) => format!("answered {}", asked.id),
                RunEvent::Ended(_) => "ended".into(),
            })
            .collect();
        assert_eq!(
            names,
            [
                "text Let me look. false",
                "said Let me look.",
                "called a",
                "called b",
                "returned a false 10ms",
                "asked q",
                "answered q",
                "returned b true 20ms",
                "text Noon. false",
                "said Noon.",
            ]
        );
    }

    #[test]
    fn a_client_that_resumes_anywhere_gets_exactly_the_rest() {
        let all = without_complete(sent(Position::default()));
        for (at, (position, _)) in all.iter().enumerate() {
            let back = Position::parse(&position.id()).expect("a position");
            assert_eq!(back, *position);
            assert_eq!(without_complete(sent(back)), all[at + 1..], "after {}", position.id());
        }
    }

    #[test]
    fn a_text_is_continued_or_sent_anew() {
        let half = Position { rows: 0, offset: 3, fingerprint: fingerprint("Let") };
        assert_eq!(sent(half)[0].1, RunEvent::Text { text: " me look.".into(), restarted: false });
        let other = Position { rows: 0, offset: 3, fingerprint: fingerprint("Wha") };
        assert_eq!(sent(other)[0].1, RunEvent::Text { text: "Let me look.".into(), restarted: true });
        assert_eq!(sent(other).len(), sent(Position::default()).len());
    }

    #[test]
    fn a_text_that_grows_and_becomes_a_row_is_sent_once() {
        let (mut script, mut out) = (Script::new("run".into(), Position::default()), Ready::new());
        let mut rows = rows().into_iter();
        rows.by_ref().take(3).for_each(|row| script.row(row, &[], &mut out));
        for text in ["", "Let", "Let me", "Let me", "What", "Let me l"] {
            script.grows(text, &mut out);
        }
        rows.take(1).for_each(|row| script.row(row, &[], &mut out));
        let texts: Vec<_> = out
            .iter()
            .filter_map(|(_, event)| match event {
                RunEvent::Text { text, restarted } => Some((text.as_str(), *restarted)),
                _ => None,
            })
            .collect();
        assert_eq!(
            texts,
            [("Let", false), (" me", false), ("What", true), ("Let me l", true), ("ook.", false)]
        );
    }
}
