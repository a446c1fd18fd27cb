//! A day of people who write and services that fail, by chance that can be repeated. Every fault meets links that stand,
//! and is counted: one that strikes nothing shows nothing.

use petasos_fakes::{discord, slack, telegram};

use crate::everywhere::{Everywhere, NAMES};
use crate::{Held, MINUTE, SECOND, calm};

const SEED: u64 = 20_261_116;
/// Twenty minutes each, so that every fault has its turn five times.
const SLICES: usize = 5 * Fault::ALL.len();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    AllDown,
    TelegramDown,
    DiscordDown,
    SlackDown,
    TelegramReset,
    TelegramBadGateway,
    TelegramAnswerLost,
    DiscordCut,
    DiscordMoved,
    DiscordAnswerLost,
    SlackReset,
    SlackClosed,
    SlackMoved,
    SlackAnswerLost,
}

impl Fault {
    const ALL: [Self; 15] = [
        Self::None,
        Self::AllDown,
        Self::TelegramDown,
        Self::DiscordDown,
        Self::SlackDown,
        Self::TelegramReset,
        Self::TelegramBadGateway,
        Self::TelegramAnswerLost,
        Self::DiscordCut,
        Self::DiscordMoved,
        Self::DiscordAnswerLost,
        Self::SlackReset,
        Self::SlackClosed,
        Self::SlackMoved,
        Self::SlackAnswerLost,
    ];

    /// How many connections of each platform it broke, or asked to go, at once. Nothing: it strikes a request to come.
    fn order(self, world: &Everywhere) -> Vec<usize> {
        match self {
            Self::None => {}
            Self::AllDown => return vec![world.telegram.down(), world.discord.down(), world.slack.down()],
            Self::TelegramDown => return vec![world.telegram.down()],
            Self::DiscordDown => return vec![world.discord.down()],
            Self::SlackDown => return vec![world.slack.down()],
            Self::TelegramReset => return vec![world.telegram.reset_connections()],
            Self::DiscordCut => return vec![world.discord.cut_sockets()],
            Self::DiscordMoved => return vec![world.discord.ask_to_reconnect()],
            Self::SlackReset => return vec![world.slack.reset_sockets()],
            Self::SlackClosed => return vec![world.slack.close_sockets()],
            Self::SlackMoved => {
                let open = world.slack.look(slack::World::open_sockets);
                world.slack.announce_disconnect("refresh_requested");
                return vec![open];
            }
            Self::TelegramBadGateway => {
                world.telegram.on("getUpdates").times(3).does(telegram::Fault::status(502, "Bad Gateway"));
            }
            Self::TelegramAnswerLost => {
                world.telegram.on("sendMessage").does(telegram::Fault::ResetAfter);
            }
            Self::DiscordAnswerLost => world.discord.on("createMessage").does(discord::Fault::ResetAfter),
            Self::SlackAnswerLost => world.slack.on("chat.postMessage").does(slack::Fault::ResetAfter),
        }
        vec![]
    }

    /// How many requests it has struck so far, if it is of that kind.
    fn struck(self, world: &Everywhere) -> Option<usize> {
        match self {
            Self::TelegramBadGateway => Some(world.telegram.look(|world| {
                let refused = |call: &&telegram::Call| {
                    matches!(call.outcome, telegram::Outcome::Refused { code: 502, .. })
                };
                world.calls_of("getUpdates").filter(refused).count()
            })),
            Self::TelegramAnswerLost => Some(world.telegram.look(|world| {
                let lost = |call: &&telegram::Call| call.outcome == telegram::Outcome::Reset;
                world.calls_of("sendMessage").filter(lost).count()
            })),
            Self::DiscordAnswerLost => Some(world.discord.look(|world| {
                let lost = |call: &&discord::Call| call.outcome == discord::Outcome::Reset;
                world.calls_of("createMessage").filter(lost).count()
            })),
            Self::SlackAnswerLost => Some(world.slack.look(|world| {
                let lost = |call: &&slack::Call| call.outcome == slack::Outcome::Reset;
                world.calls_of("chat.postMessage").filter(lost).count()
            })),
            Self::None
            | Self::AllDown
            | Self::TelegramDown
            | Self::DiscordDown
            | Self::SlackDown
            | Self::TelegramReset
            | Self::DiscordCut
            | Self::DiscordMoved
            | Self::SlackReset
            | Self::SlackClosed
            | Self::SlackMoved => None,
        }
    }
}

#[test]
fn a_day_of_random_faults_loses_nothing_and_grows_nothing() {
    println!("seed {SEED}");
    let mut chance = Chance(SEED);
    let mut world = Everywhere::idle();
    world.start(calm());
    let (mut texts, mut held) = (Vec::new(), Vec::new());
    for (slice, fault) in plan(&mut chance).into_iter().enumerate() {
        world.time.until("connected", 30 * MINUTE, 20 * SECOND, || world.all_hear());
        if slice % 18 == 0 {
            // Calm for long enough: what is held then is what is kept.
            world.time.pass(5 * MINUTE, MINUTE);
            held.push(Held::now(&world));
        }
        let text = format!("number {slice}.");
        let before = fault.struck(&world);
        let broken = fault.order(&world);
        assert!(!broken.contains(&0), "slice {slice}, {fault:?}: {broken:?} struck nothing (seed {SEED})");
        world.say(&text);
        texts.push(text);
        world.time.pass(MINUTE, 20 * SECOND);
        if chance.below(3) == 0 {
            // One more that finds them however they are by now.
            let _whatever_is_there = chance.pick().order(&world);
        }
        world.time.pass(19 * MINUTE, MINUTE);
        let after = fault.struck(&world);
        assert!(before.is_none() || after > before, "slice {slice}: {fault:?} struck nothing (seed {SEED})");
        world.up();
    }
    let all = || world.unanswered(&texts).is_empty().then_some(());
    world.time.until("all answered", 60 * MINUTE, 10 * SECOND, all);
    for (name, chat) in NAMES.iter().zip(world.answers()) {
        for text in &texts {
            let said = chat.iter().filter(|said| said.contains(&format!("{name} {text}")));
            let unmarked = said.filter(|said| said.starts_with("echo: ")).count();
            assert!(unmarked <= 1, "{name} {text} was answered {unmarked} times (seed {SEED})");
        }
    }
    let (half, end) = (&held[1], &held[3]);
    assert!(end.files <= half.files + 6, "open files: {held:?} (seed {SEED})");
    assert!(end.tasks <= half.tasks + 6, "tasks: {held:?} (seed {SEED})");
    // The fakes remember every call; the gateway may not add to that.
    assert!(end.resident <= half.resident + (24 << 20), "memory: {held:?} (seed {SEED})");
}

/// Every fault as often as the others, in any order.
fn plan(chance: &mut Chance) -> Vec<Fault> {
    let mut plan: Vec<Fault> = Fault::ALL.into_iter().cycle().take(SLICES).collect();
    for last in (1..plan.len()).rev() {
        plan.swap(last, chance.below(last + 1));
    }
    plan
}

/// xorshift64*: the same numbers for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let roll = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(roll).unwrap_or_default() % end
    }

    fn pick(&mut self) -> Fault {
        Fault::ALL[self.below(Fault::ALL.len())]
    }
}
