//! Sending cases: one call is one attempt, and errors say what may have happened.

use petasos_core::message::Delivery;
use petasos_core::outbox::Button;
use petasos_core::{Fault, Reached, Route};
use petasos_platforms::{Error, Kind, PREFIX_RESERVE, Part, Receipt, SendOptions, StatusReaction};

use super::CellResult;
use super::link::{Inbox, with_link};
use super::platform::{ChatKind, SendFault, TestPlatform, VisibleMessage};
use crate::harness::wait_as_demanded;

fn route(platform: &dyn TestPlatform, kind: ChatKind) -> Route {
    Route {
        platform: platform.adapter().platform(),
        chat_id: platform.chat(kind),
        thread_id: None,
        reply_to: None,
        delivery: Delivery::Push,
    }
}

/// Fails if an error shows a secret.
#[track_caller]
pub(crate) fn reveals_nothing(platform: &dyn TestPlatform, error: &Error) {
    let output = format!("{error} {error:?}");
    for secret in platform.secrets() {
        assert!(!output.contains(secret), "{output}");
    }
}

pub(crate) async fn try_send(platform: &dyn TestPlatform, text: &str) -> Result<Receipt, Error> {
    platform
        .adapter()
        .send(&route(platform, ChatKind::Private), &Part::plain(text), &SendOptions::default())
        .await
}

/// Sends a message and returns its id.
pub(crate) async fn sent(platform: &dyn TestPlatform, text: &str) -> String {
    try_send(platform, text).await.expect("sent").message_id.expect("an id")
}

async fn send_error(platform: &dyn TestPlatform, fault: SendFault) -> Error {
    platform.fail_next_send(fault);
    let error = try_send(platform, "hi").await.expect_err("fault");
    reveals_nothing(platform, &error);
    error
}

fn texts(platform: &dyn TestPlatform) -> Vec<String> {
    platform.sent_messages(ChatKind::Private).into_iter().map(|seen| seen.text).collect()
}

pub(crate) async fn short(platform: &dyn TestPlatform) -> CellResult {
    for kind in [ChatKind::Private, ChatKind::Group] {
        let to = route(platform, kind);
        let part = platform.adapter().render("Hello there").remove(0);
        let receipt = platform.adapter().send(&to, &part, &SendOptions::default()).await.expect("sent");
        let id = receipt.message_id.expect("an id");
        assert!(!receipt.thread_fallback);
        assert_eq!(
            platform.sent_messages(kind),
            [VisibleMessage { id, text: "Hello there".into(), answers: None }]
        );
    }
    CellResult::Passed
}

pub(crate) async fn long(platform: &dyn TestPlatform) -> CellResult {
    let capabilities = platform.adapter().capabilities();
    let words: Vec<String> = (0..capabilities.max_message * 2 / 3).map(|n| format!("w{n}")).collect();
    let text = words.join(" ");
    assert!(capabilities.unit.len(&text) >= 3 * capabilities.max_message, "long enough to be cut");
    let parts = platform.adapter().render(&text);
    assert!(parts.len() > 2, "{} parts", parts.len());
    for part in &parts {
        assert!(capabilities.unit.len(&part.text) <= capabilities.max_message);
        platform
            .adapter()
            .send(&route(platform, ChatKind::Private), part, &SendOptions::default())
            .await
            .expect("sent");
    }
    let seen = texts(platform);
    assert_eq!(seen.len(), parts.len());
    let counter = |word: &&str| !word.starts_with('(');
    let arrived: Vec<&str> = seen.iter().flat_map(|text| text.split_whitespace()).filter(counter).collect();
    assert!(arrived == words, "the words are not the same, or not in order");
    CellResult::Passed
}

pub(crate) async fn blank(platform: &dyn TestPlatform) -> CellResult {
    assert_eq!(try_send(platform, " \n").await.expect("nothing to do"), Receipt::default());
    assert!(platform.adapter().render(" \n").is_empty());
    assert!(texts(platform).is_empty());
    CellResult::Passed
}

pub(crate) async fn reply(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    for (kind, text) in [(ChatKind::Private, "why?"), (ChatKind::Group, "why, all of you?")] {
        let question = with_link(platform, &mut inbox, async |link| {
            let question = platform.receive_message(kind, text);
            link.commit_until_received(&[text]).await;
            question
        })
        .await;
        let to = Route::to_source(&inbox.all(text)[0].source, Delivery::Push);
        let options = SendOptions { reply: true, ..SendOptions::default() };
        platform.adapter().send(&to, &Part::plain("therefore"), &options).await.expect("sent");
        let answers: Vec<_> = platform.sent_messages(kind).into_iter().map(|seen| seen.answers).collect();
        assert_eq!(answers, [Some(question)], "{kind:?}");
    }
    CellResult::Passed
}

pub(crate) async fn reply_to_deleted(platform: &dyn TestPlatform) -> CellResult {
    let to = Route { reply_to: Some("12345".into()), ..route(platform, ChatKind::Private) };
    let options = SendOptions { reply: true, ..SendOptions::default() };
    platform.adapter().send(&to, &Part::plain("therefore"), &options).await.expect("sent");
    assert_eq!(texts(platform), ["therefore"]);
    CellResult::Passed
}

fn into(platform: &dyn TestPlatform, thread: &str) -> Route {
    Route { thread_id: Some(thread.to_owned()), ..route(platform, ChatKind::Group) }
}

pub(crate) async fn thread(platform: &dyn TestPlatform) -> CellResult {
    let thread = platform.thread();
    let sent = platform
        .adapter()
        .send(&into(platform, &thread), &Part::plain("here"), &SendOptions::default())
        .await;
    let receipt = sent.expect("sent");
    assert!(receipt.message_id.is_some() && !receipt.thread_fallback, "{receipt:?}");
    assert_eq!(platform.sent_in_thread(&thread), ["here"]);
    CellResult::Passed
}

/// The message goes to the chat or is refused; later messages to the chat must succeed.
pub(crate) async fn deleted_thread(platform: &dyn TestPlatform) -> CellResult {
    let thread = platform.thread();
    platform.remove_thread(&thread);
    match platform
        .adapter()
        .send(&into(platform, &thread), &Part::plain("where?"), &SendOptions::default())
        .await
    {
        Ok(receipt) => assert!(receipt.thread_fallback, "{receipt:?}"),
        Err(error) => {
            assert_eq!((error.fault(), error.reached()), (Fault::Refused, Reached::No), "{error}");
            assert!(!error.kind().is_dead_chat(), "the chat lives: {error}");
        }
    }
    let to = route(platform, ChatKind::Group);
    let options = SendOptions::default();
    platform.adapter().send(&to, &Part::plain("here"), &options).await.expect("sent");
    let seen: Vec<String> =
        platform.sent_messages(ChatKind::Group).into_iter().map(|seen| seen.text).collect();
    assert_eq!(seen.last().map(String::as_str), Some("here"));
    CellResult::Passed
}

pub(crate) async fn too_long(platform: &dyn TestPlatform) -> CellResult {
    let text = "x".repeat(2 * platform.adapter().capabilities().max_message);
    let error = try_send(platform, &text).await.expect_err("too long");
    assert_eq!((error.fault(), error.reached()), (Fault::Refused, Reached::No), "{error}");
    assert_eq!(error.kind(), Kind::TooLong, "{error}");
    CellResult::Passed
}

pub(crate) async fn edit(platform: &dyn TestPlatform) -> CellResult {
    if !platform.adapter().capabilities().edit {
        return CellResult::NotApplicable;
    }
    let id = sent(platform, "half").await;
    let to = route(platform, ChatKind::Private);
    for _again in 0..2 {
        let receipt = platform.adapter().edit(&to, &id, &Part::plain("whole")).await.expect("edited");
        assert_eq!(receipt.message_id.as_deref(), Some(id.as_str()));
        assert_eq!(texts(platform), ["whole"]);
    }
    CellResult::Passed
}

pub(crate) async fn edit_deleted(platform: &dyn TestPlatform) -> CellResult {
    if !platform.adapter().capabilities().edit {
        return CellResult::NotApplicable;
    }
    let id = sent(platform, "half").await;
    let to = route(platform, ChatKind::Private);
    platform.adapter().delete(&to, &id).await.expect("deleted");
    let error = platform.adapter().edit(&to, &id, &Part::plain("whole")).await.expect_err("gone");
    assert_eq!((error.fault(), error.kind()), (Fault::Refused, Kind::NotFound), "{error}");
    assert!(!error.kind().is_dead_chat(), "the chat lives");
    CellResult::Passed
}

pub(crate) async fn preview(platform: &dyn TestPlatform) -> CellResult {
    let adapter = platform.adapter();
    if !adapter.capabilities().edit {
        return CellResult::NotApplicable;
    }
    let text = "long & winding. ".repeat(adapter.capabilities().max_message / 8);
    let to = route(platform, ChatKind::Private);
    let id = sent(platform, &adapter.preview("long", " ▉")).await;
    adapter.edit(&to, &id, &Part::plain(adapter.preview(&text, " ▉"))).await.expect("a preview always fits");
    let id = sent(platform, &adapter.preview(&text, " ▉")).await;
    adapter.edit(&to, &id, &adapter.render("**done**").remove(0)).await.expect("replaced");
    CellResult::Passed
}

pub(crate) async fn longest_edit(platform: &dyn TestPlatform) -> CellResult {
    let adapter = platform.adapter();
    if !adapter.capabilities().edit {
        return CellResult::NotApplicable;
    }
    let id = sent(platform, "half").await;
    let most = adapter.capabilities().max_edit;
    let unit = adapter.capabilities().unit;
    let part = adapter.render(&"word ".repeat((most - PREFIX_RESERVE) / 5)).remove(0);
    assert!((most / 2..=most).contains(&unit.len(&part.text)));
    adapter.edit(&route(platform, ChatKind::Private), &id, &part).await.expect("it fits");
    CellResult::Passed
}

pub(crate) async fn delete(platform: &dyn TestPlatform) -> CellResult {
    let id = sent(platform, "oops").await;
    let to = route(platform, ChatKind::Private);
    for _again in 0..2 {
        platform.adapter().delete(&to, &id).await.expect("deleted");
        assert!(texts(platform).is_empty());
    }
    CellResult::Passed
}

pub(crate) async fn typing(platform: &dyn TestPlatform) -> CellResult {
    if !platform.adapter().capabilities().typing {
        return CellResult::NotApplicable;
    }
    let mut inbox = Inbox::default();
    with_link(platform, &mut inbox, async |link| {
        platform.receive_message(ChatKind::Group, "hello");
        link.commit_until_received(&["hello"]).await;
    })
    .await;
    platform
        .adapter()
        .typing(&route(platform, ChatKind::Private))
        .await
        .expect("shown, or not worth a failure");
    let to = Route::to_source(&inbox.received[0].source, Delivery::Push);
    platform.adapter().typing(&to).await.expect("shown, or not worth a failure");
    assert!(platform.sent_messages(ChatKind::Group).is_empty(), "no message");
    CellResult::Passed
}

pub(crate) async fn buttons(platform: &dyn TestPlatform) -> CellResult {
    let adapter = platform.adapter();
    if !adapter.capabilities().buttons {
        return CellResult::NotApplicable;
    }
    let button = |data: &str| Button { label: "Press me".into(), data: data.into() };
    let buttons = [button("ea:once:1"), button("ea:deny:1")];
    let options = SendOptions { buttons: &buttons, ..SendOptions::default() };
    let mut inbox = Inbox::default();
    with_link(platform, &mut inbox, async |link| {
        for (kind, data) in [(ChatKind::Private, "ea:once:1"), (ChatKind::Group, "ea:deny:1")] {
            let sent =
                adapter.send(&route(platform, kind), &Part::plain("really?"), &options).await.expect("sent");
            platform.press_button(kind, &sent.message_id.expect("an id"), data);
            link.commit_until_received(&[data]).await;
            let pressed = link.inbox.received.last().expect("a received event");
            assert_eq!(pressed.source.chat_id, Some(platform.chat(kind)));
            assert_eq!(pressed.source.user_id, Some(platform.user()));
            adapter.answer_callback(&pressed.dedup, Some("done")).await.expect("acknowledged");
            adapter.answer_callback(&pressed.dedup, None).await.expect("once more is no failure");
        }
    })
    .await;
    inbox.assert_identities();
    CellResult::Passed
}

pub(crate) async fn idempotency_key(platform: &dyn TestPlatform) -> CellResult {
    let to = route(platform, ChatKind::Private);
    let part = Part::plain("once");
    let memory = platform.adapter().idempotency_window(&to).await.expect("answered");
    let Some(memory) = memory else { return CellResult::NotApplicable };
    assert!(!memory.is_zero());
    let send = |key: &'static str| async {
        platform.adapter().send_idempotent(&to, &part, &SendOptions::default(), key).await
    };
    platform.fail_next_send(SendFault::LostAnswer);
    assert_eq!(send("out:17:0").await.expect_err("lost").reached(), Reached::Maybe);
    let receipt = send("out:17:0").await.expect("sent");
    let seen = platform.sent_messages(ChatKind::Private);
    assert_eq!(seen.len(), 1, "no copy");
    assert_eq!(receipt.message_id.as_deref(), Some(seen[0].id.as_str()));
    send("out:18:0").await.expect("sent");
    assert_eq!(texts(platform), ["once", "once"], "another key is another message");
    CellResult::Passed
}

pub(crate) async fn dead_chat(platform: &dyn TestPlatform, fault: SendFault) -> CellResult {
    let error = send_error(platform, fault).await;
    assert_eq!((error.fault(), error.reached()), (Fault::Refused, Reached::No), "{error}");
    assert!(error.kind().is_dead_chat(), "{:?}", error.kind());
    assert!(texts(platform).is_empty());
    CellResult::Passed
}

pub(crate) async fn rate_limit(platform: &dyn TestPlatform) -> CellResult {
    let error = send_error(platform, SendFault::TooMany).await;
    assert!(
        matches!(error.fault(), Fault::Later { after: Some(wait) } if !wait.is_zero()),
        "{:?}",
        error.fault()
    );
    assert_eq!((error.reached(), error.kind()), (Reached::No, Kind::RateLimited));
    let early = try_send(platform, "too early").await.expect_err("not sent before the wait is over");
    assert!(early.is_penalized(), "{early}");
    while let Err(error) = try_send(platform, "after the wait").await {
        let Fault::Later { after: Some(left) } = error.fault() else { panic!("{error}") };
        assert!(error.is_penalized(), "{error}");
        wait_as_demanded(left).await;
    }
    assert_eq!(texts(platform), ["after the wait"], "the adapter did not repeat it by itself");
    CellResult::Passed
}

pub(crate) async fn server_error(platform: &dyn TestPlatform) -> CellResult {
    let error = send_error(platform, SendFault::ServerError).await;
    assert!(matches!(error.fault(), Fault::Later { .. }), "{error}");
    assert!(!error.kind().is_dead_chat(), "{:?}", error.kind());
    assert!(texts(platform).is_empty(), "the adapter did not repeat it by itself");
    CellResult::Passed
}

/// `arrived`: number of messages that are visible.
pub(crate) async fn unknown_outcome(
    platform: &dyn TestPlatform,
    fault: SendFault,
    arrived: usize,
) -> CellResult {
    let error = send_error(platform, fault).await;
    assert!(matches!(error.fault(), Fault::Later { .. }), "{error}");
    assert_eq!(error.reached(), Reached::Maybe, "{error}");
    assert!(!error.kind().is_dead_chat() && error.kind() != Kind::Transient, "{:?}", error.kind());
    assert_eq!(texts(platform).len(), arrived, "one try");
    CellResult::Passed
}

pub(crate) async fn connect_error(platform: &dyn TestPlatform) -> CellResult {
    platform.down();
    let error = try_send(platform, "hi").await.expect_err("the server is down");
    reveals_nothing(platform, &error);
    assert!(matches!(error.fault(), Fault::Later { .. }), "{error}");
    assert_eq!((error.reached(), error.kind()), (Reached::No, Kind::Transient), "{error}");
    platform.up();
    sent(platform, "back").await;
    assert_eq!(texts(platform), ["back"]);
    CellResult::Passed
}

pub(crate) async fn bad_credentials(platform: &dyn TestPlatform) -> CellResult {
    platform.revoke();
    let error = try_send(platform, "hi").await.expect_err("barred");
    reveals_nothing(platform, &error);
    assert_eq!((error.fault(), error.reached()), (Fault::Fatal, Reached::No), "{error}");
    assert!(error.to_string().contains(platform.remedy()), "{error}");
    assert!(!error.kind().is_dead_chat(), "the chat is not to blame");
    CellResult::Passed
}

pub(crate) async fn status_reactions(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    let (ended, stopped) = with_link(platform, &mut inbox, async |link| {
        let ended = platform.receive_message(ChatKind::Private, "answer me");
        let stopped = platform.receive_message(ChatKind::Group, "never mind");
        link.commit_until_received(&["answer me", "never mind"]).await;
        (ended, stopped)
    })
    .await;
    let route = |text| Route::to_source(&inbox.all(text)[0].source, Delivery::Push);
    let react = async |route: &Route, mark| platform.adapter().react(route, mark).await.expect("marked");
    let answered = route("answer me");
    let left = route("never mind");
    let shown = |of: &str| platform.reactions(ChatKind::Private, of);
    for _twice in 0..2 {
        react(&answered, StatusReaction::Seen).await;
    }
    react(&left, StatusReaction::Seen).await;
    let first = shown(&ended);
    assert!(!first.is_empty() && !platform.reactions(ChatKind::Group, &stopped).is_empty());
    // As after a restart.
    let again = platform.restarted();
    again.adapter().react(&answered, StatusReaction::Done).await.expect("marked");
    let last = shown(&ended);
    assert!(last.len() == 1 && last != first, "{first:?} became {last:?}");
    react(&left, StatusReaction::Cleared).await;
    react(&left, StatusReaction::Cleared).await;
    assert_eq!(platform.reactions(ChatKind::Group, &stopped), [""; 0]);
    let nothing = Route { reply_to: None, thread_id: None, ..answered };
    react(&nothing, StatusReaction::Seen).await;
    CellResult::Passed
}
