//! A run as it happens, for whoever wants to see it: a view of its rows and of the text that is growing.
//!
//! Nothing of it is stored. What is committed is read off the transcript, what is not yet is read off the session's
//! view; so any number of readers may come, late or again, and each gets everything once. A place on the tape names
//! the rows told, how much of the next one, and what that was: after a crash the model may say something else, and a
//! reader who comes back is told so. A reader is pulled, never pushed: however slow it is, it holds one batch of rows.

use std::collections::VecDeque;
use std::time::Duration;

use petasos_core::Millis;
use petasos_core::ids::{RowId, TurnId};
use petasos_core::journal::Outcome;
use petasos_core::transcript::{Role, ToolCall};
use petasos_gateway::{Approval, Error, Handle, RunEnd, RunRow, Said, View};
use tokio::sync::watch;

use crate::serve::Stop;

const BATCH: usize = 50;
/// A view that says nothing for so long is compared with the store.
const LOOK: Duration = Duration::from_secs(5);
/// A session that went away is asked for again after this long.
const AGAIN: Duration = Duration::from_millis(100);

/// Something that happened, in its order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Beat {
    /// More of an answer's text. `again`: what was told of it is void, this is how it begins.
    Text {
        text: String,
        again: bool,
    },
    /// An answer's text is complete.
    Said {
        text: String,
    },
    Called {
        call: ToolCall,
    },
    Returned {
        call: String,
        name: String,
        content: String,
        failed: bool,
        took: Duration,
    },
    /// It waits for whoever started it.
    Asked(Approval),
    /// It does not any more.
    Answered(Approval),
    /// Nothing comes after this.
    Ended(RunEnd),
}

/// A place on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    rows: usize,
    /// Bytes of the next row's text, then its calls.
    offset: usize,
    print: u32,
}

impl Place {
    pub(super) fn parse(id: &str) -> Option<Self> {
        let mut parts = id.splitn(3, '.');
        let rows = parts.next()?.parse().ok()?;
        let offset = parts.next()?.parse().ok()?;
        let print = u32::from_str_radix(parts.next()?, 16).ok()?;
        Some(Self { rows, offset, print })
    }

    pub(super) fn name(self) -> String {
        format!("{}.{}.{:08x}", self.rows, self.offset, self.print)
    }
}

pub(super) struct Tape {
    handle: Handle,
    run: RunRow,
    view: watch::Receiver<View>,
    stop: Stop,
    /// Told so far.
    script: Script,
    /// The last row that was read.
    after: RowId,
    /// What the view said when the rows were last read to their end; `None` before that.
    read_at: Option<Mark>,
    ready: VecDeque<(Place, Beat)>,
    over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    rows: Option<RowId>,
    turn: Option<TurnId>,
    step: Option<u32>,
}

impl Mark {
    fn of(view: &View) -> Self {
        let live = view.live.as_ref();
        Self { rows: view.rows, turn: live.map(|live| live.turn), step: live.map(|live| live.step) }
    }
}

impl Tape {
    /// From `from` on, or from the beginning.
    pub(super) async fn play(
        handle: &Handle,
        run: RunRow,
        from: Option<Place>,
        stop: Stop,
    ) -> Result<Self, Error> {
        let view = handle.view(&run.key).await?;
        let after = run.after_row.unwrap_or(RowId(0));
        let script = Script::new(run.id.clone(), from.unwrap_or_default());
        let handle = handle.clone();
        Ok(Self {
            handle,
            run,
            view,
            stop,
            script,
            after,
            read_at: None,
            ready: VecDeque::new(),
            over: false,
        })
    }

    pub(super) fn run(&self) -> &RunRow {
        &self.run
    }

    /// The next thing that happens; `None`: it is over, or the server stops.
    pub(super) async fn next(&mut self) -> Result<Option<(Place, Beat)>, Error> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Ok(Some(next));
            }
            if self.over || self.stop.is_asked() {
                return Ok(None);
            }
            let mark = Mark::of(&self.view.borrow_and_update());
            if self.read_at != Some(mark) {
                self.read(mark).await?;
                continue;
            }
            if self.listen(mark) {
                continue;
            }
            tokio::select! {
                changed = self.view.changed() => if changed.is_err() {
                    tokio::time::sleep(AGAIN).await;
                    self.view = self.handle.view(&self.run.key).await?;
                    self.read_at = None;
                },
                () = tokio::time::sleep(LOOK) => self.read_at = None,
                () = self.stop.asked() => return Ok(None),
            }
        }
    }

    /// One batch of rows, begun when the view was at `mark`.
    async fn read(&mut self, mark: Mark) -> Result<(), Error> {
        let Some((run, rows, asked)) = self.handle.run_rows(&self.run.id, self.after, BATCH).await? else {
            self.over = true;
            return Ok(());
        };
        let all = rows.len() < BATCH;
        self.run = run;
        let unanswered = self.run.end.as_ref().is_some_and(|end| end.outcome == Outcome::Cancelled);
        let last = self.run.last_row;
        for row in rows {
            self.after = row.id;
            // What stands for an answer that was cut off is for the transcript.
            if !(unanswered && Some(row.id) == last) {
                self.script.row(row, &asked, &mut self.ready);
            }
        }
        if all {
            self.read_at = Some(mark);
            if let Some(end) = self.run.end.clone() {
                self.over = true;
                self.script.ended(end, &mut self.ready);
            }
        }
        Ok(())
    }

    /// What grows and is no row yet; false when there is nothing new.
    fn listen(&mut self, mark: Mark) -> bool {
        let view = self.view.borrow();
        if Mark::of(&view) != mark {
            return true;
        }
        let ours = view.live.as_ref().filter(|live| live.turn == TurnId::from(self.run.inbox));
        let Some(live) = ours.filter(|live| live.step as usize == self.script.answers) else { return false };
        let before = self.ready.len();
        self.script.grows(&live.text, &mut self.ready);
        self.ready.len() > before
    }
}

/// What has been told, and how to tell the rest.
#[derive(Debug)]
struct Script {
    run: String,
    /// The reader has everything up to here already.
    from: Place,
    /// The question was seen: what follows is ours.
    begun: bool,
    rows: usize,
    /// Answers among the rows.
    answers: usize,
    /// What was told of the next one.
    text: String,
    asked_at: Millis,
}

impl Script {
    fn new(run: String, from: Place) -> Self {
        let (rows, answers, asked_at) = (0, 0, Millis(0));
        Self { run, from, begun: false, rows, answers, text: String::new(), asked_at }
    }

    fn place(&self) -> Place {
        Place { rows: self.rows, offset: self.text.len(), print: print(&self.text) }
    }

    /// A row that is on disk.
    fn row(&mut self, row: Said, asked: &[Approval], out: &mut VecDeque<(Place, Beat)>) {
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
                let beat = Beat::Returned {
                    call: message.tool_call_id.unwrap_or_default(),
                    name: message.tool_name.unwrap_or_default(),
                    failed: is_error(&content),
                    content,
                    took: message.at.since(self.asked_at),
                };
                self.rows += 1;
                self.tell(self.place(), beat, out);
            }
            Role::Notice => {
                let beat = asked.iter().find_map(|it| match () {
                    () if it.asked_row == Some(id) => Some(Beat::Asked(it.clone())),
                    () if it.ended_row == Some(id) => Some(Beat::Answered(it.clone())),
                    () => None,
                });
                if let Some(beat) = beat {
                    self.rows += 1;
                    self.tell(self.place(), beat, out);
                }
            }
            Role::User | Role::Summary => {}
        }
    }

    fn answer_done(&mut self, text: &str, calls: Vec<ToolCall>, out: &mut VecDeque<(Place, Beat)>) {
        let spoken = Place { rows: self.rows, offset: text.len(), print: print(text) };
        if !text.trim().is_empty() && (self.from == Place::default() || self.rows > self.from.rows) {
            out.push_back((spoken, Beat::Said { text: text.to_owned() }));
        }
        for (at, call) in calls.into_iter().enumerate() {
            self.tell(Place { offset: text.len() + at + 1, ..spoken }, Beat::Called { call }, out);
        }
        self.rows += 1;
        self.answers += 1;
        self.text.clear();
    }

    /// The text of the next answer, as far as it has come.
    fn grows(&mut self, text: &str, out: &mut VecDeque<(Place, Beat)>) {
        if self.rows < self.from.rows || text.is_empty() {
            return;
        }
        let mut void = !text.starts_with(&self.text);
        if self.rows == self.from.rows && self.from.offset > 0 && self.text.is_empty() {
            // The reader has some of this answer: is it how this text begins?
            let seen = text.get(..self.from.offset.min(text.len())).unwrap_or_default();
            void = print(seen) != self.from.print;
            if !void {
                seen.clone_into(&mut self.text);
            }
        }
        if void {
            self.text.clear();
            self.from = Place { rows: self.rows, ..Place::default() };
        }
        let more = text[self.text.len()..].to_owned();
        text.clone_into(&mut self.text);
        if !more.is_empty() {
            self.tell(self.place(), Beat::Text { text: more, again: void }, out);
        }
    }

    /// Stands behind everything.
    fn ended(&self, end: RunEnd, out: &mut VecDeque<(Place, Beat)>) {
        let place = Place { rows: self.rows + 1, ..Place::default() };
        self.tell(place, Beat::Ended(end), out);
    }

    /// Unless the reader has it already.
    fn tell(&self, place: Place, beat: Beat, out: &mut VecDeque<(Place, Beat)>) {
        if (place.rows, place.offset) > (self.from.rows, self.from.offset) {
            out.push_back((place, beat));
        }
    }
}

fn is_error(content: &str) -> bool {
    let parsed: Option<serde_json::Value> = serde_json::from_str(content).ok();
    parsed.is_some_and(|it| it.get("error").is_some_and(|error| !error.is_null() && error != ""))
}

/// Tells texts apart (FNV-1a).
fn print(text: &str) -> u32 {
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
        let told =
            Message { platform_message_id: Some("older".into()), ..Message::user("before", Millis(0)) };
        let messages = [
            told,
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

    fn told(from: Place) -> Vec<(Place, Beat)> {
        let (mut script, mut out) = (Script::new("run".into(), from), VecDeque::new());
        rows().into_iter().for_each(|row| script.row(row, &[question()], &mut out));
        out.into()
    }

    fn without_said(beats: Vec<(Place, Beat)>) -> Vec<(Place, Beat)> {
        beats.into_iter().filter(|(_, beat)| !matches!(beat, Beat::Said { .. })).collect()
    }

    #[test]
    fn a_run_is_told_from_its_question_on() {
        let names: Vec<_> = told(Place::default())
            .into_iter()
            .map(|(_, beat)| match beat {
                Beat::Text { text, again } => format!("text {text} {again}"),
                Beat::Said { text } => format!("said {text}"),
                Beat::Called { call } => format!("called {}", call.id),
                Beat::Returned { call, failed, took, .. } => format!("returned {call} {failed} {took:?}"),
                Beat::Asked(asked) => format!("asked {}", asked.id),
                Beat::Answered(asked) => format!("answered {}", asked.id),
                Beat::Ended(_) => "ended".into(),
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
    fn whoever_comes_back_at_any_place_gets_exactly_the_rest() {
        let all = without_said(told(Place::default()));
        for (at, (place, _)) in all.iter().enumerate() {
            let back = Place::parse(&place.name()).expect("a place");
            assert_eq!(back, *place);
            assert_eq!(without_said(told(back)), all[at + 1..], "after {}", place.name());
        }
    }

    #[test]
    fn in_the_middle_of_a_text_the_rest_follows_or_it_is_told_anew() {
        let half = Place { rows: 0, offset: 3, print: print("Let") };
        assert_eq!(told(half)[0].1, Beat::Text { text: " me look.".into(), again: false });
        let other = Place { rows: 0, offset: 3, print: print("Wha") };
        assert_eq!(told(other)[0].1, Beat::Text { text: "Let me look.".into(), again: true });
        assert_eq!(told(other).len(), told(Place::default()).len());
    }

    #[test]
    fn a_text_that_grows_and_then_becomes_a_row_is_told_once() {
        let (mut script, mut out) = (Script::new("run".into(), Place::default()), VecDeque::new());
        let mut rows = rows().into_iter();
        rows.by_ref().take(3).for_each(|row| script.row(row, &[], &mut out));
        for text in ["", "Let", "Let me", "Let me", "What", "Let me l"] {
            script.grows(text, &mut out);
        }
        rows.take(1).for_each(|row| script.row(row, &[], &mut out));
        let texts: Vec<_> = out
            .iter()
            .filter_map(|(_, beat)| match beat {
                Beat::Text { text, again } => Some((text.as_str(), *again)),
                _ => None,
            })
            .collect();
        assert_eq!(
            texts,
            [("Let", false), (" me", false), ("What", true), ("Let me l", true), ("ook.", false)]
        );
    }
}
