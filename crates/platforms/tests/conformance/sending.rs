//! The way out: one call is one try, and the error says what may have happened.

use petasos_core::message::Delivery;
use petasos_core::outbox::Button;
use petasos_core::{Fault, Reached, Route};
use petasos_platforms::{Error, Kind, MARK_ROOM, Mark, Part, Receipt, SendOptions};

use crate::Verdict;
use crate::link::{Inbox, hold};
use crate::peer::{Peer, Place, Seen, Trouble};

fn route(peer: &dyn Peer, place: Place) -> Route {
    Route {
        platform: peer.adapter().platform(),
        chat_id: peer.chat(place),
        thread_id: None,
        reply_to: None,
        delivery: Delivery::Push,
    }
}

/// Neither what is shown nor what is logged has a secret in it.
#[track_caller]
pub(crate) fn reveals_nothing(peer: &dyn Peer, error: &Error) {
    let said = format!("{error} {error:?}");
    for secret in peer.secrets() {
        assert!(!said.contains(secret), "{said}");
    }
}

pub(crate) async fn say(peer: &dyn Peer, text: &str) -> Result<Receipt, Error> {
    peer.adapter().send(&route(peer, Place::Private), &Part::plain(text), &SendOptions::default()).await
}

/// Sends what must arrive; its id is returned.
pub(crate) async fn sent(peer: &dyn Peer, text: &str) -> String {
    say(peer, text).await.expect("sent").message_id.expect("an id")
}

/// Sends into trouble.
async fn failure(peer: &dyn Peer, trouble: Trouble) -> Error {
    peer.trouble(trouble);
    let error = say(peer, "hi").await.expect_err("trouble");
    reveals_nothing(peer, &error);
    error
}

fn texts(peer: &dyn Peer) -> Vec<String> {
    peer.seen(Place::Private).into_iter().map(|seen| seen.text).collect()
}

pub(crate) async fn short(peer: &dyn Peer) -> Verdict {
    for place in [Place::Private, Place::Group] {
        let (to, part) = (route(peer, place), peer.adapter().render("Hello there").remove(0));
        let receipt = peer.adapter().send(&to, &part, &SendOptions::default()).await.expect("sent");
        let id = receipt.message_id.expect("an id");
        assert!(!receipt.thread_fallback);
        assert_eq!(peer.seen(place), [Seen { id, text: "Hello there".into(), answers: None }]);
    }
    Verdict::Passed
}

pub(crate) async fn long(peer: &dyn Peer) -> Verdict {
    let capabilities = peer.adapter().capabilities();
    let words: Vec<String> = (0..capabilities.max_message * 2 / 3).map(|n| format!("w{n}")).collect();
    let text = words.join(" ");
    assert!(capabilities.unit.len(&text) >= 3 * capabilities.max_message, "long enough to be cut");
    let parts = peer.adapter().render(&text);
    assert!(parts.len() > 2, "{} parts", parts.len());
    for part in &parts {
        assert!(capabilities.unit.len(&part.text) <= capabilities.max_message);
        peer.adapter().send(&route(peer, Place::Private), part, &SendOptions::default()).await.expect("sent");
    }
    let seen = texts(peer);
    assert_eq!(seen.len(), parts.len());
    let counter = |word: &&str| !word.starts_with('(');
    let arrived: Vec<&str> = seen.iter().flat_map(|text| text.split_whitespace()).filter(counter).collect();
    assert!(arrived == words, "the words are not the same, or not in order");
    Verdict::Passed
}

pub(crate) async fn nothing(peer: &dyn Peer) -> Verdict {
    assert_eq!(say(peer, " \n").await.expect("nothing to do"), Receipt::default());
    assert!(peer.adapter().render(" \n").is_empty());
    assert!(texts(peer).is_empty());
    Verdict::Passed
}

pub(crate) async fn answer(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    for (place, text) in [(Place::Private, "why?"), (Place::Group, "why, everybody?")] {
        let question = hold(peer, &mut inbox, async |line| {
            let question = peer.say(place, text);
            line.hear(&[text]).await;
            question
        })
        .await;
        let to = Route::back_to(&inbox.all(text)[0].source, Delivery::Push);
        let options = SendOptions { reply: true, ..SendOptions::default() };
        peer.adapter().send(&to, &Part::plain("therefore"), &options).await.expect("sent");
        let answers: Vec<_> = peer.seen(place).into_iter().map(|seen| seen.answers).collect();
        assert_eq!(answers, [Some(question)], "{place:?}");
    }
    Verdict::Passed
}

pub(crate) async fn answer_gone(peer: &dyn Peer) -> Verdict {
    let to = Route { reply_to: Some("12345".into()), ..route(peer, Place::Private) };
    let options = SendOptions { reply: true, ..SendOptions::default() };
    peer.adapter().send(&to, &Part::plain("therefore"), &options).await.expect("sent");
    assert_eq!(texts(peer), ["therefore"]);
    Verdict::Passed
}

fn into(peer: &dyn Peer, thread: &str) -> Route {
    Route { thread_id: Some(thread.to_owned()), ..route(peer, Place::Group) }
}

pub(crate) async fn thread(peer: &dyn Peer) -> Verdict {
    let thread = peer.thread();
    let sent = peer.adapter().send(&into(peer, &thread), &Part::plain("here"), &SendOptions::default()).await;
    let receipt = sent.expect("sent");
    assert!(receipt.message_id.is_some() && !receipt.thread_fallback, "{receipt:?}");
    assert_eq!(peer.seen_in(&thread), ["here"]);
    Verdict::Passed
}

/// What belongs into it stands beside it, or is refused; whichever, the chat takes what comes next.
pub(crate) async fn thread_gone(peer: &dyn Peer) -> Verdict {
    let thread = peer.thread();
    peer.remove_thread(&thread);
    match peer.adapter().send(&into(peer, &thread), &Part::plain("where?"), &SendOptions::default()).await {
        Ok(receipt) => assert!(receipt.thread_fallback, "{receipt:?}"),
        Err(error) => {
            assert_eq!((error.fault(), error.reached()), (Fault::Refused, Reached::No), "{error}");
            assert!(!error.kind().is_dead_chat(), "the chat lives: {error}");
        }
    }
    let (to, options) = (route(peer, Place::Group), SendOptions::default());
    peer.adapter().send(&to, &Part::plain("here"), &options).await.expect("sent");
    let seen: Vec<String> = peer.seen(Place::Group).into_iter().map(|seen| seen.text).collect();
    assert_eq!(seen.last().map(String::as_str), Some("here"));
    Verdict::Passed
}

pub(crate) async fn too_long(peer: &dyn Peer) -> Verdict {
    let text = "x".repeat(2 * peer.adapter().capabilities().max_message);
    let error = say(peer, &text).await.expect_err("too long");
    assert_eq!((error.fault(), error.reached()), (Fault::Refused, Reached::No), "{error}");
    assert_eq!(error.kind(), Kind::TooLong, "{error}");
    Verdict::Passed
}

pub(crate) async fn edit(peer: &dyn Peer) -> Verdict {
    if !peer.adapter().capabilities().edit {
        return Verdict::NotApplicable;
    }
    let (id, to) = (sent(peer, "half").await, route(peer, Place::Private));
    for _again in 0..2 {
        let receipt = peer.adapter().edit(&to, &id, &Part::plain("whole")).await.expect("edited");
        assert_eq!(receipt.message_id.as_deref(), Some(id.as_str()));
        assert_eq!(texts(peer), ["whole"]);
    }
    Verdict::Passed
}

pub(crate) async fn edit_gone(peer: &dyn Peer) -> Verdict {
    if !peer.adapter().capabilities().edit {
        return Verdict::NotApplicable;
    }
    let (id, to) = (sent(peer, "half").await, route(peer, Place::Private));
    peer.adapter().delete(&to, &id).await.expect("deleted");
    let error = peer.adapter().edit(&to, &id, &Part::plain("whole")).await.expect_err("gone");
    assert_eq!((error.fault(), error.kind()), (Fault::Refused, Kind::NotFound), "{error}");
    assert!(!error.kind().is_dead_chat(), "the chat lives");
    Verdict::Passed
}

pub(crate) async fn preview(peer: &dyn Peer) -> Verdict {
    let adapter = peer.adapter();
    if !adapter.capabilities().edit {
        return Verdict::NotApplicable;
    }
    let text = "long & winding. ".repeat(adapter.capabilities().max_message / 8);
    let to = route(peer, Place::Private);
    let id = sent(peer, &adapter.preview("long", " ▉")).await;
    adapter.edit(&to, &id, &Part::plain(adapter.preview(&text, " ▉"))).await.expect("a preview always fits");
    let id = sent(peer, &adapter.preview(&text, " ▉")).await;
    adapter.edit(&to, &id, &adapter.render("**done**").remove(0)).await.expect("replaced");
    Verdict::Passed
}

pub(crate) async fn longest_edit(peer: &dyn Peer) -> Verdict {
    let adapter = peer.adapter();
    if !adapter.capabilities().edit {
        return Verdict::NotApplicable;
    }
    let id = sent(peer, "half").await;
    let (most, unit) = (adapter.capabilities().max_edit, adapter.capabilities().unit);
    let part = adapter.render(&"word ".repeat((most - MARK_ROOM) / 5)).remove(0);
    assert!((most / 2..=most).contains(&unit.len(&part.text)));
    adapter.edit(&route(peer, Place::Private), &id, &part).await.expect("it fits");
    Verdict::Passed
}

pub(crate) async fn delete(peer: &dyn Peer) -> Verdict {
    let (id, to) = (sent(peer, "oops").await, route(peer, Place::Private));
    for _again in 0..2 {
        peer.adapter().delete(&to, &id).await.expect("deleted");
        assert!(texts(peer).is_empty());
    }
    Verdict::Passed
}

pub(crate) async fn typing(peer: &dyn Peer) -> Verdict {
    if !peer.adapter().capabilities().typing {
        return Verdict::NotApplicable;
    }
    let mut inbox = Inbox::default();
    hold(peer, &mut inbox, async |line| {
        peer.say(Place::Group, "hello");
        line.hear(&["hello"]).await;
    })
    .await;
    peer.adapter().typing(&route(peer, Place::Private)).await.expect("shown, or not worth a failure");
    let to = Route::back_to(&inbox.heard[0].source, Delivery::Push);
    peer.adapter().typing(&to).await.expect("shown, or not worth a failure");
    assert!(peer.seen(Place::Group).is_empty(), "no message");
    Verdict::Passed
}

pub(crate) async fn buttons(peer: &dyn Peer) -> Verdict {
    let adapter = peer.adapter();
    if !adapter.capabilities().buttons {
        return Verdict::NotApplicable;
    }
    let button = |data: &str| Button { label: "Press me".into(), data: data.into() };
    let buttons = [button("ea:once:1"), button("ea:deny:1")];
    let options = SendOptions { buttons: &buttons, ..SendOptions::default() };
    let mut inbox = Inbox::default();
    hold(peer, &mut inbox, async |line| {
        for (place, data) in [(Place::Private, "ea:once:1"), (Place::Group, "ea:deny:1")] {
            let sent =
                adapter.send(&route(peer, place), &Part::plain("really?"), &options).await.expect("sent");
            peer.press(place, &sent.message_id.expect("an id"), data);
            line.hear(&[data]).await;
            let pressed = line.inbox.heard.last().expect("heard");
            assert_eq!(pressed.source.chat_id, Some(peer.chat(place)));
            assert_eq!(pressed.source.user_id, Some(peer.user()));
            adapter.answer_callback(&pressed.dedup, Some("done")).await.expect("acknowledged");
            adapter.answer_callback(&pressed.dedup, None).await.expect("once more is no failure");
        }
    })
    .await;
    inbox.assert_identities();
    Verdict::Passed
}

pub(crate) async fn once(peer: &dyn Peer) -> Verdict {
    let (to, part) = (route(peer, Place::Private), Part::plain("once"));
    let memory = peer.adapter().key_memory(&to).await.expect("asked");
    let Some(memory) = memory else { return Verdict::NotApplicable };
    assert!(!memory.is_zero());
    let send = |key: &'static str| async {
        peer.adapter().send_once(&to, &part, &SendOptions::default(), key).await
    };
    peer.trouble(Trouble::LostAnswer);
    assert_eq!(send("out:17:0").await.expect_err("lost").reached(), Reached::Maybe);
    let receipt = send("out:17:0").await.expect("sent");
    let seen = peer.seen(Place::Private);
    assert_eq!(seen.len(), 1, "no copy");
    assert_eq!(receipt.message_id.as_deref(), Some(seen[0].id.as_str()));
    send("out:18:0").await.expect("sent");
    assert_eq!(texts(peer), ["once", "once"], "another key is another message");
    Verdict::Passed
}

pub(crate) async fn dead(peer: &dyn Peer, trouble: Trouble) -> Verdict {
    let error = failure(peer, trouble).await;
    assert_eq!((error.fault(), error.reached()), (Fault::Refused, Reached::No), "{error}");
    assert!(error.kind().is_dead_chat(), "{:?}", error.kind());
    assert!(texts(peer).is_empty());
    Verdict::Passed
}

pub(crate) async fn too_many(peer: &dyn Peer) -> Verdict {
    let error = failure(peer, Trouble::TooMany).await;
    assert!(
        matches!(error.fault(), Fault::Later { after: Some(wait) } if !wait.is_zero()),
        "{:?}",
        error.fault()
    );
    assert_eq!((error.reached(), error.kind()), (Reached::No, Kind::RateLimited));
    let early = say(peer, "too early").await.expect_err("not sent before the wait is over");
    assert!(early.is_held(), "{early}");
    while let Err(error) = say(peer, "after the wait").await {
        let Fault::Later { after: Some(left) } = error.fault() else { panic!("{error}") };
        assert!(error.is_held(), "{error}");
        tokio::time::sleep(left).await;
    }
    assert_eq!(texts(peer), ["after the wait"], "the adapter did not repeat it by itself");
    Verdict::Passed
}

pub(crate) async fn not_well(peer: &dyn Peer) -> Verdict {
    let error = failure(peer, Trouble::ServerError).await;
    assert!(matches!(error.fault(), Fault::Later { .. }), "{error}");
    assert!(!error.kind().is_dead_chat(), "{:?}", error.kind());
    assert!(texts(peer).is_empty(), "the adapter did not repeat it by itself");
    Verdict::Passed
}

/// `arrived`: how many messages people see in spite of it.
pub(crate) async fn lost(peer: &dyn Peer, trouble: Trouble, arrived: usize) -> Verdict {
    let error = failure(peer, trouble).await;
    assert!(matches!(error.fault(), Fault::Later { .. }), "{error}");
    assert_eq!(error.reached(), Reached::Maybe, "{error}");
    assert!(!error.kind().is_dead_chat() && error.kind() != Kind::Transient, "{:?}", error.kind());
    assert_eq!(texts(peer).len(), arrived, "one try");
    Verdict::Passed
}

pub(crate) async fn unreached(peer: &dyn Peer) -> Verdict {
    peer.down();
    let error = say(peer, "hi").await.expect_err("nobody is there");
    reveals_nothing(peer, &error);
    assert!(matches!(error.fault(), Fault::Later { .. }), "{error}");
    assert_eq!((error.reached(), error.kind()), (Reached::No, Kind::Transient), "{error}");
    peer.up();
    sent(peer, "back").await;
    assert_eq!(texts(peer), ["back"]);
    Verdict::Passed
}

pub(crate) async fn barred(peer: &dyn Peer) -> Verdict {
    peer.revoke();
    let error = say(peer, "hi").await.expect_err("barred");
    reveals_nothing(peer, &error);
    assert_eq!((error.fault(), error.reached()), (Fault::Fatal, Reached::No), "{error}");
    assert!(error.to_string().contains(peer.remedy()), "{error}");
    assert!(!error.kind().is_dead_chat(), "the chat is not to blame");
    Verdict::Passed
}

pub(crate) async fn marks(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    let (ended, stopped) = hold(peer, &mut inbox, async |line| {
        let ended = peer.say(Place::Private, "answer me");
        let stopped = peer.say(Place::Group, "never mind");
        line.hear(&["answer me", "never mind"]).await;
        (ended, stopped)
    })
    .await;
    let route = |text| Route::back_to(&inbox.all(text)[0].source, Delivery::Push);
    let react = async |route: &Route, mark| peer.adapter().react(route, mark).await.expect("marked");
    let (answered, left) = (route("answer me"), route("never mind"));
    let shown = |of: &str| peer.marks(Place::Private, of);
    for _twice in 0..2 {
        react(&answered, Mark::Seen).await;
    }
    react(&left, Mark::Seen).await;
    let first = shown(&ended);
    assert!(!first.is_empty() && !peer.marks(Place::Group, &stopped).is_empty());
    // As after a restart: what one process began another finishes.
    let again = peer.restarted();
    again.adapter().react(&answered, Mark::Done).await.expect("marked");
    let last = shown(&ended);
    assert!(last.len() == 1 && last != first, "{first:?} became {last:?}");
    react(&left, Mark::Cleared).await;
    react(&left, Mark::Cleared).await;
    assert_eq!(peer.marks(Place::Group, &stopped), [""; 0]);
    let nothing = Route { reply_to: None, thread_id: None, ..answered };
    react(&nothing, Mark::Seen).await;
    Verdict::Passed
}
