//! What is done to the gateway, and what must be seen afterwards.

use std::time::Duration;

use petasos_core::admission::QUEUE_CAP;
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::Fault;
use serde_json::json;

use super::rig::{Answers, Dice, Rig, SOON, asked, wait};

/// The outer result: the trial could not be made.
type Verdict = Result<Result<(), String>, String>;

#[derive(Debug)]
pub(super) struct Trial {
    pub(super) name: &'static str,
    pub(super) promises: &'static [&'static str],
    pub(super) run: fn(&mut Dice) -> Verdict,
}

pub(super) const TRIALS: &[Trial] = &[
    Trial { name: "killed at a random moment", promises: &["G1", "G2", "G3", "G4", "G5"], run: killed },
    Trial { name: "killed while an answer grows", promises: &["G2", "G3", "G4"], run: killed_streaming },
    Trial { name: "killed during the model call", promises: &["G1", "G2", "G3"], run: killed_thinking },
    Trial { name: "the network is cut before the answer", promises: &["G2", "G4", "G7"], run: cut_off },
    Trial { name: "too many requests", promises: &["G4"], run: too_many },
    Trial { name: "the acknowledgement of a send is lost", promises: &["G4"], run: lost_send },
    Trial { name: "the acknowledgement of a final edit is lost", promises: &["G4"], run: lost_edit },
    Trial { name: "the same message is delivered again", promises: &["G3"], run: delivered_twice },
    Trial { name: "a drain, taken back", promises: &["G6", "G2"], run: drained },
    Trial { name: "work that ends while nobody is there", promises: &["G8", "G3"], run: ended_work },
    Trial { name: "the disk is full", promises: &["G1", "G2"], run: full_disk },
    Trial { name: "more messages than can be answered", promises: &["G9", "G2"], run: flooded },
    Trial { name: "old conversations leave the database", promises: &["G9"], run: aged },
];

const CHATS: std::ops::Range<i64> = 101..105;
const ONE: std::ops::Range<i64> = 101..102;

fn ready(answers: Answers) -> Result<Rig, String> {
    let mut rig = Rig::new(answers)?;
    rig.start()?;
    Ok(rig)
}

fn killed(dice: &mut Dice) -> Verdict {
    let mut rig = ready(Answers::Whole)?;
    CHATS.for_each(|chat| drop(rig.ask(chat)));
    std::thread::sleep(Duration::from_millis(dice.below(300)));
    rig.kill();
    rig.start()?;
    Ok(rig.all_is_well(CHATS))
}

fn killed_streaming(dice: &mut Dice) -> Verdict {
    let mut rig = ready(Answers::Streamed)?;
    ONE.for_each(|chat| drop(rig.ask(chat)));
    std::thread::sleep(Duration::from_millis(300 + dice.below(1200)));
    rig.kill();
    rig.start()?;
    Ok(rig.all_is_well(ONE))
}

fn killed_thinking(_dice: &mut Dice) -> Verdict {
    let mut rig = Rig::new(Answers::Whole)?;
    let gate = rig.model.gate(Point::Before);
    rig.start()?;
    CHATS.for_each(|chat| drop(rig.ask(chat)));
    if !gate.wait_for(CHATS.count() as u64, SOON) {
        return Ok(Err("the model was never asked".into()));
    }
    rig.kill();
    gate.open();
    rig.start()?;
    let well = rig.all_is_well(CHATS);
    let asked = rig.model.look(|desk| desk.request_count());
    Ok(well.and_then(|()| match asked {
        8 => Ok(()),
        asked => Err(format!("four interrupted calls were asked {asked} times in all, not eight")),
    }))
}

fn cut_off(dice: &mut Dice) -> Verdict {
    let mut rig = Rig::new(Answers::Whole)?;
    let gate = rig.model.gate(Point::Before);
    rig.start()?;
    CHATS.for_each(|chat| drop(rig.ask(chat)));
    if !gate.wait_for(CHATS.count() as u64, SOON) {
        return Ok(Err("the model was never asked".into()));
    }
    rig.telegram.down();
    gate.open();
    std::thread::sleep(Duration::from_millis(200 + dice.below(800)));
    rig.telegram.up().map_err(|error| format!("the chat cannot come back: {error}"))?;
    Ok(rig.all_is_well(CHATS))
}

fn too_many(_dice: &mut Dice) -> Verdict {
    let rig = ready(Answers::Whole)?;
    rig.telegram.on("sendMessage").times(2).does(Fault::too_many(1));
    CHATS.for_each(|chat| drop(rig.ask(chat)));
    let well = rig.all_is_well(CHATS);
    let marked: usize = CHATS.map(|chat| rig.marked(chat)).sum();
    let well = well.and_then(|()| rig.struck());
    Ok(well.and_then(|()| if marked == 0 { Ok(()) } else { Err("marked without need".into()) }))
}

fn lost_send(_dice: &mut Dice) -> Verdict {
    let rig = ready(Answers::Whole)?;
    rig.telegram.on("sendMessage").times(1).does(Fault::ResetAfter);
    ONE.for_each(|chat| drop(rig.ask(chat)));
    let copied = wait(|| rig.marked(101) == 1 || rig.unmarked(101) > 1);
    Ok(rig.all_is_well(ONE).and_then(|()| if copied { Ok(()) } else { Err("no marked copy".into()) }))
}

fn lost_edit(_dice: &mut Dice) -> Verdict {
    let rig = ready(Answers::Streamed)?;
    rig.telegram.on("editMessageText").times(2).does(Fault::ResetAfter);
    ONE.for_each(|chat| drop(rig.ask(chat)));
    let well = rig.all_is_well(ONE).and_then(|()| rig.struck());
    let texts = rig.telegram.texts(101);
    Ok(well.and_then(|()| match texts.as_slice() {
        [one] if one == "echo: hello from 101" => Ok(()),
        other => Err(format!("not one message, but {}", other.len())),
    }))
}

fn delivered_twice(_dice: &mut Dice) -> Verdict {
    let rig = ready(Answers::Whole)?;
    rig.telegram.on("getUpdates").times(3).does(Fault::DuplicateUpdates);
    CHATS.for_each(|chat| drop(rig.ask(chat)));
    let well = rig.all_is_well(CHATS).and_then(|()| rig.struck());
    let asked = rig.model.look(|desk| desk.request_count());
    Ok(well.and_then(|()| if asked == 4 { Ok(()) } else { Err(format!("{asked} turns for four messages")) }))
}

fn drained(_dice: &mut Dice) -> Verdict {
    let rig = ready(Answers::Whole)?;
    let marker = rig.home.join(".drain_request.json");
    let no = |error: std::io::Error| format!("the marker: {error}");
    std::fs::write(&marker, "{}").map_err(no)?;
    let state = rig.home.join("gateway_state.json");
    let says = |word: &str| std::fs::read_to_string(&state).is_ok_and(|text| text.contains(word));
    if !wait(|| says("\"draining\"")) {
        return Ok(Err("it does not drain".into()));
    }
    rig.ask(201);
    if !wait(|| rig.telegram.texts(201).iter().any(|text| text.contains("draining"))) {
        return Ok(Err("whoever wrote during the drain was not told".into()));
    }
    std::fs::remove_file(&marker).map_err(no)?;
    if !wait(|| says("\"running\"")) {
        return Ok(Err("the drain was taken back and left a trace".into()));
    }
    ONE.for_each(|chat| drop(rig.ask(chat)));
    Ok(rig.all_is_well(ONE))
}

/// The process outlives the gateway that started it; its end is told by the next one.
fn ended_work(dice: &mut Dice) -> Verdict {
    let mut rig = Rig::new(Answers::Working)?;
    rig.model.respond(|request| {
        if request.messages().last().is_some_and(|row| row["role"] == "tool") {
            return Answer::text("it runs");
        }
        match asked(&request.last_user) {
            "work" => {
                let command = "sleep 0.4; echo the end of it";
                let call = json!({ "command": command, "background": true, "notify_on_complete": true });
                Answer::tool("terminal", call)
            }
            told if told.contains("the end of it") => Answer::text("told: it has ended"),
            other => Answer::text(format!("echo: {other}")),
        }
    });
    rig.start()?;
    rig.telegram.push_text(101, 101, "work");
    if !wait(|| rig.telegram.texts(101).iter().any(|text| text.ends_with("it runs"))) {
        return Ok(Err("the work never began".into()));
    }
    rig.kill();
    std::thread::sleep(Duration::from_millis(dice.below(800)));
    rig.start()?;
    let told = || rig.telegram.texts(101).into_iter().filter(|text| text.ends_with("told: it has ended"));
    if !wait(|| told().count() > 0) {
        return Ok(Err("nobody heard that it has ended".into()));
    }
    let settled = rig.settle();
    let unmarked = told().filter(|text| text.starts_with("told")).count();
    Ok(settled.and_then(|()| if unmarked <= 1 { Ok(()) } else { Err(format!("told {unmarked} times")) }))
}

fn full_disk(_dice: &mut Dice) -> Verdict {
    let mut rig = ready(Answers::Whole)?;
    rig.ask(301);
    let before = rig.all_is_well(301..302);
    rig.kill();
    let size = |name: &str| std::fs::metadata(rig.home.join(name)).map_or(0, |found| found.len());
    let largest = size("petasos.db").max(size("petasos.db-wal"));
    let polls = rig.telegram.calls_of("getUpdates").len();
    rig.launch(Some(largest / 1024 + 24))?;
    // More than fits.
    let long = "more than fits ".repeat(14_000);
    rig.telegram.push_text(101, 101, long);
    // It has been heard, and there was a poll that could have said so.
    let waited = wait(|| rig.telegram.calls_of("getUpdates").len() > polls + 2);
    if rig.telegram.pending_updates() == 0 {
        return Ok(before.and(Err("a message was acknowledged that could not be stored".into())));
    }
    rig.kill();
    rig.start()?;
    let answered = wait(|| rig.telegram.texts(101).iter().any(|text| text.contains("more than fits")));
    Ok(before.and_then(|()| match (waited, answered) {
        (true, true) => Ok(()),
        (false, _) => Err("it stopped asking for messages".into()),
        (true, false) => Err("it was not answered when there was room again".into()),
    }))
}

fn flooded(dice: &mut Dice) -> Verdict {
    let rig = ready(Answers::Whole)?;
    let gate = rig.model.gate(Point::Before);
    let count = 60 + dice.below(40);
    for number in 0..count {
        rig.telegram.push_text(101, 101, format!("number {number}"));
    }
    let taken = wait(|| rig.telegram.pending_updates() == 0);
    // Nothing is answered yet: what waits is what the gateway is willing to hold.
    let bounded = wait(|| rig.queued().is_some_and(|queued| queued <= QUEUE_CAP as u64));
    let within = rig.within_bounds();
    gate.open();
    let settled = rig.settle().and(within).and_then(|()| rig.within_bounds());
    let settled = if bounded { settled } else { Err("more messages wait than the queue may hold".into()) };
    let told = !rig.telegram.texts(101).is_empty();
    Ok(settled.and_then(|()| match (taken, told) {
        (true, true) => Ok(()),
        (false, _) => Err("it stopped taking messages".into()),
        (_, false) => Err("nobody was told anything".into()),
    }))
}

/// Conversations of two days ago, with a limit of one: they become archives, and the one of today stays.
fn aged(_dice: &mut Dice) -> Verdict {
    const OLD: usize = 10;
    let mut rig = Rig::new(Answers::Aging)?;
    rig.store_old_conversations(OLD)?;
    rig.start()?;
    ONE.for_each(|chat| drop(rig.ask(chat)));
    let well = rig.all_is_well(ONE);
    let left = wait(|| rig.stored_conversations() == Some(1) && rig.archives() == OLD);
    let (stored, archived) = (rig.stored_conversations(), rig.archives());
    let well = well.and_then(|()| rig.within_bounds());
    if left {
        return Ok(well);
    }
    Ok(Err(format!("of {OLD} old conversations {archived} were archived; {stored:?} are stored")))
}
