//! Everything that is not us: people, chats, the memory of platforms. It survives every crash, and it is the only
//! witness that counts.

use std::collections::BTreeMap;
use std::time::Duration;

use petasos_core::message::ChatType;
use petasos_core::{Fault, InboxId, Millis, OutboxId, Platform, Reached, RunId, Source, TurnId};

use petasos_runtime::simulation::rng::Rng;

/// Leads a copy; the same words as the gateway's.
pub(crate) const MARK: &str = "♻️ Recovered reply, may be a duplicate\n\n";

/// How a platform treats what we send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// It takes whatever it gets.
    Plain,
    /// It recognises a message that comes again under the same key.
    Keyed,
    /// Nothing is sent: the reader comes.
    Pull,
    /// Behind a connector. The platform itself takes whatever it gets.
    Relayed,
}

impl Class {
    pub(crate) fn platform(self) -> Platform {
        let name = match self {
            Self::Plain => "telegram",
            Self::Keyed => "discord",
            Self::Pull => "web",
            Self::Relayed => "slack",
        };
        Platform::parse(name).expect("a known platform")
    }

    pub(crate) fn of(platform: Platform) -> Self {
        let pushed = [Self::Plain, Self::Keyed, Self::Relayed];
        pushed.into_iter().find(|it| it.platform() == platform).unwrap_or(Self::Pull)
    }

    /// How long we may count on a key. It is kept for longer.
    pub(crate) const fn memory(self) -> Option<Duration> {
        match self {
            Self::Keyed => Some(Duration::from_secs(100)),
            // As the connector says.
            Self::Relayed => Some(Duration::from_secs(24 * 3600)),
            Self::Plain | Self::Pull => None,
        }
    }
}

const KEY_KEPT: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) chats: Vec<Chat>,
    /// Everything people write, by number, whether they have written it yet or not.
    pub(crate) said: Vec<Said>,
    /// Which background work ends, and for whom.
    pub(crate) ended: Vec<Ended>,
    /// Scheduled jobs.
    pub(crate) errands: Vec<Errand>,
    /// API runs.
    pub(crate) runs: Vec<Run>,
    /// How often each call of a tool that changes something took effect.
    pub(crate) effects: BTreeMap<String, u32>,
}

#[derive(Debug)]
pub(crate) struct Chat {
    pub(crate) class: Class,
    pub(crate) id: String,
    /// It has refused us as a whole: for a while the gateway enqueues no notifications for it.
    pub(crate) blocked: bool,
    /// Everything that was ever visible, in order.
    pub(crate) shown: Vec<Shown>,
    keys: BTreeMap<String, (String, Millis)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) about: About,
    pub(crate) gone: bool,
}

/// The identity of a message in flight, known to the simulation only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct About {
    pub(crate) item: Option<(OutboxId, usize)>,
    pub(crate) step: Option<(TurnId, u32)>,
    pub(crate) preview: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) chat: usize,
    pub(crate) user: String,
    pub(crate) text: String,
    pub(crate) at: Millis,
    pub(crate) written: bool,
    /// The platform was told that we have it.
    pub(crate) acked: bool,
    pub(crate) inbox: Option<InboxId>,
    /// Its number at the connector, if that accepted it.
    pub(crate) buffer: Option<String>,
    /// The connector has put it aside, and lists it.
    pub(crate) aside: bool,
    /// It comes with a file, which has this number, too.
    pub(crate) file: bool,
    /// If a question is open in its chat when it is written, it is an answer to that.
    pub(crate) answers: bool,
}

/// Work in the background, told as `[c0]`.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) chat: usize,
    pub(crate) inbox: Option<InboxId>,
}

/// A job, told as `[j0]`.
#[derive(Debug, Clone)]
pub(crate) struct Errand {
    pub(crate) chat: usize,
    pub(crate) minutes: u64,
    pub(crate) runs: u32,
    pub(crate) made: bool,
}

/// An API run, named `[r0]` in texts, as its program knows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    pub(crate) chat: u64,
    /// The run id.
    pub(crate) id: Option<RunId>,
    pub(crate) inbox: Option<InboxId>,
    /// A stop was requested.
    pub(crate) stopped: bool,
    /// Its outcome, as its program received it.
    pub(crate) ended: Option<petasos_core::journal::MessageOutcome>,
}

#[derive(Debug, Clone)]
pub(crate) enum Ask {
    Send { text: String, key: String },
    Edit { message: String, text: String },
    Delete { message: String },
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// Too many requests.
    Limited {
        named: bool,
    },
    /// It never left.
    Unreached,
    /// It got lost, or was not processed; nobody can tell.
    Lost,
    /// It took effect, and its answer got lost.
    Unanswered,
    /// This one will never be taken, though others may.
    Refused,
    /// This chat takes nothing from us.
    Blocked,
}

pub(crate) type Answer = Result<Option<String>, Failed>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) fault: Fault,
    pub(crate) reached: Reached,
    pub(crate) dead_chat: bool,
}

impl Failed {
    pub(crate) fn later(reached: Reached) -> Self {
        Self { fault: Fault::Later { after: None }, reached, dead_chat: false }
    }
}

impl World {
    pub(crate) fn new(chats: u64, relayed: bool, rng: &mut Rng) -> Self {
        let mut classes = vec![Class::Plain, Class::Keyed, Class::Pull];
        let chats = (0..chats).map(|number| {
            let class = if relayed {
                Class::Relayed
            } else if number < 2 {
                classes.remove(0)
            } else {
                rng.pick(&[Class::Plain, Class::Keyed, Class::Pull])
            };
            let id = format!("{}", 100 + number);
            Chat { class, id, blocked: false, shown: vec![], keys: BTreeMap::new() }
        });
        Self {
            chats: chats.collect(),
            said: vec![],
            ended: vec![],
            errands: vec![],
            runs: vec![],
            effects: BTreeMap::new(),
        }
    }

    /// Its author and chat.
    pub(crate) fn source(&self, chat: usize, user: &str) -> Source {
        let Chat { class, id, .. } = &self.chats[chat];
        // In a group everybody has a session of their own, and all of them share one lane.
        let kind = if self.is_group(chat) { ChatType::Group } else { ChatType::Dm };
        let mut source = Source::new(class.platform(), kind, id.clone());
        source.user_id = Some(user.to_owned());
        source
    }

    pub(crate) fn is_group(&self, chat: usize) -> bool {
        chat % 2 == 1 && self.chats[chat].class != Class::Pull
    }

    pub(crate) fn chat_of(&self, class: Class, id: &str) -> Option<usize> {
        self.chats.iter().position(|chat| chat.class == class && chat.id == id)
    }

    /// Messages of a platform behind this cursor, oldest first.
    pub(crate) fn updates(&self, class: Class, after: Option<u64>) -> Vec<usize> {
        let new = |at: &usize| after.is_none_or(|after| *at as u64 > after);
        let here = |at: &usize| self.chats[self.said[*at].chat].class == class && self.said[*at].written;
        (0..self.said.len()).filter(here).filter(new).collect()
    }

    /// The platform learns that we have everything up to here, and forgets it.
    pub(crate) fn acknowledged(&mut self, class: Class, up_to: u64) {
        for at in self.updates(class, None) {
            if at as u64 <= up_to {
                self.said[at].acked = true;
            }
        }
    }

    /// A request has arrived. Gives what its answer would be.
    pub(crate) fn take(
        &mut self,
        chat: usize,
        ask: &Ask,
        about: About,
        trouble: Trouble,
        now: Millis,
    ) -> Answer {
        let later = |after| Fault::Later { after };
        let failed = |fault, reached| Err(Failed { fault, reached, dead_chat: false });
        match trouble {
            Trouble::None => self.chats[chat].take(ask, about, now),
            Trouble::Limited { named } => failed(later(named.then_some(Duration::from_secs(7))), Reached::No),
            Trouble::Unreached => failed(later(None), Reached::No),
            Trouble::Lost => failed(later(None), Reached::Maybe),
            Trouble::Unanswered => {
                let taken = self.chats[chat].take(ask, about, now);
                taken.and_then(|_| failed(later(None), Reached::Maybe))
            }
            Trouble::Refused => failed(Fault::Refused, Reached::No),
            Trouble::Blocked => {
                self.chats[chat].blocked = true;
                Err(Failed { fault: Fault::Refused, reached: Reached::No, dead_chat: true })
            }
        }
    }
}

impl Chat {
    fn take(&mut self, ask: &Ask, about: About, now: Millis) -> Answer {
        let gone = Failed { fault: Fault::Refused, reached: Reached::No, dead_chat: false };
        match ask {
            Ask::Send { text, key } => {
                let known = self.keys.get(key).filter(|(_, at)| now.since(*at) < KEY_KEPT);
                if let (Class::Keyed, Some((message, _))) = (self.class, known) {
                    return Ok(Some(message.clone()));
                }
                let id = format!("{}", self.shown.len() + 1);
                self.keys.insert(key.clone(), (id.clone(), now));
                self.shown.push(Shown { id: id.clone(), text: text.clone(), about, gone: false });
                Ok(Some(id))
            }
            Ask::Edit { message, text } => {
                let shown = self.shown.iter_mut().find(|it| it.id == *message && !it.gone).ok_or(gone)?;
                shown.text.clone_from(text);
                shown.about = about;
                Ok(Some(message.clone()))
            }
            Ask::Delete { message } => {
                // Again is a success, as adapters promise.
                if let Some(shown) = self.shown.iter_mut().find(|it| it.id == *message) {
                    shown.gone = true;
                }
                Ok(None)
            }
        }
    }

    /// The identity of a sent message.
    pub(crate) fn about(&self, message: &str) -> Option<About> {
        self.shown.iter().find(|it| it.id == message).map(|it| it.about)
    }

    pub(crate) fn visible(&self) -> impl Iterator<Item = &Shown> {
        self.shown.iter().filter(|shown| !shown.gone)
    }
}

/// The number of the answer that a text belongs to: `‹12›`.
pub(crate) fn tag_of(text: &str) -> Option<i64> {
    text.split_once('‹')?.1.split_once('›')?.0.parse().ok()
}

/// The names of messages in a text: `[m3]`, and of background work: `[c1]`.
pub(crate) fn cited(text: &str, letter: char) -> Vec<usize> {
    let mut found = Vec::new();
    for piece in text.split('[').skip(1) {
        if let Some(number) = piece.strip_prefix(letter).and_then(|rest| rest.split(']').next())
            && let Ok(number) = number.parse()
            && !found.contains(&number)
        {
            found.push(number);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_a_text() {
        assert_eq!(cited("re [m3] and [m12], [c4] [m3]", 'm'), [3, 12]);
        assert_eq!(cited("re [m3] and [c4]", 'c'), [4]);
    }

    #[test]
    fn a_keyed_platform_shows_a_repeated_message_once_and_a_plain_one_twice() {
        for (class, want) in [(Class::Keyed, 1), (Class::Plain, 2)] {
            let mut chat =
                Chat { class, id: "1".into(), blocked: false, shown: vec![], keys: BTreeMap::new() };
            let ask = Ask::Send { text: "a".into(), key: "k".into() };
            for _ in 0..2 {
                assert!(chat.take(&ask, About::default(), Millis(5)).is_ok());
            }
            assert_eq!(chat.visible().count(), want, "{class:?}");
        }
    }
}
