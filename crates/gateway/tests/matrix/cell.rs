//! One cell: a question, what befalls it or its answer, and what people see in the end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Fault, Point};

use crate::gateway::Gateway;
use crate::rows::{Form, Mind, Out, Seen, Trouble};
use crate::stage::{SOON, Stage, eventually};

const QUESTION: &str = "the question";
const FENCE: &str = "over?";
const FIRST: &str = "alpha";
const LAST: &str = "omega";
const CURSOR: char = '▉';
const MARK: &str = "♻️ Recovered reply";

/// The request that completes the answer.
fn is_last(text: &str) -> bool {
    text.contains(LAST) && !text.contains(CURSOR)
}

/// The first request that shows something of the answer.
fn is_first(text: &str) -> bool {
    text.contains(FIRST)
}

/// `None`: there is no such thing on this stage or in this form.
pub fn run(stage: &dyn Stage, trouble: Trouble, form: Form) -> Option<Seen> {
    let want = trouble.want(form, stage.keyed())?;
    let armed = match trouble {
        Trouble::Last(out) | Trouble::Crash(out) => stage.out(is_last, out),
        Trouble::First(out) => stage.out(is_first, out),
        Trouble::Clock(_) => stage.out(is_last, Out::TooMany),
        Trouble::Away | Trouble::Heard(_) | Trouble::Model(_) => true,
    };
    if !armed {
        return None;
    }
    let mut gateway = Gateway::new(form);
    let words = words(stage, form);
    let gate = Arc::new(Gate::new());
    instruct(&gateway, trouble, form, words.join(" "), &gate);
    gateway.start(stage.adapters(trouble.patience()));
    gateway.hears();
    if let Trouble::Heard(fault) = trouble {
        // A conversation that has begun: of one that has not, some platforms tell nobody who was not there.
        stage.say("hello");
        eventually("a conversation", || stage.texts().iter().any(|text| text == "beside").then_some(()));
        if !stage.hear(fault, QUESTION) {
            gateway.stop();
            return None;
        }
    } else {
        stage.say(QUESTION);
    }
    assert!(gate.wait(SOON), "the model was never asked");
    if form == Form::Streamed {
        let first_fails = matches!(trouble, Trouble::First(_));
        let shown =
            || stage.texts().iter().any(|text| is_first(text)) && (!first_fails || stage.struck() > 0);
        eventually("shown while it grows", || shown().then_some(()));
    }
    meet(&mut gateway, stage, trouble, &gate);
    eventually("an outcome", || (is_whole(&stage.texts(), &words) || gateway.dead() > 0).then_some(()));
    eventually("calm", || gateway.is_calm().then_some(()));
    stage.say(FENCE);
    eventually("the next answer", || stage.texts().iter().any(|text| text == "fence").then_some(()));
    let struck = match trouble {
        Trouble::Model(_) => gateway.model.look(|desk| desk.request_count() >= 3),
        // `meet` has seen that it was tried in vain.
        Trouble::Away => true,
        _other => stage.struck() > 0,
    };
    assert!(struck, "the fault struck nothing");
    let seen = judge(&stage.texts(), &words, gateway.dead());
    gateway.stop();
    assert_eq!(seen, want, "{:?}", brief(&stage.texts()));
    Some(seen)
}

/// From the moment at which the model has something to say.
fn meet(gateway: &mut Gateway, stage: &dyn Stage, trouble: Trouble, gate: &Gate) {
    if trouble == Trouble::Away {
        stage.down();
        gate.open();
        eventually("tried in vain", || gateway.is_set_back().then_some(()));
        return stage.up();
    }
    gate.open();
    let struck = || eventually("struck", || (stage.struck() > 0).then_some(()));
    match trouble {
        Trouble::Crash(_) => {
            struck();
            gateway.crash();
            gateway.start(stage.adapters(trouble.patience()));
        }
        Trouble::Clock(hours) => {
            eventually("waiting", || gateway.is_set_back().then_some(()));
            gateway.jump(hours);
        }
        Trouble::Last(_) | Trouble::First(_) | Trouble::Away | Trouble::Heard(_) | Trouble::Model(_) => {}
    }
}

/// What the model says to whom.
fn instruct(gateway: &Gateway, trouble: Trouble, form: Form, text: String, gate: &Arc<Gate>) {
    let (gate, failed) = (gate.clone(), AtomicBool::new(false));
    gateway.model.respond(move |request| {
        if request.last_user.contains(FENCE) {
            return Answer::text("fence");
        }
        let begun = request.messages().iter().rev().find(|it| it["role"] == "assistant");
        let begun = begun.and_then(|it| it["content"].as_str()).unwrap_or_default();
        let rest = if request.last_user.contains(QUESTION) {
            text.as_str()
        } else if let (Trouble::Model(Mind::CutOff), Some(rest)) = (trouble, text.strip_prefix(begun)) {
            rest
        } else {
            return Answer::text("beside");
        };
        let answer = Answer::text(rest).chunks(8);
        if let (Trouble::Model(mind), false) = (trouble, failed.swap(true, Ordering::Relaxed)) {
            return match mind {
                Mind::NotWell => Answer::status(503, ""),
                Mind::CutOff => answer.fault(Fault::CutAfter(4)),
                Mind::Garbage => Answer::failing(Fault::Garbage),
            };
        }
        match form {
            Form::Streamed => answer.gate(Point::AfterDelta(4), &gate),
            Form::Plain | Form::Split => answer.gate(Point::Before, &gate),
        }
    });
}

/// Every word of the answer, each only once.
fn words(stage: &dyn Stage, form: Form) -> Vec<String> {
    let long = || {
        let adapters = stage.adapters(crate::rows::Patience::Long);
        adapters.last().map_or(0, |adapter| adapter.capabilities().max_message * 4 / 3).clamp(6_000, 60_000)
    };
    let count = if form == Form::Split { long() / 7 } else { 40 };
    let middle = (0..count).map(|number| format!("w{number:05}"));
    [FIRST.to_owned()].into_iter().chain(middle).chain([LAST.to_owned()]).collect()
}

fn is_whole(texts: &[String], words: &[String]) -> bool {
    let said: Vec<&str> = texts.iter().filter(|text| !text.contains(CURSOR)).map(String::as_str).collect();
    let said: std::collections::HashSet<&str> =
        said.iter().flat_map(|text| text.split_whitespace()).collect();
    words.iter().all(|word| said.contains(word.as_str()))
}

#[track_caller]
fn judge(texts: &[String], words: &[String], dead: u64) -> Seen {
    let mut counts: HashMap<&str, (u32, u32)> = words.iter().map(|word| (word.as_str(), (0, 0))).collect();
    for text in texts {
        for word in text.split_whitespace() {
            match counts.get_mut(word) {
                Some((_, marked)) if text.starts_with(MARK) => *marked += 1,
                Some((plain, _)) => *plain += 1,
                None => {}
            }
        }
    }
    let plain = counts.values().map(|(plain, _)| *plain).max().unwrap_or_default();
    assert!(plain <= 1, "an unmarked copy: {:?}", brief(texts));
    if dead > 0 {
        return Seen::GivenUp;
    }
    assert!(is_whole(texts, words), "something is missing: {:?}", brief(texts));
    let finished = texts.iter().filter(|text| !text.contains(CURSOR));
    let order: Vec<&str> = finished.flat_map(|text| text.split_whitespace()).collect();
    let places = words.iter().map(|word| order.iter().position(|said| said == word));
    assert!(places.is_sorted(), "out of order: {:?}", brief(texts));
    let marked: u32 = counts.values().map(|(_, marked)| *marked).sum();
    let total = counts.values().map(|(plain, marked)| plain + marked).max().unwrap_or_default();
    match (marked, total) {
        (0, _) => Seen::Once,
        (_, 1) => Seen::Marked,
        (_, 2) => Seen::Twice,
        (_, more) => panic!("{more} copies: {:?}", brief(texts)),
    }
}

/// Beginnings and ends, for whoever has to understand it.
fn brief(texts: &[String]) -> Vec<String> {
    let short = |text: &String| {
        let chars: Vec<char> = text.chars().collect();
        if chars.len() < 100 {
            return text.clone();
        }
        let (head, tail) = (&chars[..60], &chars[chars.len() - 30..]);
        format!("{} … {}", head.iter().collect::<String>(), tail.iter().collect::<String>())
    };
    texts.iter().map(short).collect()
}
