//! Receiving cases.

use petasos_core::Fault;
use petasos_core::message::ChatType;
use petasos_platforms::{CommitResult, Error, LinkHealth};

use super::CellResult;
use super::link::{Inbox, TEST_TIMEOUT, listen, run_until_link_ends, until, with_link};
use super::platform::{ChatKind, TestPlatform};
use super::sending::{reveals_nothing, sent, try_send};

/// Enough requests for a link that acknowledges too early to do so.
const ROUND_TRIPS: usize = 3;

pub(crate) async fn message(platform: &dyn TestPlatform, kind: ChatKind) -> CellResult {
    let mut inbox = Inbox::default();
    with_link(platform, &mut inbox, async |link| {
        let id = platform.receive_message(kind, "hello there");
        let batch = link.next_events().await;
        assert_eq!(batch.events.len(), 1, "{:?}", batch.events);
        let event = &batch.events[0];
        assert_eq!(event.text, "hello there");
        assert!(!event.dedup.is_empty() && !event.internal && event.attachments.is_empty(), "{event:?}");
        let source = &event.source;
        assert_eq!(source.platform, platform.adapter().platform());
        assert_eq!(source.chat_id, Some(platform.chat(kind)));
        assert_eq!(source.user_id, Some(platform.user()));
        assert_eq!(source.message_id, Some(id));
        assert_eq!(source.chat_type == ChatType::Dm, kind == ChatKind::Private, "{:?}", source.chat_type);
        link.commit(batch);
    })
    .await;
    CellResult::Passed
}

pub(crate) async fn command(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    with_link(platform, &mut inbox, async |link| {
        for count in 1..=2 {
            platform.receive_command();
            while link.inbox.received.len() < count {
                link.commit_next().await;
            }
        }
    })
    .await;
    for event in &inbox.received {
        assert_eq!(event.text, "/status");
        assert_eq!(event.source.user_id, Some(platform.user()));
        assert_eq!(event.source.chat_id, Some(platform.chat(ChatKind::Private)));
    }
    assert_ne!(inbox.received[0].dedup, inbox.received[1].dedup, "sent twice");
    CellResult::Passed
}

pub(crate) async fn timestamp(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    with_link(platform, &mut inbox, async |link| {
        for (kind, text) in [(ChatKind::Private, "one"), (ChatKind::Group, "two")] {
            platform.receive_message(kind, text);
            link.commit_until_received(&[text]).await;
        }
    })
    .await;
    let moment = |text| inbox.all(text)[0].sent_at.expect("a moment");
    assert!(moment("one").0 > 0 && moment("one") <= moment("two"), "{:?}", inbox.received);
    CellResult::Passed
}

pub(crate) async fn health(platform: &dyn TestPlatform) -> CellResult {
    with_link(platform, &mut Inbox::default(), async |link| {
        platform.receive_message(ChatKind::Private, "hello");
        link.commit_until_received(&["hello"]).await;
        until("the link says that it hears", || link.health_log().contains(&LinkHealth::Connected)).await;
        let health_log = link.health_log();
        assert_eq!(health_log[0], LinkHealth::Connecting);
        assert!(!link.is_degraded(), "{health_log:?}");
    })
    .await;
    CellResult::Passed
}

pub(crate) async fn ack_after_commit(platform: &dyn TestPlatform) -> CellResult {
    with_link(platform, &mut Inbox::default(), async |link| {
        platform.receive_message(ChatKind::Private, "keep me");
        let batch = link.next_events().await;
        let cursor = batch.cursor.clone();
        for _ in 0..ROUND_TRIPS {
            let _reached = platform.adapter().check().await;
        }
        if let Some(before) = platform.activity() {
            until("heartbeats", || platform.activity().is_some_and(|now| now.seen >= before.seen + 2)).await;
        }
        assert!(!platform.is_confirmed(cursor.as_deref()), "acknowledged before the commit");
        link.commit(batch);
        link.commit_until("acknowledged after the commit", || platform.is_confirmed(cursor.as_deref())).await;
    })
    .await;
    CellResult::Passed
}

pub(crate) async fn failed_commit(platform: &dyn TestPlatform) -> CellResult {
    with_link(platform, &mut Inbox::default(), async |link| {
        platform.receive_message(ChatKind::Private, "keep me");
        let mut identities = Vec::new();
        for answer in [Some(CommitResult::NotStored), None] {
            let batch = link.next_events().await;
            identities.push(batch.events[0].dedup.clone());
            if let Some(answer) = answer {
                batch.done.send(answer).expect("it waits");
            }
        }
        let batch = link.next_events().await;
        let cursor = batch.cursor.clone();
        assert!(!platform.is_confirmed(cursor.as_deref()), "acknowledged although it was not stored");
        assert_eq!(batch.events[0].text, "keep me");
        identities.push(batch.events[0].dedup.clone());
        identities.dedup();
        assert_eq!(identities.len(), 1, "{identities:?}");
        link.commit(batch);
        link.commit_until("acknowledged after the commit", || platform.is_confirmed(cursor.as_deref())).await;
        assert!(link.is_degraded(), "failed commits degrade the link");
    })
    .await;
    CellResult::Passed
}

pub(crate) async fn duplicate(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    with_link(platform, &mut inbox, async |link| {
        let id = platform.receive_message(ChatKind::Private, "one");
        link.commit_until_received(&["one"]).await;
        platform.redeliver(ChatKind::Private, &id, "one");
        platform.receive_message(ChatKind::Private, "two");
        link.commit_until_received(&["two"]).await;
        while link.inbox.all("one").len() + link.inbox.all("two").len() < 3 {
            link.commit_next().await;
        }
    })
    .await;
    inbox.assert_identities();
    CellResult::Passed
}

pub(crate) async fn unreadable_between(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    with_link(platform, &mut inbox, async |link| {
        platform.receive_message(ChatKind::Private, "before");
        platform.receive_unreadable_event();
        platform.receive_message(ChatKind::Private, "after");
        link.commit_until_received(&["before", "after"]).await;
        let cursor = link.inbox.cursor.clone();
        link.commit_until("all of it is behind us", || platform.is_confirmed(cursor.as_deref())).await;
    })
    .await;
    let texts: Vec<&str> = inbox.received.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(texts, ["before", "after"]);
    CellResult::Passed
}

pub(crate) async fn unreadable_stored(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    with_link(platform, &mut inbox, async |link| {
        platform.receive_unreadable_event();
        let mut first = link.next().await;
        while first.unreadable.is_empty() {
            link.commit(first);
            first = link.next().await;
        }
        let cursor = first.cursor.clone();
        first.done.send(CommitResult::NotStored).expect("it waits");
        assert!(
            cursor.is_none() || !platform.is_confirmed(cursor.as_deref()),
            "acknowledged although it was not stored"
        );
        platform.receive_message(ChatKind::Private, "after");
        link.commit_until_received(&["after"]).await;
        while link.inbox.unreadable.is_empty() {
            link.commit_next().await;
        }
    })
    .await;
    let stored = &inbox.unreadable[0];
    assert!(stored.raw.contains("sad news") && stored.size == stored.raw.len(), "{stored:?}");
    assert!(!stored.why.is_empty() && !stored.why.contains("sad"), "{stored:?}");
    CellResult::Passed
}

pub(crate) async fn own_messages(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    with_link(platform, &mut inbox, async |link| {
        sent(platform, "mine").await;
        platform.receive_message(ChatKind::Private, "theirs");
        link.commit_until_received(&["theirs"]).await;
    })
    .await;
    assert_eq!(inbox.received.len(), 1, "{:?}", inbox.received);
    CellResult::Passed
}

pub(crate) async fn restart(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    with_link(platform, &mut inbox, async |link| {
        platform.receive_message(ChatKind::Private, "stored");
        link.commit_until_received(&["stored"]).await;
        platform.receive_message(ChatKind::Private, "heard and not stored");
        while link.next_events().await.events[0].text != "heard and not stored" {}
    })
    .await;
    platform.receive_message(ChatKind::Private, "while we were away");
    let again = platform.restarted();
    with_link(&*again, &mut inbox, async |link| {
        link.commit_until_received(&["heard and not stored", "while we were away"]).await;
        again.receive_message(ChatKind::Private, "live");
        link.commit_until_received(&["live"]).await;
    })
    .await;
    inbox.assert_identities();
    CellResult::Passed
}

pub(crate) async fn outage(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    let first = listen(platform, &mut inbox, async |link| {
        platform.receive_message(ChatKind::Private, "before");
        link.commit_until_received(&["before"]).await;
        platform.down();
        while !link.is_degraded() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    first.unwrap_or_else(|error| is_later(platform, &error));
    platform.receive_message(ChatKind::Private, "one");
    platform.receive_message(ChatKind::Group, "two");
    platform.up();
    with_link(&*platform.restarted(), &mut inbox, async |link| {
        link.commit_until_received(&["one", "two"]).await
    })
    .await;
    inbox.assert_identities();
    CellResult::Passed
}

pub(crate) async fn server_down(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    with_link(platform, &mut inbox, async |link| {
        platform.receive_message(ChatKind::Private, "hello");
        link.commit_until_received(&["hello"]).await;
    })
    .await;
    platform.down();
    is_later(platform, &run_until_link_ends(platform, &mut inbox).await);
    is_later(platform, &run_until_link_ends(platform, &mut Inbox::default()).await);
    CellResult::Passed
}

pub(crate) async fn silent(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    let ended = listen(platform, &mut inbox, async |link| {
        platform.receive_message(ChatKind::Private, "before");
        link.commit_until_received(&["before"]).await;
        platform.silence();
        until("the silence is noticed", || link.is_degraded()).await;
    })
    .await;
    ended.unwrap_or_else(|error| is_later(platform, &error));
    platform.receive_message(ChatKind::Private, "into the silence");
    platform.end_silence();
    with_link(&*platform.restarted(), &mut inbox, async |link| {
        link.commit_until_received(&["into the silence"]).await
    })
    .await;
    CellResult::Passed
}

pub(crate) async fn idle(platform: &dyn TestPlatform) -> CellResult {
    with_link(platform, &mut Inbox::default(), async |link| {
        let before = platform.activity();
        link.commit_until("signs of life", || {
            before.is_none_or(|it| platform.activity().is_some_and(|now| now.seen >= it.seen + it.enough))
        })
        .await;
        assert!(!link.is_degraded(), "{:?}", link.health_log());
        platform.receive_message(ChatKind::Private, "after");
        link.commit_until_received(&["after"]).await;
    })
    .await;
    CellResult::Passed
}

pub(crate) async fn invalid_cursor(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox { cursor: Some("{\"of\":\"another version\"}".into()), ..Inbox::default() };
    with_link(platform, &mut inbox, async |link| {
        platform.receive_message(ChatKind::Private, "hello");
        link.commit_until_received(&["hello"]).await;
    })
    .await;
    CellResult::Passed
}

pub(crate) async fn gateway_closed(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    let ended = listen(platform, &mut inbox, async |link| {
        link.close_gateway();
        platform.receive_message(ChatKind::Private, "anyone?");
        until("the link ends", || false).await;
    })
    .await;
    is_later(platform, &ended.expect_err("the server is down"));
    CellResult::Passed
}

pub(crate) async fn bad_credentials(platform: &dyn TestPlatform) -> CellResult {
    platform.revoke();
    is_fatal(platform, &run_until_link_ends(platform, &mut Inbox::default()).await);
    CellResult::Passed
}

fn is_fatal(platform: &dyn TestPlatform, error: &Error) {
    assert_eq!(error.fault(), Fault::Fatal, "{error}");
    assert!(error.to_string().contains(platform.remedy()), "{error}");
    assert!(error.code().starts_with(platform.adapter().platform().as_str()), "{}", error.code());
    reveals_nothing(platform, error);
}

/// The link notices it by itself, or after the next refused send.
pub(crate) async fn revoked_credentials(platform: &dyn TestPlatform) -> CellResult {
    let mut inbox = Inbox::default();
    let ended = listen(platform, &mut inbox, async |link| {
        platform.receive_message(ChatKind::Private, "before");
        link.commit_until_received(&["before"]).await;
        platform.revoke();
        let refused = try_send(platform, "anyone?").await.expect_err("refused");
        assert_eq!(refused.fault(), Fault::Fatal, "{refused}");
        // A held poll ends with the next message.
        platform.receive_message(ChatKind::Private, "after");
        let stored = tokio::time::timeout(TEST_TIMEOUT, link.commit_all()).await;
        assert!(stored.is_ok(), "the link goes on as if nothing had happened");
    })
    .await;
    is_fatal(platform, &ended.expect_err("the end"));
    CellResult::Passed
}

fn is_later(platform: &dyn TestPlatform, error: &Error) {
    assert!(matches!(error.fault(), Fault::Later { .. }), "{error}");
    reveals_nothing(platform, error);
}
