//! The way in.

use petasos_core::Fault;
use petasos_core::message::ChatType;
use petasos_platforms::{Error, Health, Taken};

use crate::Verdict;
use crate::link::{Inbox, SOON, hold, listen, to_the_end, until};
use crate::peer::{Peer, Place};
use crate::sending::{reveals_nothing, say, sent};

/// Requests to the server after which a link that tells too early has done so.
const ROUND_TRIPS: usize = 3;

pub(crate) async fn heard(peer: &dyn Peer, place: Place) -> Verdict {
    let mut inbox = Inbox::default();
    hold(peer, &mut inbox, async |line| {
        let id = peer.say(place, "hello there");
        let batch = line.next_events().await;
        assert_eq!(batch.events.len(), 1, "{:?}", batch.events);
        let event = &batch.events[0];
        assert_eq!(event.text, "hello there");
        assert!(!event.dedup.is_empty() && !event.internal && event.attachments.is_empty(), "{event:?}");
        let source = &event.source;
        assert_eq!(source.platform, peer.adapter().platform());
        assert_eq!(source.chat_id, Some(peer.chat(place)));
        assert_eq!(source.user_id, Some(peer.user()));
        assert_eq!(source.message_id, Some(id));
        assert_eq!(source.chat_type == ChatType::Dm, place == Place::Private, "{:?}", source.chat_type);
        line.keep(batch);
    })
    .await;
    Verdict::Passed
}

pub(crate) async fn command(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    hold(peer, &mut inbox, async |line| {
        for count in 1..=2 {
            peer.say_command();
            while line.inbox.heard.len() < count {
                line.keep_next().await;
            }
        }
    })
    .await;
    for event in &inbox.heard {
        assert_eq!(event.text, "/status");
        assert_eq!(event.source.user_id, Some(peer.user()));
        assert_eq!(event.source.chat_id, Some(peer.chat(Place::Private)));
    }
    assert_ne!(inbox.heard[0].dedup, inbox.heard[1].dedup, "said twice");
    Verdict::Passed
}

pub(crate) async fn dated(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    hold(peer, &mut inbox, async |line| {
        for (place, text) in [(Place::Private, "one"), (Place::Group, "two")] {
            peer.say(place, text);
            line.hear(&[text]).await;
        }
    })
    .await;
    let moment = |text| inbox.all(text)[0].sent_at.expect("a moment");
    assert!(moment("one").0 > 0 && moment("one") <= moment("two"), "{:?}", inbox.heard);
    Verdict::Passed
}

pub(crate) async fn alive(peer: &dyn Peer) -> Verdict {
    hold(peer, &mut Inbox::default(), async |line| {
        peer.say(Place::Private, "hello");
        line.hear(&["hello"]).await;
        until("the link says that it hears", || line.told().contains(&Health::Polling)).await;
        let told = line.told();
        assert_eq!(told[0], Health::Connecting);
        assert!(!line.is_degraded(), "{told:?}");
    })
    .await;
    Verdict::Passed
}

pub(crate) async fn confirmed_late(peer: &dyn Peer) -> Verdict {
    hold(peer, &mut Inbox::default(), async |line| {
        peer.say(Place::Private, "keep me");
        let batch = line.next_events().await;
        let place = batch.cursor.clone();
        for _ in 0..ROUND_TRIPS {
            let _reached = peer.adapter().check().await;
        }
        if let Some(before) = peer.signs() {
            until("heartbeats", || peer.signs().is_some_and(|now| now.seen >= before.seen + 2)).await;
        }
        assert!(!peer.is_confirmed(place.as_deref()), "told before it was kept");
        line.keep(batch);
        line.keep_until("told once it is kept", || peer.is_confirmed(place.as_deref())).await;
    })
    .await;
    Verdict::Passed
}

pub(crate) async fn not_taken(peer: &dyn Peer) -> Verdict {
    hold(peer, &mut Inbox::default(), async |line| {
        peer.say(Place::Private, "keep me");
        let mut identities = Vec::new();
        for answer in [Some(Taken::NotTaken), None] {
            let batch = line.next_events().await;
            identities.push(batch.events[0].dedup.clone());
            if let Some(answer) = answer {
                batch.done.send(answer).expect("it waits");
            }
        }
        let batch = line.next_events().await;
        let place = batch.cursor.clone();
        assert!(!peer.is_confirmed(place.as_deref()), "told of what was not taken");
        assert_eq!(batch.events[0].text, "keep me");
        identities.push(batch.events[0].dedup.clone());
        identities.dedup();
        assert_eq!(identities.len(), 1, "{identities:?}");
        line.keep(batch);
        line.keep_until("told once it is kept", || peer.is_confirmed(place.as_deref())).await;
        assert!(line.is_degraded(), "a gateway that does not keep up is told of");
    })
    .await;
    Verdict::Passed
}

pub(crate) async fn told_twice(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    hold(peer, &mut inbox, async |line| {
        let id = peer.say(Place::Private, "one");
        line.hear(&["one"]).await;
        peer.say_again(Place::Private, &id, "one");
        peer.say(Place::Private, "two");
        line.hear(&["two"]).await;
        while line.inbox.all("one").len() + line.inbox.all("two").len() < 3 {
            line.keep_next().await;
        }
    })
    .await;
    inbox.assert_identities();
    Verdict::Passed
}

pub(crate) async fn rubbish(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    hold(peer, &mut inbox, async |line| {
        peer.say(Place::Private, "before");
        peer.say_rubbish();
        peer.say(Place::Private, "after");
        line.hear(&["before", "after"]).await;
        let cursor = line.inbox.cursor.clone();
        line.keep_until("all of it is behind us", || peer.is_confirmed(cursor.as_deref())).await;
    })
    .await;
    let texts: Vec<&str> = inbox.heard.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(texts, ["before", "after"]);
    Verdict::Passed
}

pub(crate) async fn set_aside(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    hold(peer, &mut inbox, async |line| {
        peer.say_rubbish();
        let mut first = line.next().await;
        while first.unreadable.is_empty() {
            line.keep(first);
            first = line.next().await;
        }
        let place = first.cursor.clone();
        first.done.send(Taken::NotTaken).expect("it waits");
        assert!(place.is_none() || !peer.is_confirmed(place.as_deref()), "told of what was not taken");
        peer.say(Place::Private, "after");
        line.hear(&["after"]).await;
        while line.inbox.unreadable.is_empty() {
            line.keep_next().await;
        }
    })
    .await;
    let kept = &inbox.unreadable[0];
    assert!(kept.raw.contains("sad news") && kept.size == kept.raw.len(), "{kept:?}");
    assert!(!kept.why.is_empty() && !kept.why.contains("sad"), "{kept:?}");
    Verdict::Passed
}

pub(crate) async fn own(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    hold(peer, &mut inbox, async |line| {
        sent(peer, "mine").await;
        peer.say(Place::Private, "theirs");
        line.hear(&["theirs"]).await;
    })
    .await;
    assert_eq!(inbox.heard.len(), 1, "{:?}", inbox.heard);
    Verdict::Passed
}

pub(crate) async fn restart(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    hold(peer, &mut inbox, async |line| {
        peer.say(Place::Private, "kept");
        line.hear(&["kept"]).await;
        peer.say(Place::Private, "heard and not kept");
        while line.next_events().await.events[0].text != "heard and not kept" {}
    })
    .await;
    peer.say(Place::Private, "while we were away");
    let again = peer.restarted();
    hold(&*again, &mut inbox, async |line| {
        line.hear(&["heard and not kept", "while we were away"]).await;
        again.say(Place::Private, "live");
        line.hear(&["live"]).await;
    })
    .await;
    inbox.assert_identities();
    Verdict::Passed
}

pub(crate) async fn outage(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    let first = listen(peer, &mut inbox, async |line| {
        peer.say(Place::Private, "before");
        line.hear(&["before"]).await;
        peer.down();
        while !line.is_degraded() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    first.unwrap_or_else(|error| is_later(peer, &error));
    peer.say(Place::Private, "one");
    peer.say(Place::Group, "two");
    peer.up();
    hold(&*peer.restarted(), &mut inbox, async |line| line.hear(&["one", "two"]).await).await;
    inbox.assert_identities();
    Verdict::Passed
}

pub(crate) async fn gone(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    hold(peer, &mut inbox, async |line| {
        peer.say(Place::Private, "hello");
        line.hear(&["hello"]).await;
    })
    .await;
    peer.down();
    is_later(peer, &to_the_end(peer, &mut inbox).await);
    is_later(peer, &to_the_end(peer, &mut Inbox::default()).await);
    Verdict::Passed
}

pub(crate) async fn silent(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    let ended = listen(peer, &mut inbox, async |line| {
        peer.say(Place::Private, "before");
        line.hear(&["before"]).await;
        peer.silence();
        until("the silence is noticed", || line.is_degraded()).await;
    })
    .await;
    ended.unwrap_or_else(|error| is_later(peer, &error));
    peer.say(Place::Private, "into the silence");
    peer.speak();
    hold(&*peer.restarted(), &mut inbox, async |line| line.hear(&["into the silence"]).await).await;
    Verdict::Passed
}

pub(crate) async fn quiet(peer: &dyn Peer) -> Verdict {
    hold(peer, &mut Inbox::default(), async |line| {
        let before = peer.signs();
        line.keep_until("signs of life", || {
            before.is_none_or(|it| peer.signs().is_some_and(|now| now.seen >= it.seen + it.enough))
        })
        .await;
        assert!(!line.is_degraded(), "{:?}", line.told());
        peer.say(Place::Private, "after");
        line.hear(&["after"]).await;
    })
    .await;
    Verdict::Passed
}

pub(crate) async fn odd_cursor(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox { cursor: Some("{\"of\":\"another version\"}".into()), ..Inbox::default() };
    hold(peer, &mut inbox, async |line| {
        peer.say(Place::Private, "hello");
        line.hear(&["hello"]).await;
    })
    .await;
    Verdict::Passed
}

pub(crate) async fn hung_up(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    let ended = listen(peer, &mut inbox, async |line| {
        line.hang_up();
        peer.say(Place::Private, "anybody?");
        until("the link ends", || false).await;
    })
    .await;
    is_later(peer, &ended.expect_err("nobody listens"));
    Verdict::Passed
}

pub(crate) async fn barred(peer: &dyn Peer) -> Verdict {
    peer.revoke();
    is_fatal(peer, &to_the_end(peer, &mut Inbox::default()).await);
    Verdict::Passed
}

fn is_fatal(peer: &dyn Peer, error: &Error) {
    assert_eq!(error.fault(), Fault::Fatal, "{error}");
    assert!(error.to_string().contains(peer.remedy()), "{error}");
    assert!(error.code().starts_with(peer.adapter().platform().as_str()), "{}", error.code());
    reveals_nothing(peer, error);
}

/// By what the link hears itself, or by the next message that is refused.
pub(crate) async fn thrown_out(peer: &dyn Peer) -> Verdict {
    let mut inbox = Inbox::default();
    let ended = listen(peer, &mut inbox, async |line| {
        peer.say(Place::Private, "before");
        line.hear(&["before"]).await;
        peer.revoke();
        let refused = say(peer, "anybody?").await.expect_err("refused");
        assert_eq!(refused.fault(), Fault::Fatal, "{refused}");
        // A poll that lingers ends with the next thing that is said.
        peer.say(Place::Private, "after");
        let kept = tokio::time::timeout(SOON, line.keep_all()).await;
        assert!(kept.is_ok(), "the link goes on as if nothing had happened");
    })
    .await;
    is_fatal(peer, &ended.expect_err("the end"));
    Verdict::Passed
}

fn is_later(peer: &dyn Peer, error: &Error) {
    assert!(matches!(error.fault(), Fault::Later { .. }), "{error}");
    reveals_nothing(peer, error);
}
