//! The conformance table: what every adapter must do, and the exceptions.

use std::pin::Pin;

use super::platform::{ChatKind, SendFault, TestPlatform, TimeoutProfile};
use super::{CellResult, files, receiving, sending, shape};

type Check = for<'a> fn(&'a dyn TestPlatform) -> Pin<Box<dyn Future<Output = CellResult> + 'a>>;

pub(crate) struct ConformanceCase {
    pub(crate) name: &'static str,
    pub(crate) timeouts: TimeoutProfile,
    pub(crate) check: Check,
    /// Adapters with another expected result, and why.
    pub(crate) exceptions: &'static [(&'static str, Exception)],
}

#[derive(Debug)]
pub(crate) enum Exception {
    /// The adapter does not support it, and says so.
    NotApplicable(&'static str),
    /// A known failure. `fails_with` is part of its message, so it hides no other failure.
    #[allow(dead_code, reason = "a table without gaps is the goal")]
    Gap { reason: &'static str, fails_with: &'static str },
}

impl Exception {
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::NotApplicable(reason) | Self::Gap { reason, .. } => reason,
        }
    }
}

const fn case(name: &'static str, check: Check) -> ConformanceCase {
    ConformanceCase { name, timeouts: TimeoutProfile::Long, check, exceptions: &[] }
}

const fn impatient(name: &'static str, check: Check) -> ConformanceCase {
    ConformanceCase { timeouts: TimeoutProfile::Short, ..case(name, check) }
}

impl ConformanceCase {
    const fn exceptions(self, exceptions: &'static [(&'static str, Exception)]) -> Self {
        Self { exceptions, ..self }
    }
}

const NO_KEYS: &[(&str, Exception)] = &[
    ("Telegram", Exception::NotApplicable("the Bot API knows no key of a message")),
    ("TgWebhook", Exception::NotApplicable("the Bot API knows no key of a message")),
    ("Slack", Exception::NotApplicable("the Web API knows no key of a message")),
];

pub(crate) const CASES: &[ConformanceCase] = &[
    // Receiving.
    case("receives a private message unchanged", |it| Box::pin(receiving::message(it, ChatKind::Private))),
    case("receives a group message unchanged", |it| Box::pin(receiving::message(it, ChatKind::Group))),
    case("receives a command", |it| Box::pin(receiving::command(it))),
    case("received messages have a timestamp", |it| Box::pin(receiving::timestamp(it))),
    case("a link that receives reports itself as connected", |it| Box::pin(receiving::health(it))),
    case("acknowledges only after the commit", |it| Box::pin(receiving::ack_after_commit(it))),
    case("a failed commit is not acknowledged, and the batch comes again", |it| {
        Box::pin(receiving::failed_commit(it))
    }),
    case("a repeated delivery has the same dedup key", |it| Box::pin(receiving::duplicate(it))),
    case("an unreadable event between two messages loses neither", |it| {
        Box::pin(receiving::unreadable_between(it))
    }),
    case("an unreadable event is handed over unchanged until stored", |it| {
        Box::pin(receiving::unreadable_stored(it))
    }),
    case("ignores the bot's own messages", |it| Box::pin(receiving::own_messages(it))),
    case("a restart loses nothing and duplicates no dedup key", |it| Box::pin(receiving::restart(it))),
    case("an outage loses nothing", |it| Box::pin(receiving::outage(it))),
    case("a server that goes down is retried later", |it| Box::pin(receiving::server_down(it))),
    impatient("detects a silent server", |it| Box::pin(receiving::silent(it))),
    impatient("keeps an idle link open", |it| Box::pin(receiving::idle(it))),
    case("ignores an invalid cursor", |it| Box::pin(receiving::invalid_cursor(it))),
    case("a stopped gateway ends the link", |it| Box::pin(receiving::gateway_closed(it))),
    case("bad credentials end the link with advice", |it| Box::pin(receiving::bad_credentials(it))),
    case("revoked credentials end a running link", |it| Box::pin(receiving::revoked_credentials(it))),
    // Sending.
    case("a short text is sent and has an id", |it| Box::pin(sending::short(it))),
    case("a long text arrives complete, in ordered parts", |it| Box::pin(sending::long(it))),
    case("white space is not sent", |it| Box::pin(sending::blank(it))),
    case("a reply is shown as a reply", |it| Box::pin(sending::reply(it))),
    case("a reply to a deleted message is sent without the reply", |it| {
        Box::pin(sending::reply_to_deleted(it))
    }),
    case("a message to a thread appears there", |it| Box::pin(sending::thread(it))),
    case("a deleted thread does not make its chat dead", |it| Box::pin(sending::deleted_thread(it))),
    case("an oversized text is refused as too long", |it| Box::pin(sending::too_long(it))),
    case("an edit replaces the text, and repeating it succeeds", |it| Box::pin(sending::edit(it))),
    case("an edit of a deleted message is refused", |it| Box::pin(sending::edit_deleted(it))),
    case("a preview of any length can be sent and replaced", |it| Box::pin(sending::preview(it))),
    case("a part of the maximum edit size can replace its preview", |it| Box::pin(sending::longest_edit(it))),
    case("a deletion can be repeated", |it| Box::pin(sending::delete(it))),
    case("the typing indicator does not fail", |it| Box::pin(sending::typing(it))),
    case("a pressed button is received", |it| Box::pin(sending::buttons(it))),
    case("one idempotency key creates one message", |it| Box::pin(sending::idempotency_key(it)))
        .exceptions(NO_KEYS),
    case("a forbidden chat is refused and dead", |it| Box::pin(sending::dead_chat(it, SendFault::Blocked))),
    case("a missing chat is refused and dead", |it| Box::pin(sending::dead_chat(it, SendFault::NoChat))),
    case("a rate limit is retried after the wait", |it| Box::pin(sending::rate_limit(it))),
    case("a server error is retried later", |it| Box::pin(sending::server_error(it))),
    case("a lost response is an unknown outcome", |it| {
        Box::pin(sending::unknown_outcome(it, SendFault::LostAnswer, 1))
    }),
    case("a reset request is an unknown outcome", |it| {
        Box::pin(sending::unknown_outcome(it, SendFault::Reset, 0))
    }),
    case("a malformed response is an unknown outcome", |it| {
        Box::pin(sending::unknown_outcome(it, SendFault::Garbage, 0))
    }),
    impatient("a missing response is an unknown outcome", |it| {
        Box::pin(sending::unknown_outcome(it, SendFault::NoAnswer, 1))
    }),
    case("a refused connection sends nothing", |it| Box::pin(sending::connect_error(it))),
    case("bad credentials are fatal and give advice", |it| Box::pin(sending::bad_credentials(it))),
    case("a status reaction is set, replaced and cleared", |it| Box::pin(sending::status_reactions(it))),
    // Files.
    case("a file arrives complete, with name and caption", |it| Box::pin(files::whole(it))),
    case("a lost response to a file is an unknown outcome", |it| Box::pin(files::unknown_outcome(it))),
    case("a chat that forbids files accepts texts", |it| Box::pin(files::files_forbidden(it))),
    case("a file removed after the policy check is sent", |it| Box::pin(files::removed(it))),
    case("an attachment is downloaded completely", |it| Box::pin(files::received(it))),
    case("an oversized attachment is refused despite its claimed size", |it| Box::pin(files::too_large(it))),
    case("an attachment at a private address is refused", |it| Box::pin(files::private_redirect(it))),
    case("a failed download says whether to retry", |it| Box::pin(files::download_errors(it))),
    // Capabilities and rendering.
    case("the capabilities are consistent", |it| Box::pin(async { shape::capabilities(it) })),
    case("every rendered part fits, prefix included", |it| Box::pin(async { shape::rendered(it) })),
    case("every preview fits", |it| Box::pin(async { shape::previewed(it) })),
];
