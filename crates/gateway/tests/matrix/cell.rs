//! One cell: a question, a fault, and the resulting messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Fault, Point};

use crate::gateway::Gateway;
use crate::platform::{MatrixPlatform, SOON, eventually};
use crate::rows::{CellFault, Form, ModelFault, Out, VisibleResult};

const QUESTION: &str = "the question";
const FENCE: &str = "over?";
const FIRST: &str = "alpha";
const LAST: &str = "omega";
const CURSOR: char = '▉';
const DUPLICATE_MARK: &str = "♻️ Recovered reply";

/// Matches the request that completes the answer.
fn is_last(text: &str) -> bool {
    text.contains(LAST) && !text.contains(CURSOR)
}

/// Matches the first request that shows part of the answer.
fn is_first(text: &str) -> bool {
    text.contains(FIRST)
}

/// `None`: the fault does not apply to this platform or form.
pub fn run(stage: &dyn MatrixPlatform, trouble: CellFault, form: Form) -> Option<VisibleResult> {
    let want = trouble.want(form, stage.keyed())?;
    let armed = match trouble {
        CellFault::Last(out) | CellFault::Crash(out) => stage.out(is_last, out),
        CellFault::First(out) => stage.out(is_first, out),
        CellFault::Clock(_) => stage.out(is_last, Out::TooMany),
        CellFault::Away | CellFault::Incoming(_) | CellFault::Model(_) => true,
    };
    if !armed {
        return None;
    }
    let mut gateway = Gateway::new(form);
    let words = expected_words(stage, form);
    let gate = Arc::new(Gate::new());
    set_model(&gateway, trouble, form, words.join(" "), &gate);
    gateway.start(stage.adapters(trouble.patience()));
    gateway.wait_until_connected();
    if let CellFault::Incoming(fault) = trouble {
        // Start the conversation first: some platforms do not deliver events of new conversations after a reconnect.
        stage.send_text("hello");
        eventually("a conversation", || stage.texts().iter().any(|text| text == "beside").then_some(()));
        if !stage.hear(fault, QUESTION) {
            gateway.stop();
            return None;
        }
    } else {
        stage.send_text(QUESTION);
    }
    assert!(gate.wait(SOON), "the model was never asked");
    if form == Form::Streamed {
        let first_fails = matches!(trouble, CellFault::First(_));
        let shown = || {
            stage.texts().iter().any(|text| is_first(text)) && (!first_fails || stage.faults_applied() > 0)
        };
        eventually("shown while it grows", || shown().then_some(()));
    }
    trigger_answer(&mut gateway, stage, trouble, &gate);
    eventually("an outcome", || (is_whole(&stage.texts(), &words) || gateway.dead() > 0).then_some(()));
    eventually("calm", || gateway.is_calm().then_some(()));
    stage.send_text(FENCE);
    eventually("the next answer", || stage.texts().iter().any(|text| text == "fence").then_some(()));
    let struck = match trouble {
        CellFault::Model(_) => gateway.model.read(|desk| desk.request_count() >= 3),
        // `trigger_answer` has checked that an attempt failed.
        CellFault::Away => true,
        _other => stage.faults_applied() > 0,
    };
    assert!(struck, "the fault struck nothing");
    let seen = classify(&stage.texts(), &words, gateway.dead());
    gateway.stop();
    assert_eq!(seen, want, "{:?}", summarise(&stage.texts()));
    Some(seen)
}

/// Injects faults that depend on the answer and lets the model answer.
fn trigger_answer(gateway: &mut Gateway, stage: &dyn MatrixPlatform, trouble: CellFault, gate: &Gate) {
    if trouble == CellFault::Away {
        stage.down();
        gate.open();
        eventually("tried in vain", || gateway.is_set_back().then_some(()));
        return stage.up();
    }
    gate.open();
    let struck = || eventually("struck", || (stage.faults_applied() > 0).then_some(()));
    match trouble {
        CellFault::Crash(_) => {
            struck();
            gateway.crash();
            gateway.start(stage.adapters(trouble.patience()));
        }
        CellFault::Clock(hours) => {
            eventually("waiting", || gateway.is_set_back().then_some(()));
            gateway.jump(hours);
        }
        CellFault::Last(_)
        | CellFault::First(_)
        | CellFault::Away
        | CellFault::Incoming(_)
        | CellFault::Model(_) => {}
    }
}

/// Configures the model.
fn set_model(gateway: &Gateway, trouble: CellFault, form: Form, text: String, gate: &Arc<Gate>) {
    let gate = gate.clone();
    let failed = AtomicBool::new(false);
    gateway.model.respond(move |request| {
        if request.last_user.contains(FENCE) {
            return Answer::text("fence");
        }
        let begun = request.messages().iter().rev().find(|it| it["role"] == "assistant");
        let begun = begun.and_then(|it| it["content"].as_str()).unwrap_or_default();
        let rest = if request.last_user.contains(QUESTION) {
            text.as_str()
        } else if let (CellFault::Model(ModelFault::CutOff), Some(rest)) = (trouble, text.strip_prefix(begun))
        {
            rest
        } else {
            return Answer::text("beside");
        };
        let answer = Answer::text(rest).chunks(8);
        if let (CellFault::Model(mind), false) = (trouble, failed.swap(true, Ordering::Relaxed)) {
            return match mind {
                ModelFault::NotWell => Answer::status(503, ""),
                ModelFault::CutOff => answer.fault(Fault::CutAfter(4)),
                ModelFault::Garbage => Answer::failing(Fault::Garbage),
            };
        }
        match form {
            Form::Streamed => answer.gate(Point::AfterDelta(4), &gate),
            Form::Plain | Form::Split => answer.gate(Point::Before, &gate),
        }
    });
}

fn expected_words(stage: &dyn MatrixPlatform, form: Form) -> Vec<String> {
    let long = || {
        let adapters = stage.adapters(crate::rows::AdapterTimeout::Long);
        adapters.last().map_or(0, |adapter| adapter.capabilities().max_message * 4 / 3).clamp(6_000, 60_000)
    };
    let count = if form == Form::Split { long() / 7 } else { 40 };
    let middle = (0..count).map(|number| format!("w{number:05}"));
    [FIRST.to_owned()].into_iter().chain(middle).chain([LAST.to_owned()]).collect()
}

fn is_whole(texts: &[String], words: &[String]) -> bool {
    let parts: Vec<&str> = texts.iter().filter(|text| !text.contains(CURSOR)).map(String::as_str).collect();
    let shown: std::collections::HashSet<&str> =
        parts.iter().flat_map(|text| text.split_whitespace()).collect();
    words.iter().all(|word| shown.contains(word.as_str()))
}

#[track_caller]
fn classify(texts: &[String], words: &[String], dead: u64) -> VisibleResult {
    let mut counts: HashMap<&str, (u32, u32)> = words.iter().map(|word| (word.as_str(), (0, 0))).collect();
    for text in texts {
        for word in text.split_whitespace() {
            match counts.get_mut(word) {
                Some((_, marked)) if text.starts_with(DUPLICATE_MARK) => *marked += 1,
                Some((plain, _)) => *plain += 1,
                None => {}
            }
        }
    }
    let plain = counts.values().map(|(plain, _)| *plain).max().unwrap_or_default();
    assert!(plain <= 1, "an unmarked copy: {:?}", summarise(texts));
    if dead > 0 {
        return VisibleResult::GivenUp;
    }
    assert!(is_whole(texts, words), "something is missing: {:?}", summarise(texts));
    let finished = texts.iter().filter(|text| !text.contains(CURSOR));
    let order: Vec<&str> = finished.flat_map(|text| text.split_whitespace()).collect();
    let places = words.iter().map(|word| order.iter().position(|shown| shown == word));
    assert!(places.is_sorted(), "out of order: {:?}", summarise(texts));
    let marked: u32 = counts.values().map(|(_, marked)| *marked).sum();
    let total = counts.values().map(|(plain, marked)| plain + marked).max().unwrap_or_default();
    match (marked, total) {
        (0, _) => VisibleResult::Once,
        (_, 1) => VisibleResult::Marked,
        (_, 2) => VisibleResult::Twice,
        (_, more) => panic!("{more} copies: {:?}", summarise(texts)),
    }
}

/// Beginning and end of each message, for failure output.
fn summarise(texts: &[String]) -> Vec<String> {
    let short = |text: &String| {
        let chars: Vec<char> = text.chars().collect();
        if chars.len() < 100 {
            return text.clone();
        }
        let head = &chars[..60];
        let tail = &chars[chars.len() - 30..];
        format!("{} … {}", head.iter().collect::<String>(), tail.iter().collect::<String>())
    };
    texts.iter().map(short).collect()
}
