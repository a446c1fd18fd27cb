//! A simulated day of messages and random faults with a fixed seed. Every fault hits connected links and is counted.

use petasos_fakes::{discord, slack, telegram};

use crate::three_platforms::{NAMES, ThreePlatforms};
use crate::{MINUTE, ResourceUse, SECOND, calm};

const SEED: u64 = 20_261_116;
/// Twenty minutes each; every fault occurs five times.
const SLICES: usize = 5 * DayFault::ALL.len();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DayFault {
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

impl DayFault {
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

    /// Number of connections per platform that the fault broke at once. Empty: it hits later requests.
    fn break_connections(self, world: &ThreePlatforms) -> Vec<usize> {
        match self {
            Self::None => {}
            Self::AllDown => return vec![world.telegram.down(), world.discord.down(), world.slack.down()],
            Self::TelegramDown => return vec![world.telegram.down()],
            Self::DiscordDown => return vec![world.discord.down()],
            Self::SlackDown => return vec![world.slack.down()],
            Self::TelegramReset => return vec![world.telegram.reset_connections()],
            Self::DiscordCut => return vec![world.discord.reset_sockets()],
            Self::DiscordMoved => return vec![world.discord.request_reconnect()],
            Self::SlackReset => return vec![world.slack.reset_sockets()],
            Self::SlackClosed => return vec![world.slack.close_sockets()],
            Self::SlackMoved => {
                let open = world.slack.read(slack::State::open_sockets);
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

    /// Number of requests that the fault has hit so far, if it hits requests.
    fn strike_count(self, world: &ThreePlatforms) -> Option<usize> {
        match self {
            Self::TelegramBadGateway => Some(world.telegram.read(|world| {
                let refused = |call: &&telegram::ApiCall| {
                    matches!(
                        call.outcome,
                        telegram::Outcome::Refused(telegram::ServiceError { code: 502, .. })
                    )
                };
                world.calls_of("getUpdates").filter(refused).count()
            })),
            Self::TelegramAnswerLost => Some(world.telegram.read(|world| {
                let lost = |call: &&telegram::ApiCall| call.outcome == telegram::Outcome::Reset;
                world.calls_of("sendMessage").filter(lost).count()
            })),
            Self::DiscordAnswerLost => Some(world.discord.read(|world| {
                let lost = |call: &&discord::ApiCall| call.outcome == discord::Outcome::Reset;
                world.calls_of("createMessage").filter(lost).count()
            })),
            Self::SlackAnswerLost => Some(world.slack.read(|world| {
                let lost = |call: &&slack::ApiCall| call.outcome == slack::Outcome::Reset;
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
fn day_of_random_faults_loses_and_leaks_nothing() {
    println!("seed {SEED}");
    let mut random = SeededRandom(SEED);
    let mut world = ThreePlatforms::idle();
    world.start(calm());
    let mut texts = Vec::new();
    let mut held = Vec::new();
    for (slice, fault) in plan(&mut random).into_iter().enumerate() {
        world.time.until("connected", 30 * MINUTE, 20 * SECOND, || world.all_connected());
        if slice % 18 == 0 {
            // Long enough without faults to measure the baseline.
            world.time.pass(5 * MINUTE, MINUTE);
            held.push(ResourceUse::now(&world));
        }
        let text = format!("number {slice}.");
        let before = fault.strike_count(&world);
        let broken = fault.break_connections(&world);
        assert!(!broken.contains(&0), "slice {slice}, {fault:?}: {broken:?} struck nothing (seed {SEED})");
        world.send_to_all(&text);
        texts.push(text);
        world.time.pass(MINUTE, 20 * SECOND);
        if random.below(3) == 0 {
            // One more message in the current state of the links.
            let _whatever_is_there = random.pick().break_connections(&world);
        }
        world.time.pass(19 * MINUTE, MINUTE);
        let after = fault.strike_count(&world);
        assert!(before.is_none() || after > before, "slice {slice}: {fault:?} struck nothing (seed {SEED})");
        world.up();
    }
    let all = || world.unanswered(&texts).is_empty().then_some(());
    world.time.until("all answered", 60 * MINUTE, 10 * SECOND, all);
    for (name, chat) in NAMES.iter().zip(world.answers()) {
        for text in &texts {
            let copies = chat.iter().filter(|message| message.contains(&format!("{name} {text}")));
            let unmarked = copies.filter(|message| message.starts_with("echo: ")).count();
            assert!(unmarked <= 1, "{name} {text} was answered {unmarked} times (seed {SEED})");
        }
    }
    let half = &held[1];
    let end = &held[3];
    assert!(end.files <= half.files + 6, "open files: {held:?} (seed {SEED})");
    assert!(end.tasks <= half.tasks + 6, "tasks: {held:?} (seed {SEED})");
    // The fakes record every call, so the bound allows for them but not for growth of the gateway.
    assert!(end.resident <= half.resident + (24 << 20), "memory: {held:?} (seed {SEED})");
}

/// Every fault equally often, in random order.
fn plan(random: &mut SeededRandom) -> Vec<DayFault> {
    let mut plan: Vec<DayFault> = DayFault::ALL.into_iter().cycle().take(SLICES).collect();
    for last in (1..plan.len()).rev() {
        plan.swap(last, random.below(last + 1));
    }
    plan
}

struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let roll = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(roll).unwrap_or_default() % end
    }

    fn pick(&mut self) -> DayFault {
        DayFault::ALL[self.below(DayFault::ALL.len())]
    }
}
