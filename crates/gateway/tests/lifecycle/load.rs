//! Drains under load: nobody is lost between the door and the turn.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc;

use petasos_core::lifecycle::Claim;
use petasos_core::transcript::Role;
use petasos_core::{InboxId, TurnId};
use petasos_fakes::model::Point;
use petasos_fakes::telegram::{self, Change, Incoming, Telegram};
use petasos_gateway::clock;
use petasos_gateway::home::drain;
use petasos_store::Stage;

use crate::support::{SOON, World, eventually};

const CHATS: i64 = 500;
/// Of these, so many write when the door is closed for certain.
const LATE: i64 = 100;

#[test]
fn of_five_hundred_messages_that_race_a_drain_each_is_answered_or_turned_away() {
    let world = World::with(|setup| {
        setup.settings.parallel_calls = 1000;
        setup.workers = 4;
    });
    let gate = world.model.gate(Point::Before);
    let say = |chat| Incoming::text(chat, chat, "hello");
    world.telegram.push_many((1..=CHATS - LATE).map(say));
    // Nobody passes the gate yet, so whoever stands there was at work before we counted.
    let at_the_model = || {
        let at_work = gate.waiting() as usize;
        let counted = world.handle().situation().active();
        assert!(at_work <= counted, "{at_work} at work, {counted} counted");
        at_work
    };
    world.until("in the middle", |_| (at_the_model() >= 50).then_some(()));
    drain::write(world.home(), &drain::Ask::default(), clock::now()).expect("a marker");
    let drain = world.until("draining", |it| {
        at_the_model();
        it.drain.clone()
    });
    world.telegram.push_many((CHATS - LATE + 1..=CHATS).map(say));
    let told = |telegram: &telegram::World| (1..=CHATS).filter(|chat| telegram.last(*chat).is_some()).count();
    let started = eventually("decided about every message", || {
        let started = at_the_model();
        (started + world.telegram.look(told) == CHATS as usize).then_some(started)
    });
    assert!(started <= (CHATS - LATE) as usize, "{started} started");
    let situation = world.handle().situation();
    assert_eq!(situation.active(), started, "all that started are counted, and nobody else");
    for holder in &situation.holders {
        assert_eq!(holder.claim, Claim::User);
        assert!(holder.since <= drain.since, "{holder:?} began after {drain:?}");
    }
    gate.open();
    world.until("idle", |it| (it.active() == 0).then_some(()));
    let all = world.telegram.wait_until(SOON, |telegram| (told(telegram) == CHATS as usize).then_some(()));
    assert!(all.is_some(), "everybody is told something");
    let mut answered = 0;
    for chat in 1..=CHATS {
        let texts = world.telegram.texts(chat);
        assert_eq!(texts.len(), 1, "chat {chat}: {texts:?}");
        answered += usize::from(texts[0] == "echo: hello");
        assert!(texts[0] == "echo: hello" || texts[0].contains("draining"), "chat {chat}: {texts:?}");
    }
    assert_eq!(answered, started);
    assert_eq!(world.model.requests().len(), started, "nobody was asked about twice");
    world.read(|reader| {
        let mut turns = 0;
        for id in 1..=CHATS {
            let found = reader.where_is(InboxId(id))?.expect("accepted");
            let Stage::Settled { outcome, at } = found.stage else { panic!("{found:?}") };
            let turn = reader.turn(TurnId(id))?;
            turns += usize::from(turn.is_some());
            assert_eq!(outcome.as_str(), if turn.is_some() { "answered" } else { "refused" });
            assert!(turn.is_some() || at >= drain.since, "turned away before the drain");
        }
        assert_eq!(turns, answered);
        Ok(())
    });
}

const TALKERS: i64 = 10;
const CYCLES: usize = 1000;
/// A message every so many cycles.
const PACE: usize = 2;

#[test]
fn a_thousand_drains_change_nothing_of_what_is_said() {
    let undisturbed = talk(|_, _| {});
    let disturbed = talk(|world, half| match half {
        Half::First => {
            drain::write(world.home(), &drain::Ask::default(), clock::now()).expect("a marker");
            world.until("draining", |it| it.drain.is_some().then_some(()));
        }
        Half::Second => {
            drain::clear(world.home()).expect("cleared");
            world.until("open", |it| it.drain.is_none().then_some(()));
        }
    });
    assert_eq!(undisturbed.refused, 0);
    assert!(disturbed.refused >= CYCLES / 100, "only {} were turned away", disturbed.refused);
    for chat in 1..=TALKERS {
        let (want, got) = (&undisturbed.said[&chat], &disturbed.said[&chat]);
        assert_eq!(want.len(), 2 * CYCLES / PACE / TALKERS as usize, "chat {chat}");
        assert_eq!(got, want, "chat {chat}");
    }
}

#[derive(Clone, Copy)]
enum Half {
    First,
    Second,
}

struct Said {
    said: HashMap<i64, Vec<(Role, String)>>,
    refused: usize,
}

/// The same conversations, with something done between the messages.
fn talk(mut disturb: impl FnMut(&World, Half)) -> Said {
    let world = World::with(|setup| setup.workers = 4);
    let (tell, news) = mpsc::channel();
    let heard = tell.clone();
    world.telegram.observe(move |change| {
        if let Change::Sent(message) = change {
            // Nobody listens once everything is answered.
            let _ = heard.send(News::Heard(message.chat, message.text.clone()));
        }
    });
    let refused = std::thread::scope(|scope| {
        let telegram = &world.telegram;
        let people = scope.spawn(move || converse(telegram, &news));
        for cycle in 0..CYCLES {
            let say = || {
                let chat = (cycle / PACE) as i64 % TALKERS + 1;
                tell.send(News::Say(chat, format!("message {cycle}"))).expect("they listen");
            };
            // Sometimes before the door closes, sometimes after.
            let (before, after) = (cycle % (2 * PACE) == 0, cycle % (2 * PACE) == PACE);
            before.then(say);
            disturb(&world, Half::First);
            after.then(say);
            disturb(&world, Half::Second);
        }
        people.join().expect("no panic")
    });
    let said = (1..=TALKERS).map(|chat| (chat, world.transcript(chat))).collect();
    Said { said, refused }
}

enum News {
    /// Somebody has something to say.
    Say(i64, String),
    /// The bot has said something.
    Heard(i64, String),
}

/// Those who write: each waits for an answer before the next message, and does what a refusal asks for. Gives how
/// many were turned away.
fn converse(telegram: &Telegram, news: &mpsc::Receiver<News>) -> usize {
    let mut waiting: HashMap<i64, VecDeque<String>> = HashMap::new();
    let (mut left, mut refused) = (CYCLES / PACE, 0);
    while left > 0 {
        let (chat, next) = match news.recv_timeout(SOON).expect("everybody is answered") {
            News::Say(chat, text) => {
                let queue = waiting.entry(chat).or_default();
                queue.push_back(text);
                (chat, queue.front().filter(|_| queue.len() == 1))
            }
            News::Heard(chat, text) => {
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
