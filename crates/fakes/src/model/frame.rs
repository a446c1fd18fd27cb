//! The pieces of a streamed answer, and the plan by which they are sent.
//!
//! A protocol makes frames; the plan adds pauses, gates and faults; `play` carries it out.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::answer::{Answer, Fault, Point, Quirk};
use crate::gate::Door;

/// Long enough for the reader to see two reads, too short to matter.
const BETWEEN_WRITES: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Opening or closing of a stream, or of a part of it.
    Mark(Bytes),
    /// Text, thoughts, or part of a tool call.
    Delta(Bytes),
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Write(Bytes),
    Wait(Duration),
    Pass(Arc<Door>),
    /// Ends the connection with the answer unfinished.
    Cut,
}

/// Bytes that are the same for the whole stream, but depend on the protocol.
#[derive(Debug)]
pub(crate) struct Fillers {
    pub(crate) keep_alive: &'static str,
    /// The error object for `ErrorAfter`.
    pub(crate) error: Bytes,
}

/// `gates` are those of the fake and of the answer; `hang` is where hanging answers wait.
pub(crate) fn plan(
    frames: Vec<Frame>,
    answer: &Answer,
    gates: &[(Point, Arc<Door>)],
    hang: &Arc<Door>,
    fillers: &Fillers,
) -> Vec<Step> {
    let first_delta = frames.iter().position(|frame| matches!(frame, Frame::Delta(_)));
    let opening = first_delta.unwrap_or(1.min(frames.len()));
    let mut steps = Vec::new();
    let mut deltas = 0;
    for (at, frame) in frames.into_iter().enumerate() {
        let delta = matches!(frame, Frame::Delta(_));
        if at == opening && events(0, answer, gates, hang, fillers, &mut steps) {
            return steps;
        }
        if delta && !answer.every.is_zero() {
            steps.push(Step::Wait(answer.every));
        }
        let (Frame::Mark(bytes) | Frame::Delta(bytes)) = frame;
        write(bytes, answer, fillers, &mut steps);
        if delta {
            deltas += 1;
            if events(deltas, answer, gates, hang, fillers, &mut steps) {
                return steps;
            }
        }
    }
    steps
}

/// What happens after so many deltas. `true`: nothing more follows.
fn events(
    deltas: usize,
    answer: &Answer,
    gates: &[(Point, Arc<Door>)],
    hang: &Arc<Door>,
    fillers: &Fillers,
    steps: &mut Vec<Step>,
) -> bool {
    let here = Point::AfterDelta(deltas);
    steps.extend(gates.iter().filter(|gate| gate.0 == here).map(|gate| Step::Pass(gate.1.clone())));
    match &answer.fault {
        Some(Fault::CutAfter(after)) if *after == deltas => {
            steps.push(Step::Cut);
            true
        }
        Some(Fault::ErrorAfter { deltas: after, message: _ }) if *after == deltas => {
            steps.push(Step::Write(fillers.error.clone()));
            true
        }
        Some(Fault::Hang(point)) if *point == here => {
            steps.push(Step::Pass(hang.clone()));
            false
        }
        Some(
            Fault::CutAfter(_)
            | Fault::ErrorAfter { .. }
            | Fault::Hang(_)
            | Fault::Status { .. }
            | Fault::ResetBefore
            | Fault::Garbage,
        )
        | None => false,
    }
}

fn write(bytes: Bytes, answer: &Answer, fillers: &Fillers, steps: &mut Vec<Step>) {
    if answer.has(Quirk::KeepAlives) {
        steps.push(Step::Write(Bytes::from_static(fillers.keep_alive.as_bytes())));
    }
    if answer.has(Quirk::SplitWrites) {
        let middle = bytes.len() / 2;
        steps.push(Step::Write(bytes.slice(..middle)));
        steps.push(Step::Wait(BETWEEN_WRITES));
        steps.push(Step::Write(bytes.slice(middle..)));
        steps.push(Step::Wait(BETWEEN_WRITES));
        return;
    }
    steps.push(Step::Write(bytes));
}

/// `Some`: the plan is nothing but writing, and this is all of it.
pub(crate) fn at_once(steps: &[Step]) -> Option<Bytes> {
    let mut all = BytesMut::new();
    for step in steps {
        match step {
            Step::Write(bytes) => all.extend_from_slice(bytes),
            Step::Wait(_) | Step::Pass(_) | Step::Cut => return None,
        }
    }
    Some(all.freeze())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;

    use super::{Fillers, Frame, Step, at_once, plan};
    use crate::gate::Door;
    use crate::model::{Answer, Fault, Point, Quirk};

    fn mark(text: &'static str) -> Frame {
        Frame::Mark(Bytes::from_static(text.as_bytes()))
    }

    fn delta(text: &'static str) -> Frame {
        Frame::Delta(Bytes::from_static(text.as_bytes()))
    }

    /// Writes as they are, waits as `.`, gates as `|`, cuts as `x`.
    #[track_caller]
    fn check(answer: Answer, want: &str) {
        let frames = vec![mark("<"), delta("one"), delta("two"), mark(">")];
        let door = Arc::new(Door::default());
        let fillers = Fillers { keep_alive: ":", error: Bytes::from_static(b"!") };
        let steps = plan(frames, &answer, &answer.gates, &door, &fillers);
        let shown: Vec<String> = steps.iter().map(show).collect();
        assert_eq!(shown.join(" "), want, "{answer:?}");
        assert_eq!(at_once(&steps).is_some(), steps.iter().all(|step| matches!(step, Step::Write(_))));
    }

    fn show(step: &Step) -> String {
        match step {
            Step::Write(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Step::Wait(_) => ".".into(),
            Step::Pass(_) => "|".into(),
            Step::Cut => "x".into(),
        }
    }

    #[test]
    fn a_plan_does_what_the_answer_says() {
        let gate = crate::Gate::new();
        let plain = || Answer::text("");
        check(plain(), "< one two >");
        check(plain().every(Duration::from_millis(1)), "< . one . two >");
        check(plain().fault(Fault::CutAfter(0)), "< x");
        check(plain().fault(Fault::CutAfter(1)), "< one x");
        check(plain().fault(Fault::ErrorAfter { deltas: 2, message: "m".into() }), "< one two !");
        check(plain().fault(Fault::Hang(Point::AfterDelta(1))), "< one | two >");
        check(plain().gate(Point::AfterDelta(0), &gate), "< | one two >");
        check(plain().gate(Point::AfterDelta(2), &gate), "< one two | >");
        check(plain().quirk(Quirk::KeepAlives), ": < : one : two : >");
        check(plain().quirk(Quirk::SplitWrites), " . < . o . ne . t . wo .  . > .");
    }
}
