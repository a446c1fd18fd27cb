//! Drains under load: no message is lost between the gate and its turn.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc;

use petasos_core::lifecycle::TurnOrigin;
use petasos_core::transcript::Role;
use petasos_core::{InboxId, TurnId};
use petasos_fakes::model::Point;
use petasos_fakes::telegram::{self, Incoming, Telegram, VisibleChange};
use petasos_gateway::clock;
use petasos_gateway::home::drain;
use petasos_store::MessageStage;

use crate::support::{GatewayFixture, SOON, eventually};

const CHATS: i64 = 500;
/// Of these, the chats that write after the gate is closed.
const LATE: i64 = 100;

#[test]
fn messages_racing_a_drain_are_answered_or_refused() {
    let world = GatewayFixture::with(|setup| {
        setup.settings.parallel_calls = 1000;
        setup.workers = 4;
    });
    let gate = world.model.gate(Point::Before);
    let say = |chat| Incoming::text(chat, chat, "hello");
    world.telegram.push_many((1..=CHATS - LATE).map(say));
    // The gate is closed, so all slots were claimed before this count.
    let at_the_model = || {
        let at_work = gate.waiting() as usize;
        let counted = world.handle().snapshot().active();
        assert!(at_work <= counted, "{at_work} at work, {counted} counted");
        at_work
    };
    world.until("in the middle", |_| (at_the_model() >= 50).then_some(()));
    drain::write(world.home(), &drain::DrainRequest::default(), clock::now()).expect("a marker");
    let drain = world.until("draining", |it| {
        at_the_model();
        it.drain.clone()
    });
    world.telegram.push_many((CHATS - LATE + 1..=CHATS).map(say));
    let replied =
        |telegram: &telegram::State| (1..=CHATS).filter(|chat| telegram.last(*chat).is_some()).count();
    let started = eventually("decided about every message", || {
        let started = at_the_model();
        (started + world.telegram.read(replied) == CHATS as usize).then_some(started)
    });
    assert!(started <= (CHATS - LATE) as usize, "{started} started");
    let situation = world.handle().snapshot();
    assert_eq!(situation.active(), started, "exactly the started turns are counted");
    for holder in &situation.holders {
        assert_eq!(holder.origin, TurnOrigin::User);
        assert!(holder.since <= drain.since, "{holder:?} began after {drain:?}");
    }
    gate.open();
    world.until("idle", |it| (it.active() == 0).then_some(()));
    let all = world.telegram.wait_until(SOON, |telegram| (replied(telegram) == CHATS as usize).then_some(()));
    assert!(all.is_some(), "every chat gets a reply");
    let mut answered = 0;
    for chat in 1..=CHATS {
        let texts = world.telegram.texts(chat);
        assert_eq!(texts.len(), 1, "chat {chat}: {texts:?}");
        answered += usize::from(texts[0] == "echo: hello");
        assert!(texts[0] == "echo: hello" || texts[0].contains("draining"), "chat {chat}: {texts:?}");
    }
    assert_eq!(answered, started);
    assert_eq!(world.model.requests().len(), started, "one model call per turn");
    world.read(|reader| {
        let mut turns = 0;
        for id in 1..=CHATS {
            let found = reader.receipt_of(InboxId(id))?.expect("accepted");
            let MessageStage::Settled { outcome, at } = found.stage else { panic!("{found:?}") };
            let turn = reader.turn(TurnId(id))?;
            turns += usize::from(turn.is_some());
            assert_eq!(outcome.as_str(), if turn.is_some() { "answered" } else { "refused" });
            assert!(turn.is_some() || at >= drain.since, "turned away before the drain");
        }
        assert_eq!(turns, answered);
        Ok(())
    });
}

const CHATTERS: i64 = 10;
const CYCLES: usize = 1000;
const CYCLES_PER_MESSAGE: usize = 2;

#[test]
fn thousand_drains_do_not_change_conversations() {
    let undisturbed = run_traffic(|_, _| {});
    let disturbed = run_traffic(|world, half| match half {
        Half::First => {
            drain::write(world.home(), &drain::DrainRequest::default(), clock::now()).expect("a marker");
            world.until("draining", |it| it.drain.is_some().then_some(()));
        }
        Half::Second => {
            drain::clear(world.home()).expect("cleared");
            world.until("open", |it| it.drain.is_none().then_some(()));
        }
    });
    assert_eq!(undisturbed.refused, 0);
    assert!(disturbed.refused >= CYCLES / 100, "only {} were turned away", disturbed.refused);
    for chat in 1..=CHATTERS {
        let want = &undisturbed.transcripts[&chat];
        let got = &disturbed.transcripts[&chat];
        assert_eq!(want.len(), 2 * CYCLES / CYCLES_PER_MESSAGE / CHATTERS as usize, "chat {chat}");
        assert_eq!(got, want, "chat {chat}");
    }
}

#[derive(Clone, Copy)]
enum Half {
    First,
    Second,
}

struct TrafficResult {
    transcripts: HashMap<i64, Vec<(Role, String)>>,
    refused: usize,
}

/// Runs the same conversations, with `disturb` called between messages.
fn run_traffic(mut disturb: impl FnMut(&GatewayFixture, Half)) -> TrafficResult {
    let world = GatewayFixture::with(|setup| setup.workers = 4);
    let (tell, news) = mpsc::sync_channel(16 * CYCLES);
    let sender = tell.clone();
    world.telegram.observe(move |change| {
        if let VisibleChange::Sent(message) = change {
            // The receiver is dropped once everything is answered.
            let _ = sender.send(ChatEvent::Received(message.chat, message.text.clone()));
        }
    });
    let refused = std::thread::scope(|scope| {
        let telegram = &world.telegram;
        let people = scope.spawn(move || converse(telegram, &news));
        for cycle in 0..CYCLES {
            let say = || {
                let chat = (cycle / CYCLES_PER_MESSAGE) as i64 % CHATTERS + 1;
                tell.send(ChatEvent::Say(chat, format!("message {cycle}"))).expect("they listen");
            };
            // Sometimes before the gate closes, sometimes after.
            let before = cycle % (2 * CYCLES_PER_MESSAGE) == 0;
            let after = cycle % (2 * CYCLES_PER_MESSAGE) == CYCLES_PER_MESSAGE;
            before.then(say);
            disturb(&world, Half::First);
            after.then(say);
            disturb(&world, Half::Second);
        }
        people.join().expect("no panic")
    });
    let transcripts = (1..=CHATTERS).map(|chat| (chat, world.transcript(chat))).collect();
    TrafficResult { transcripts, refused }
}

enum ChatEvent {
    /// A person sends a message.
    Say(i64, String),
    /// The bot has sent a message.
    Received(i64, String),
}

/// The people: each waits for an answer before the next message, and repeats refused messages. Returns the number of
/// refusals.
fn converse(telegram: &Telegram, news: &mpsc::Receiver<ChatEvent>) -> usize {
    let mut waiting: HashMap<i64, VecDeque<String>> = HashMap::new();
    let mut left = CYCLES / CYCLES_PER_MESSAGE;
    let mut refused = 0;
    while left > 0 {
        let (chat, next) = match news.recv_timeout(SOON).expect("every message is answered") {
            ChatEvent::Say(chat, text) => {
                let queue = waiting.entry(chat).or_default();
                queue.push_back(text);
                (chat, queue.front().filter(|_| queue.len() == 1))
            }
            ChatEvent::Received(chat, text) => {
                let queue = waiting.entry(chat).or_default();
                let asked = queue.front().expect("only who asks is answered");
                if text == format!("echo: {asked}") {
                    left -= 1;
                    queue.pop_front();
                } else {
                    assert!(text.contains("draining") && text.contains("resend"), "{text}");
                    refused += 1;
                }
                (chat, queue.front())
            }
        };
        if let Some(text) = next {
            telegram.push_text(chat, chat, text);
        }
    }
    refused
}
