//! The frames of a streamed answer, and the plan for sending them.
//!
//! A protocol makes frames; the plan adds pauses, gates and faults; `http` executes it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::answer::{Answer, Fault, Point, Quirk};
use crate::faults::gate::Barrier;

/// Long enough for the reader to get two reads.
const BETWEEN_WRITES: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamFrame {
    /// The start or end of a stream or of a block.
    Boundary(Bytes),
    /// Text, reasoning, or part of a tool call.
    Delta(Bytes),
}

#[derive(Debug, Clone)]
pub(crate) enum PlanStep {
    Write(Bytes),
    Wait(Duration),
    Pass(Arc<Barrier>),
    /// Ends the connection with the answer unfinished.
    Cut,
}

/// Protocol bytes that are the same for the whole stream.
#[derive(Debug)]
pub(crate) struct Fillers {
    pub(crate) keep_alive: &'static str,
    /// The error object for `ErrorAfter`.
    pub(crate) error: Bytes,
}

/// `gates` are those of the fake and of the answer; `hang` holds hanging answers.
pub(crate) fn plan(
    frames: Vec<StreamFrame>,
    answer: &Answer,
    gates: &[(Point, Arc<Barrier>)],
    hang: &Arc<Barrier>,
    fillers: &Fillers,
) -> Vec<PlanStep> {
    let first_delta = frames.iter().position(|frame| matches!(frame, StreamFrame::Delta(_)));
    let opening = first_delta.unwrap_or(1.min(frames.len()));
    let mut steps = Vec::new();
    let mut deltas = 0;
    for (at, frame) in frames.into_iter().enumerate() {
        let delta = matches!(frame, StreamFrame::Delta(_));
        if at == opening && add_events(0, answer, gates, hang, fillers, &mut steps) {
            return steps;
        }
        if delta && !answer.every.is_zero() {
            steps.push(PlanStep::Wait(answer.every));
        }
        let (StreamFrame::Boundary(bytes) | StreamFrame::Delta(bytes)) = frame;
        add_write(bytes, answer, fillers, &mut steps);
        if delta {
            deltas += 1;
            if add_events(deltas, answer, gates, hang, fillers, &mut steps) {
                return steps;
            }
        }
    }
    steps
}

/// Adds what happens after this many deltas. `true`: the answer ends.
fn add_events(
    deltas: usize,
    answer: &Answer,
    gates: &[(Point, Arc<Barrier>)],
    hang: &Arc<Barrier>,
    fillers: &Fillers,
    steps: &mut Vec<PlanStep>,
) -> bool {
    let here = Point::AfterDelta(deltas);
    steps.extend(gates.iter().filter(|gate| gate.0 == here).map(|gate| PlanStep::Pass(gate.1.clone())));
    match &answer.fault {
        Some(Fault::CutAfter(after)) if *after == deltas => {
            steps.push(PlanStep::Cut);
            true
        }
        Some(Fault::ErrorAfter { deltas: after, message: _ }) if *after == deltas => {
            steps.push(PlanStep::Write(fillers.error.clone()));
            true
        }
        Some(Fault::Hang(point)) if *point == here => {
            steps.push(PlanStep::Pass(hang.clone()));
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

fn add_write(bytes: Bytes, answer: &Answer, fillers: &Fillers, steps: &mut Vec<PlanStep>) {
    if answer.has(Quirk::KeepAlives) {
        steps.push(PlanStep::Write(Bytes::from_static(fillers.keep_alive.as_bytes())));
    }
    if answer.has(Quirk::SplitWrites) {
        let middle = bytes.len() / 2;
        steps.push(PlanStep::Write(bytes.slice(..middle)));
        steps.push(PlanStep::Wait(BETWEEN_WRITES));
        steps.push(PlanStep::Write(bytes.slice(middle..)));
        steps.push(PlanStep::Wait(BETWEEN_WRITES));
        return;
    }
    steps.push(PlanStep::Write(bytes));
}

/// The whole answer, if the plan only writes.
pub(crate) fn single_write(steps: &[PlanStep]) -> Option<Bytes> {
    let mut all = BytesMut::new();
    for step in steps {
        match step {
            PlanStep::Write(bytes) => all.extend_from_slice(bytes),
            PlanStep::Wait(_) | PlanStep::Pass(_) | PlanStep::Cut => return None,
        }
    }
    Some(all.freeze())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;

    use super::{Fillers, PlanStep, StreamFrame, plan, single_write};
    use crate::faults::gate::Barrier;
    use crate::model::{Answer, Fault, Point, Quirk};

    fn boundary(text: &'static str) -> StreamFrame {
        StreamFrame::Boundary(Bytes::from_static(text.as_bytes()))
    }

    fn delta(text: &'static str) -> StreamFrame {
        StreamFrame::Delta(Bytes::from_static(text.as_bytes()))
    }

    /// Shows writes as they are, waits as `.`, gates as `|`, cuts as `x`.
    #[track_caller]
    fn check(answer: Answer, want: &str) {
        let frames = vec![boundary("<"), delta("one"), delta("two"), boundary(">")];
        let barrier = Arc::new(Barrier::default());
        let fillers = Fillers { keep_alive: ":", error: Bytes::from_static(b"!") };
        let steps = plan(frames, &answer, &answer.gates, &barrier, &fillers);
        let shown: Vec<String> = steps.iter().map(show).collect();
        assert_eq!(shown.join(" "), want, "{answer:?}");
        assert_eq!(
            single_write(&steps).is_some(),
            steps.iter().all(|step| matches!(step, PlanStep::Write(_)))
        );
    }

    fn show(step: &PlanStep) -> String {
        match step {
            PlanStep::Write(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            PlanStep::Wait(_) => ".".into(),
            PlanStep::Pass(_) => "|".into(),
            PlanStep::Cut => "x".into(),
        }
    }

    #[test]
    fn plan_follows_the_answer() {
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
