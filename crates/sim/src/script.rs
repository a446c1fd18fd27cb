//! What people and operators will do, and when: written before the first step.

use petasos_core::Millis;
use petasos_core::lifecycle::{From, How, Leave};

use crate::case::Plan;
use crate::figures::START;
use crate::outside::{Class, Ended, Errand, Run, Said, World};
use petasos_runtime::simulation::rng::Rng;

/// Something that happens by itself, whatever the program does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scripted {
    Say(usize),
    WorkEnds(usize),
    NewJob(usize),
    StartRun(usize),
    StopRun(usize),
    Drain { on: bool },
    Leave(Leave),
    Disk { whose: Whose, full: bool },
    Clock { whose: Whose, by: i64 },
    ConnectorStarts,
    Boot,
    Calm,
}

/// Of the two processes that keep something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Gateway,
    Connector,
}

/// Fills the world with what people will write, and says when everything happens.
pub(crate) fn script(plan: &Plan, world: &mut World, script: &mut Rng) -> Vec<(Millis, Scripted)> {
    let span = plan.span;
    let mut events = Vec::new();
    let mut times: Vec<_> = (0..plan.messages).map(|_| script.below(span)).collect();
    times.sort_unstable();
    // Platforms number what is written in the order in which it is: no two at the same moment.
    for at in 1..times.len() {
        times[at] = times[at].max(times[at - 1] + 1);
    }
    for (number, time) in times.into_iter().enumerate() {
        let chat = usize::try_from(script.below(plan.chats)).unwrap_or_default();
        let user = if world.is_group(chat) { script.pick(&["u0", "u1"]) } else { "u0" };
        let text = match script.below(20) {
            0 => "/stop".to_owned(),
            1 => "/new".to_owned(),
            2 => format!("/queue [m{number}]"),
            3 if plan.rows.is_some() => "/compress".to_owned(),
            _ => format!("hello [m{number}]"),
        };
        let at = Millis(START.0 + 1_000 + time);
        let (user, written, acked, inbox) = (user.to_owned(), false, false, None);
        let (buffer, aside) = (None, false);
        let pulled = world.chats[chat].class == Class::Pull;
        let file = plan.file_odds > 0 && !pulled && script.odds(plan.file_odds) && !text.starts_with('/');
        let answers = plan.consent.is_some() && script.odds(700);
        let said = Said { chat, user, text, at, written, acked, inbox, buffer, aside, file, answers };
        world.said.push(said);
        events.push((at, Scripted::Say(number)));
    }
    for number in 0..plan.completions {
        let chat = usize::try_from(script.below(plan.chats)).unwrap_or_default();
        world.ended.push(Ended { chat, inbox: None });
        let at = Millis(START.0 + 1_000 + script.below(span));
        events.push((at, Scripted::WorkEnds(usize::try_from(number).unwrap_or_default())));
    }
    for number in 0..plan.jobs {
        // Only where answers are sent: what is told is seen.
        let (chat, minutes) = (usize::try_from(script.below(2)).unwrap_or_default(), script.between(1, 2));
        let runs = u32::try_from(script.between(1, 4)).unwrap_or(1);
        world.errands.push(Errand { chat, minutes, runs, made: false });
        let at = Millis(START.0 + 1_000 + script.below(span / 2));
        events.push((at, Scripted::NewJob(usize::try_from(number).unwrap_or_default())));
    }
    for number in 0..plan.runs {
        let number = usize::try_from(number).unwrap_or_default();
        world.runs.push(Run { chat: script.below(2), ..Run::default() });
        let at = Millis(START.0 + 1_000 + script.below(span));
        events.push((at, Scripted::StartRun(number)));
        if script.odds(200) {
            let later = script.below(30_000);
            events.push((Millis(at.0 + later), Scripted::StopRun(number)));
        }
    }
    for _ in 0..plan.drains {
        let from = script.below(span);
        let to = from + script.between(500, 40_000);
        events.push((Millis(START.0 + from), Scripted::Drain { on: true }));
        events.push((Millis(START.0 + to), Scripted::Drain { on: false }));
    }
    for _ in 0..plan.stops {
        let restart = Leave::Restart { how: How::Service, from: From::Outside };
        let why = script.pick(&[Leave::Stop, Leave::Signal, restart]);
        events.push((Millis(START.0 + 2_000 + script.below(span)), Scripted::Leave(why)));
    }
    for _ in 0..plan.full {
        let whose = if plan.relayed && script.odds(500) { Whose::Connector } else { Whose::Gateway };
        let from = script.below(span);
        let longest = script.pick(&[5_000, 45_000, 1_200_000]);
        let to = from + script.between(500, longest);
        events.push((Millis(START.0 + from), Scripted::Disk { whose, full: true }));
        events.push((Millis(START.0 + to), Scripted::Disk { whose, full: false }));
    }
    for _ in 0..plan.jumps {
        let whose = if plan.relayed && script.odds(300) { Whose::Connector } else { Whose::Gateway };
        let by = jump(script, plan.jobs > 0);
        events.push((Millis(START.0 + script.below(span + 30_000)), Scripted::Clock { whose, by }));
    }
    if plan.relayed {
        events.push((START, Scripted::ConnectorStarts));
    }
    events.push((START, Scripted::Boot));
    // A disk may stay full for longer than people write.
    let rest = if plan.full > 0 { script.pick(&[60_000, 1_200_000]) } else { 60_000 };
    events.push((Millis(START.0 + span + rest), Scripted::Calm));
    events
}

/// Seconds, minutes, hours; forward or back. `near`: no hours, for what waits for the clock itself.
fn jump(script: &mut Rng, near: bool) -> i64 {
    let far = if near { 600_000 } else { 12 * 3_600_000 };
    let longest = script.pick(&[25_000, 600_000, far]);
    let by = i64::try_from(script.between(500, longest)).unwrap_or_default();
    if script.odds(500) { by } else { -by }
}
