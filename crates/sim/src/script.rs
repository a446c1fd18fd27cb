//! What people and operators will do, and when: written before the first step.

use petasos_core::Millis;
use petasos_core::lifecycle::{From, How, Leave};

use crate::clock;
use crate::outside::{Ended, Errand, Said};
use crate::relay;
use crate::rng::Rng;
use crate::shell::Event;
use crate::sim::{START, Sim, Whose};

impl Sim {
    pub(crate) fn write_script(&mut self, script: &mut Rng) {
        let span = self.plan.span;
        let mut times: Vec<_> = (0..self.plan.messages).map(|_| script.below(span)).collect();
        times.sort_unstable();
        // Platforms number what is written in the order in which it is: no two at the same moment.
        for at in 1..times.len() {
            times[at] = times[at].max(times[at - 1] + 1);
        }
        for (number, time) in times.into_iter().enumerate() {
            let chat = usize::try_from(script.below(self.plan.chats)).unwrap_or_default();
            let user = if self.world.is_group(chat) { script.pick(&["u0", "u1"]) } else { "u0" };
            let text = match script.below(20) {
                0 => "/stop".to_owned(),
                1 => "/new".to_owned(),
                2 => format!("/queue [m{number}]"),
                _ => format!("hello [m{number}]"),
            };
            let at = Millis(START.0 + 1_000 + time);
            let (user, written, acked, inbox) = (user.to_owned(), false, false, None);
            let (buffer, aside) = (None, false);
            self.world.said.push(Said { chat, user, text, at, written, acked, inbox, buffer, aside });
            self.at(at, Event::Say(number));
        }
        for number in 0..self.plan.completions {
            let chat = usize::try_from(script.below(self.plan.chats)).unwrap_or_default();
            self.world.ended.push(Ended { chat, inbox: None });
            let at = Millis(START.0 + 1_000 + script.below(span));
            self.at(at, Event::WorkEnds(usize::try_from(number).unwrap_or_default()));
        }
        for number in 0..self.plan.jobs {
            // Only where answers are sent: what is told is seen.
            let (chat, minutes) =
                (usize::try_from(script.below(2)).unwrap_or_default(), script.between(1, 2));
            let runs = u32::try_from(script.between(1, 4)).unwrap_or(1);
            self.world.errands.push(Errand { chat, minutes, runs, made: false });
            let at = Millis(START.0 + 1_000 + script.below(span / 2));
            self.at(at, Event::NewJob(usize::try_from(number).unwrap_or_default()));
        }
        for _ in 0..self.plan.drains {
            let from = script.below(span);
            let to = from + script.between(500, 40_000);
            self.at(Millis(START.0 + from), Event::Drain { on: true });
            self.at(Millis(START.0 + to), Event::Drain { on: false });
        }
        for _ in 0..self.plan.stops {
            let restart = Leave::Restart { how: How::Service, from: From::Outside };
            let why = script.pick(&[Leave::Stop, Leave::Signal, restart]);
            self.at(Millis(START.0 + 2_000 + script.below(span)), Event::Leave(why));
        }
        for _ in 0..self.plan.full {
            let whose = if self.plan.relayed && script.odds(500) { Whose::Theirs } else { Whose::Ours };
            let from = script.below(span);
            let longest = script.pick(&[5_000, 45_000, 1_200_000]);
            let to = from + script.between(500, longest);
            self.at(Millis(START.0 + from), Event::Disk { whose, full: true });
            self.at(Millis(START.0 + to), Event::Disk { whose, full: false });
        }
        for _ in 0..self.plan.jumps {
            let whose = if self.plan.relayed && script.odds(300) { Whose::Theirs } else { Whose::Ours };
            let by = clock::jump(script, self.plan.jobs > 0);
            self.at(Millis(START.0 + script.below(span + 30_000)), Event::Clock { whose, by });
        }
        if self.plan.relayed {
            self.relay_soon(relay::Event::Start, 0, 1_000);
        }
        self.at(START, Event::Boot);
        // A disk may stay full for longer than people write.
        let rest = if self.plan.full > 0 { script.pick(&[60_000, 1_200_000]) } else { 60_000 };
        self.at(Millis(START.0 + span + rest), Event::Calm);
    }
}
