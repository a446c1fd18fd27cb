//! The table: what every adapter must do, and the few cells where one cannot.

use std::pin::Pin;

use crate::peer::{Peer, Place, Temper, Trouble};
use crate::{Verdict, files, receiving, sending, shape};

type Check = for<'a> fn(&'a dyn Peer) -> Pin<Box<dyn Future<Output = Verdict> + 'a>>;

/// One row.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) temper: Temper,
    pub(crate) check: Check,
    /// Adapters for which it turns out otherwise, and why.
    pub(crate) except: &'static [(&'static str, Except)],
}

/// Why a cell is not "ok".
#[derive(Debug)]
pub(crate) enum Except {
    /// The platform has no such thing; the adapter says so itself.
    NotApplicable(&'static str),
    /// It should pass, and does not yet. `fails_with` is part of how it fails: a gap hides no other failure.
    #[allow(dead_code, reason = "a table without gaps is the goal")]
    Gap { reason: &'static str, fails_with: &'static str },
}

impl Except {
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::NotApplicable(reason) | Self::Gap { reason, .. } => reason,
        }
    }
}

const fn case(name: &'static str, check: Check) -> Case {
    Case { name, temper: Temper::Patient, check, except: &[] }
}

const fn impatient(name: &'static str, check: Check) -> Case {
    Case { temper: Temper::Impatient, ..case(name, check) }
}

impl Case {
    const fn except(self, except: &'static [(&'static str, Except)]) -> Self {
        Self { except, ..self }
    }
}

const NO_KEYS: &[(&str, Except)] = &[
    ("Telegram", Except::NotApplicable("the Bot API knows no key of a message")),
    ("Called", Except::NotApplicable("the Bot API knows no key of a message")),
    ("Slack", Except::NotApplicable("the Web API knows no key of a message")),
];

pub(crate) const CASES: &[Case] = &[
    // The way in.
    case("a private message is heard, whole", |it| Box::pin(receiving::heard(it, Place::Private))),
    case("a message in a group is heard, whole", |it| Box::pin(receiving::heard(it, Place::Group))),
    case("a command is heard as one", |it| Box::pin(receiving::command(it))),
    case("what is heard has its moment", |it| Box::pin(receiving::dated(it))),
    case("a link that hears says that it is alive", |it| Box::pin(receiving::alive(it))),
    case("the platform is told only after the commit", |it| Box::pin(receiving::confirmed_late(it))),
    case("what is not taken is not confirmed, and comes again", |it| Box::pin(receiving::not_taken(it))),
    case("what is told twice has one identity", |it| Box::pin(receiving::told_twice(it))),
    case("rubbish between two messages loses neither", |it| Box::pin(receiving::rubbish(it))),
    case("what cannot be read is handed over as it came, until it is taken", |it| {
        Box::pin(receiving::set_aside(it))
    }),
    case("our own messages are not heard", |it| Box::pin(receiving::own(it))),
    case("a restart loses nothing and doubles no identity", |it| Box::pin(receiving::restart(it))),
    case("an outage loses nothing", |it| Box::pin(receiving::outage(it))),
    case("a server that goes away is tried again later", |it| Box::pin(receiving::gone(it))),
    impatient("a server that falls silent is found", |it| Box::pin(receiving::silent(it))),
    impatient("a server that has nothing to say is left alone", |it| Box::pin(receiving::quiet(it))),
    case("a cursor that means nothing is no reason to fail", |it| Box::pin(receiving::odd_cursor(it))),
    case("a gateway that is gone ends the link", |it| Box::pin(receiving::hung_up(it))),
    case("bad credentials end the link and say what to do", |it| Box::pin(receiving::barred(it))),
    case("credentials that are revoked end a link that stands", |it| Box::pin(receiving::thrown_out(it))),
    // The way out.
    case("a short text is sent and has an id", |it| Box::pin(sending::short(it))),
    case("a long text arrives in parts, in order and whole", |it| Box::pin(sending::long(it))),
    case("white space is not sent", |it| Box::pin(sending::nothing(it))),
    case("an answer is shown as an answer", |it| Box::pin(sending::answer(it))),
    case("an answer to a message that is gone is sent all the same", |it| Box::pin(sending::answer_gone(it))),
    case("what is sent into a thread stands there", |it| Box::pin(sending::thread(it))),
    case("a thread that is gone is not the end of its chat", |it| Box::pin(sending::thread_gone(it))),
    case("a text that is too long is refused by that name", |it| Box::pin(sending::too_long(it))),
    case("an edit replaces, and the same again is a success", |it| Box::pin(sending::edit(it))),
    case("an edit of a message that is gone is refused", |it| Box::pin(sending::edit_gone(it))),
    case("a preview of any length can be shown and replaced", |it| Box::pin(sending::preview(it))),
    case("a part of the longest size that edits take can replace its preview", |it| {
        Box::pin(sending::longest_edit(it))
    }),
    case("a deletion deletes, and again is a success", |it| Box::pin(sending::delete(it))),
    case("typing does not fail", |it| Box::pin(sending::typing(it))),
    case("a pressed button comes back", |it| Box::pin(sending::buttons(it))),
    case("one key makes one message", |it| Box::pin(sending::once(it))).except(NO_KEYS),
    case("a chat that bars us is refused and dead", |it| Box::pin(sending::dead(it, Trouble::Blocked))),
    case("a chat that is not there is refused and dead", |it| Box::pin(sending::dead(it, Trouble::NoChat))),
    case("too many requests are tried again after the wait", |it| Box::pin(sending::too_many(it))),
    case("a server that is not well is tried again", |it| Box::pin(sending::not_well(it))),
    case("a lost answer may have had its effect", |it| Box::pin(sending::lost(it, Trouble::LostAnswer, 1))),
    case("a reset request may have had its effect", |it| Box::pin(sending::lost(it, Trouble::Reset, 0))),
    case("a garbled answer may have had its effect", |it| Box::pin(sending::lost(it, Trouble::Rubbish, 0))),
    impatient("an answer that never comes may have had its effect", |it| {
        Box::pin(sending::lost(it, Trouble::NoAnswer, 1))
    }),
    case("a refused connection certainly sent nothing", |it| Box::pin(sending::unreached(it))),
    case("bad credentials are fatal and say what to do", |it| Box::pin(sending::barred(it))),
    case("a mark is put, replaced, and taken away", |it| Box::pin(sending::marks(it))),
    // Files.
    case("a file arrives whole, under its name and with its caption", |it| Box::pin(files::whole(it))),
    case("a lost answer to a file may have had its effect", |it| Box::pin(files::lost(it))),
    case("a chat that takes no files takes texts", |it| Box::pin(files::barred(it))),
    case("a file that is removed after it was judged is sent", |it| Box::pin(files::removed(it))),
    case("a file that somebody sends is fetched, whole", |it| Box::pin(files::received(it))),
    case("a file that is too large is not fetched, whatever it says", |it| Box::pin(files::too_large(it))),
    case("a file that leads to a private address is not fetched", |it| Box::pin(files::led_astray(it))),
    case("a download that fails says whether to try again", |it| Box::pin(files::fetched_badly(it))),
    // What it says of itself.
    case("the capabilities make sense", |it| Box::pin(async { shape::capabilities(it) })),
    case("no part of any text is too long, mark included", |it| Box::pin(async { shape::rendered(it) })),
    case("no preview of any text is too long", |it| Box::pin(async { shape::previewed(it) })),
];
