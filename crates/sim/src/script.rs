//! The script of a run: messages and operator actions with their times, fixed before the first step.

use petasos_core::Millis;
use petasos_core::lifecycle::{RestartMethod, RestartOrigin, ShutdownReason};

use crate::case::Plan;
use crate::figures::START;
use crate::outside::{Class, Ended, Errand, Run, Said, World};
use petasos_runtime::simulation::rng::Rng;

/// A scripted event.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scripted {
    Say(usize),
    WorkEnds(usize),
    NewJob(usize),
    StartRun(usize),
    StopRun(usize),
    Drain { on: bool },
    Leave(ShutdownReason),
    Disk { whose: Whose, full: bool },
    Clock { whose: Whose, by: i64 },
    ConnectorStarts,
    Boot,
    Calm,
}

/// The affected process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Gateway,
    Connector,
}

/// Creates the messages and returns all scripted events.
pub(crate) fn script(plan: &Plan, world: &mut World, script: &mut Rng) -> Vec<(Millis, Scripted)> {
    let span = plan.span;
    let mut events = Vec::new();
    let mut times: Vec<_> = (0..plan.messages).map(|_| script.below(span)).collect();
    times.sort_unstable();
    // Platforms number messages in the order of their times, so times must differ.
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
        let user = user.to_owned();
        let written = false;
        let acked = false;
        let inbox = None;
        let buffer = None;
        let aside = false;
        let pulled = world.chats[chat].class == Class::Pull;
        let file = plan.file_odds > 0 && !pulled && script.chance(plan.file_odds) && !text.starts_with('/');
        let answers = plan.consent.is_some() && script.chance(700);
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
        // Only in chats with pushed answers, where reports are visible.
        let chat = usize::try_from(script.below(2)).unwrap_or_default();
        let minutes = script.between(1, 2);
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
        if script.chance(200) {
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
        let restart =
            ShutdownReason::Restart { method: RestartMethod::Service, origin: RestartOrigin::Outside };
        let why = script.pick(&[ShutdownReason::Stop, ShutdownReason::Signal, restart]);
        events.push((Millis(START.0 + 2_000 + script.below(span)), Scripted::Leave(why)));
    }
    for _ in 0..plan.full {
        let whose = if plan.relayed && script.chance(500) { Whose::Connector } else { Whose::Gateway };
        let from = script.below(span);
        let longest = script.pick(&[5_000, 45_000, 1_200_000]);
        let to = from + script.between(500, longest);
        events.push((Millis(START.0 + from), Scripted::Disk { whose, full: true }));
        events.push((Millis(START.0 + to), Scripted::Disk { whose, full: false }));
    }
    for _ in 0..plan.jumps {
        let whose = if plan.relayed && script.chance(300) { Whose::Connector } else { Whose::Gateway };
        let by = jump(script, plan.jobs > 0);
        events.push((Millis(START.0 + script.below(span + 30_000)), Scripted::Clock { whose, by }));
    }
    if plan.relayed {
        events.push((START, Scripted::ConnectorStarts));
    }
    events.push((START, Scripted::Boot));
    // A disk may stay full after the last message.
    let rest = if plan.full > 0 { script.pick(&[60_000, 1_200_000]) } else { 60_000 };
    events.push((Millis(START.0 + span + rest), Scripted::Calm));
    events
}

/// A clock jump of seconds, minutes or hours in either direction. `near`: no hours, because scheduled jobs would wait.
fn jump(script: &mut Rng, near: bool) -> i64 {
    let far = if near { 600_000 } else { 12 * 3_600_000 };
    let longest = script.pick(&[25_000, 600_000, far]);
    let by = i64::try_from(script.between(500, longest)).unwrap_or_default();
    if script.chance(500) { by } else { -by }
}
