//! The run stream: the past and future events of a run.
//!
//! A stream position contains the number of rows sent, the offset in the next row, and a fingerprint of the text up to
//! there. After a crash the model may produce another text; the fingerprint detects that when a client resumes.

use std::time::Duration;

use petasos_core::ids::{RowId, SessionKey, TurnId};
use petasos_core::journal::MessageOutcome;
use petasos_core::transcript::{Role, ToolCall};
use petasos_core::{Millis, RunId};
use petasos_gateway::{Error, Handle, RunApproval, RunEnd, RunRow, SessionView, TranscriptRow};

use super::{BATCH, EventQueue, RowBatch, StreamSource};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RunEvent {
    /// More text of an answer. `restarted`: discard the text sent so far; the answer begins with this.
    Text {
        text: String,
        restarted: bool,
    },
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
    ApprovalRequested(RunApproval),
    ApprovalEnded(RunApproval),
    Ended(RunEnd),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StreamPosition {
    rows: usize,
    /// Bytes of the next row's text, then the number of its tool calls.
    offset: usize,
    fingerprint: u32,
}

impl StreamPosition {
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

/// The events of one run from a position on.
pub(crate) struct RunStream {
    run: RunRow,
    translator: RunTranslator,
    after: RowId,
}

impl RunStream {
    pub(crate) fn new(run: RunRow, from: Option<StreamPosition>) -> Self {
        let after = run.after_row.unwrap_or(RowId(0));
        let translator = RunTranslator::new(run.id.clone(), from.unwrap_or_default());
        Self { run, translator, after }
    }
}

impl StreamSource for RunStream {
    type Event = (StreamPosition, RunEvent);

    const POLL: Option<Duration> = Some(Duration::from_secs(5));

    fn key(&self) -> &SessionKey {
        &self.run.key
    }

    fn select_transcript(&mut self, _: &SessionView, _: &mut EventQueue<Self::Event>) -> bool {
        true
    }

    async fn read_rows(
        &mut self,
        handle: &Handle,
        ready: &mut EventQueue<Self::Event>,
    ) -> Result<RowBatch, Error> {
        let Some((run, rows, approvals)) = handle.run_rows(&self.run.id, self.after, BATCH).await? else {
            return Ok(RowBatch::End);
        };
        let full = rows.len() == BATCH;
        self.run = run;
        let cancelled = self.run.end.as_ref().is_some_and(|end| end.outcome == MessageOutcome::Cancelled);
        let last = self.run.last_row;
        for row in rows {
            self.after = row.id;
            // The placeholder for an interrupted answer belongs to the transcript only.
            if !(cancelled && Some(row.id) == last) {
                self.translator.push_row(row, &approvals, ready);
            }
        }
        match self.run.end.clone() {
            _ if full => Ok(RowBatch::Partial),
            None => Ok(RowBatch::CaughtUp),
            Some(end) => {
                self.translator.push_end(end, ready);
                Ok(RowBatch::End)
            }
        }
    }

    fn read_live(&mut self, view: &SessionView, ready: &mut EventQueue<Self::Event>) {
        let ours = view.live.as_ref().filter(|live| live.turn == TurnId::from(self.run.inbox));
        if let Some(live) = ours.filter(|live| live.step as usize == self.translator.answers) {
            self.translator.push_text(&live.text, ready);
        }
    }
}

/// Translates transcript rows and live text into events that the client does not have yet.
#[derive(Debug)]
struct RunTranslator {
    run: RunId,
    /// The client has all events up to here.
    from: StreamPosition,
    /// The question of the run was read: the rows after it belong to the run.
    started: bool,
    rows: usize,
    /// Answers among the rows.
    answers: usize,
    /// The text of the next answer that was sent.
    text: String,
    call_started_at: Millis,
}

impl RunTranslator {
    fn new(run: RunId, from: StreamPosition) -> Self {
        Self {
            run,
            from,
            started: false,
            rows: 0,
            answers: 0,
            text: String::new(),
            call_started_at: Millis(0),
        }
    }

    fn position(&self) -> StreamPosition {
        StreamPosition { rows: self.rows, offset: self.text.len(), fingerprint: fingerprint(&self.text) }
    }

    fn push_row(
        &mut self,
        row: TranscriptRow,
        approvals: &[RunApproval],
        queue: &mut EventQueue<(StreamPosition, RunEvent)>,
    ) {
        let id = row.id;
        let message = row.message;
        if !self.started {
            self.started = message.role == Role::User
                && message.platform_message_id.as_deref() == Some(self.run.as_str());
            return;
        }
        match message.role {
            Role::Assistant => {
                self.push_text(&message.content, queue);
                self.call_started_at = message.at;
                self.finish_answer(&message.content, message.tool_calls, queue);
            }
            Role::Tool => {
                let content = message.content;
                let event = RunEvent::ToolReturned {
                    call: message.tool_call_id.unwrap_or_default(),
                    name: message.tool_name.unwrap_or_default(),
                    failed: is_error(&content),
                    content,
                    took: message.at.since(self.call_started_at),
                };
                self.rows += 1;
                self.push_if_new(self.position(), event, queue);
            }
            Role::Notice => {
                let event = approvals.iter().find_map(|approval| {
                    if approval.asked_row == Some(id) {
                        return Some(RunEvent::ApprovalRequested(approval.clone()));
                    }
                    (approval.ended_row == Some(id)).then(|| RunEvent::ApprovalEnded(approval.clone()))
                });
                if let Some(event) = event {
                    self.rows += 1;
                    self.push_if_new(self.position(), event, queue);
                }
            }
            Role::User | Role::Summary => {}
        }
    }

    fn finish_answer(
        &mut self,
        text: &str,
        calls: Vec<ToolCall>,
        queue: &mut EventQueue<(StreamPosition, RunEvent)>,
    ) {
        let after_text =
            StreamPosition { rows: self.rows, offset: text.len(), fingerprint: fingerprint(text) };
        if !text.trim().is_empty() && (self.from == StreamPosition::default() || self.rows > self.from.rows) {
            queue.push_back((after_text, RunEvent::TextComplete { text: text.to_owned() }));
        }
        for (at, call) in calls.into_iter().enumerate() {
            self.push_if_new(
                StreamPosition { offset: text.len() + at + 1, ..after_text },
                RunEvent::ToolCalled { call },
                queue,
            );
        }
        self.rows += 1;
        self.answers += 1;
        self.text.clear();
    }

    /// Handles the text of the next answer, which may still grow.
    fn push_text(&mut self, text: &str, queue: &mut EventQueue<(StreamPosition, RunEvent)>) {
        if self.rows < self.from.rows || text.is_empty() {
            return;
        }
        let mut restarted = !text.starts_with(&self.text);
        if self.rows == self.from.rows && self.from.offset > 0 && self.text.is_empty() {
            // The client has a part of this answer; compare it with the beginning of this text.
            let seen = text.get(..self.from.offset.min(text.len())).unwrap_or_default();
            restarted = fingerprint(seen) != self.from.fingerprint;
            if !restarted {
                seen.clone_into(&mut self.text);
            }
        }
        if restarted {
            self.text.clear();
            self.from = StreamPosition { rows: self.rows, ..StreamPosition::default() };
        }
        let more = text[self.text.len()..].to_owned();
        text.clone_into(&mut self.text);
        if !more.is_empty() {
            self.push_if_new(self.position(), RunEvent::Text { text: more, restarted }, queue);
        }
    }

    fn push_end(&self, end: RunEnd, queue: &mut EventQueue<(StreamPosition, RunEvent)>) {
        let position = StreamPosition { rows: self.rows + 1, ..StreamPosition::default() };
        self.push_if_new(position, RunEvent::Ended(end), queue);
    }

    fn push_if_new(
        &self,
        position: StreamPosition,
        event: RunEvent,
        queue: &mut EventQueue<(StreamPosition, RunEvent)>,
    ) {
        if (position.rows, position.offset) > (self.from.rows, self.from.offset) {
            queue.push_back((position, event));
        }
    }
}

fn is_error(content: &str) -> bool {
    let parsed: Option<serde_json::Value> = serde_json::from_str(content).ok();
    parsed.is_some_and(|it| it.get("error").is_some_and(|error| !error.is_null() && error != ""))
}

/// FNV-1a.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use petasos_core::transcript::{EffectState, Message};
    use petasos_gateway::TranscriptRow;

    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "clock".into(), arguments: "{}".into() }
    }

    fn rows() -> Vec<TranscriptRow> {
        let question = Message { platform_message_id: Some("run".into()), ..Message::user("q", Millis(0)) };
        let before =
            Message { platform_message_id: Some("older".into()), ..Message::user("before", Millis(0)) };
        let messages = [
            before,
            Message::assistant("an older answer", Millis(0)),
            question,
            Message::tool_request("Let me look.", vec![call("a"), call("b")], Millis(10)),
            Message::tool(&call("a"), "noon", EffectState::Known, Millis(20)),
            Message::notice("May I?", Millis(21)),
            Message::notice("a remark", Millis(22)),
            Message::notice("You may.", Millis(23)),
            Message::tool(&call("b"), "{\"error\":\"no\"}", EffectState::Known, Millis(30)),
            Message::assistant("Noon.", Millis(40)),
        ];
        let rows = messages.into_iter().enumerate();
        rows.map(|(at, message)| TranscriptRow {
            id: RowId(at as i64),
            message,
            state: petasos_gateway::RowState::Active,
        })
        .collect()
    }

    fn question() -> RunApproval {
        RunApproval {
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

    fn sent(from: StreamPosition) -> Vec<(StreamPosition, RunEvent)> {
        let mut translator = RunTranslator::new("run".into(), from);
        let mut queue = EventQueue::new();
        rows().into_iter().for_each(|row| translator.push_row(row, &[question()], &mut queue));
        queue.into()
    }

    fn without_complete(events: Vec<(StreamPosition, RunEvent)>) -> Vec<(StreamPosition, RunEvent)> {
        events.into_iter().filter(|(_, event)| !matches!(event, RunEvent::TextComplete { .. })).collect()
    }

    #[test]
    fn sends_run_from_its_question_on() {
        let names: Vec<_> = sent(StreamPosition::default())
            .into_iter()
            .map(|(_, event)| match event {
                RunEvent::Text { text, restarted } => format!("text {text} {restarted}"),
                RunEvent::TextComplete { text } => format!("said {text}"),
                RunEvent::ToolCalled { call } => format!("called {}", call.id),
                RunEvent::ToolReturned { call, failed, took, .. } => {
                    format!("returned {call} {failed} {took:?}")
                }
                RunEvent::ApprovalRequested(approval) => format!("asked {}", approval.id),
                RunEvent::ApprovalEnded(approval) => format!("answered {}", approval.id),
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
    fn resuming_at_any_position_sends_exactly_the_rest() {
        let all = without_complete(sent(StreamPosition::default()));
        for (at, (position, _)) in all.iter().enumerate() {
            let back = StreamPosition::parse(&position.id()).expect("a position");
            assert_eq!(back, *position);
            assert_eq!(without_complete(sent(back)), all[at + 1..], "after {}", position.id());
        }
    }

    #[test]
    fn continues_or_restarts_text_by_fingerprint() {
        let half = StreamPosition { rows: 0, offset: 3, fingerprint: fingerprint("Let") };
        assert_eq!(sent(half)[0].1, RunEvent::Text { text: " me look.".into(), restarted: false });
        let other = StreamPosition { rows: 0, offset: 3, fingerprint: fingerprint("Wha") };
        assert_eq!(sent(other)[0].1, RunEvent::Text { text: "Let me look.".into(), restarted: true });
        assert_eq!(sent(other).len(), sent(StreamPosition::default()).len());
    }

    #[test]
    fn sends_growing_text_and_its_row_once() {
        let mut translator = RunTranslator::new("run".into(), StreamPosition::default());
        let mut queue = EventQueue::new();
        let mut rows = rows().into_iter();
        rows.by_ref().take(3).for_each(|row| translator.push_row(row, &[], &mut queue));
        for text in ["", "Let", "Let me", "Let me", "What", "Let me l"] {
            translator.push_text(text, &mut queue);
        }
        rows.take(1).for_each(|row| translator.push_row(row, &[], &mut queue));
        let texts: Vec<_> = queue
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
