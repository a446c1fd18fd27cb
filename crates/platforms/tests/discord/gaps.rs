//! A gap that no session bridges is caught up over REST: all of it, however long that takes.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use petasos_core::message::ChatType;
use petasos_fakes::discord::{Fault, Incoming, Side, World};
use petasos_platforms::Health;
use petasos_platforms::discord::Config;

use crate::rig::{DIRECT, GUILD, IDENTIFY, RESUME, ROOM, Rig, USER, rig, rig_on, texts};

const HOUR: Duration = Duration::from_secs(3600);

/// A link that has heard one private message, and is gone; the service has forgotten its session.
async fn left_behind() -> (Rig, String) {
    left_behind_for(Duration::ZERO).await
}

/// The same, and the message is this old.
async fn left_behind_for(ago: Duration) -> (Rig, String) {
    let rig = rig();
    let (cursor, _) = rig
        .listen(None, async |gateway| {
            gateway.settle("session1").await;
            rig.fake.push(Incoming::text(DIRECT, USER, "before").ago(ago));
            gateway.take(1).await;
            gateway.cursor.clone().expect("a cursor")
        })
        .await;
    rig.fake.forget_sessions();
    (rig, cursor)
}

/// What a new link with this cursor hears first.
async fn heard(old: &Rig, cursor: &str, count: usize, change: impl FnOnce(&mut Config)) -> Vec<String> {
    let rig = rig_on(old.fake.clone(), change);
    let session = format!("session{}", old.count(IDENTIFY) + 1);
    let (events, _) = rig
        .listen(Some(cursor), async |gateway| {
            let events = gateway.take(count).await;
            gateway.settle(&session).await;
            events
        })
        .await;
    texts(&events).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn what_was_written_meanwhile_is_heard_everywhere_and_once() {
    let (old, cursor) = left_behind().await;
    old.fake.push_text(DIRECT, USER, "private one");
    old.fake.push_text(DIRECT, USER, "private two");
    old.fake.push(Incoming::text(ROOM, USER, "in a channel never heard before").mentioning_bot());
    old.fake.push_text(ROOM, USER, "not for us");
    let got = heard(&old, &cursor, 3, |_| {}).await;
    assert_eq!(got, ["private one", "private two", "in a channel never heard before"]);
    assert_eq!((old.count(RESUME), old.count(IDENTIFY)), (1, 2));
}

#[tokio::test]
async fn nothing_older_than_the_window_and_the_rest_in_as_many_requests_as_it_takes() {
    let (old, cursor) = left_behind_for(HOUR * 8).await;
    old.fake.push(Incoming::text(DIRECT, USER, "long ago").ago(HOUR * 7));
    for number in 0..5 {
        old.fake.push_text(DIRECT, USER, format!("number {number}"));
    }
    let got = heard(&old, &cursor, 5, |config| config.catch_up.messages = 3).await;
    assert_eq!(got, ["number 0", "number 1", "number 2", "number 3", "number 4"]);
    let requests = old.fake.calls_of("getMessages");
    assert!(requests.len() >= 2 && requests.iter().all(|call| call.query["limit"] == "3"), "{requests:?}");
}

#[tokio::test]
async fn talk_among_others_does_not_use_up_what_is_caught_up() {
    let (old, cursor) = left_behind().await;
    for number in 0..7 {
        old.fake.push_text(ROOM, USER, format!("not for us {number}"));
    }
    old.fake.push(Incoming::text(ROOM, USER, "for us").mentioning_bot());
    old.fake.push_text(DIRECT, USER, "private");
    let got = heard(&old, &cursor, 2, |config| config.catch_up.messages = 2).await;
    assert_eq!(got, ["private", "for us"]);
}

#[tokio::test]
async fn a_gap_stays_in_the_cursor_until_its_server_has_listed_its_channels() {
    for resumes in [true, false] {
        let (old, cursor) = left_behind().await;
        old.fake.push_text(DIRECT, USER, "missed");
        old.fake.push(Incoming::text(ROOM, USER, "also missed").mentioning_bot());
        old.fake.withhold_guilds();
        let (cursor, _) = rig_on(old.fake.clone(), |_| {})
            .listen(Some(&cursor), async |gateway| {
                assert_eq!(texts(&gateway.take(1).await), ["missed"]);
                gateway.cursor.clone().expect("a cursor")
            })
            .await;
        if !resumes {
            old.fake.forget_sessions();
        }
        old.fake.list_guilds();
        let (events, _) = rig_on(old.fake.clone(), |_| {})
            .listen(Some(&cursor), async |gateway| {
                let events = gateway.take(1).await;
                old.fake.push_text(DIRECT, USER, "live");
                events.into_iter().chain(gateway.take(1).await).collect::<Vec<_>>()
            })
            .await;
        assert_eq!(texts(&events), ["also missed", "live"], "resumed: {resumes}");
        assert_eq!(old.count(IDENTIFY), if resumes { 2 } else { 3 });
    }
}

#[tokio::test]
async fn while_something_is_missing_every_sign_of_life_says_so() {
    let (old, cursor) = left_behind().await;
    old.fake.push_text(DIRECT, USER, "missed");
    let slow = old.fake.gate("getMessages", Side::Before);
    let ((), told) = rig_on(old.fake.clone(), |_| {})
        .listen(Some(&cursor), async |gateway| {
            gateway.settle("session2").await;
            let asked = |world: &World| world.calls_of("getMessages").next().map(drop);
            old.wait_until("asked for what is missing", asked).await;
            slow.open();
            assert_eq!(texts(&gateway.take(1).await), ["missed"]);
            // What is said of the first is said before the second is there.
            for text in ["live", "and again"] {
                old.fake.push_text(DIRECT, USER, text);
                assert_eq!(texts(&gateway.take(1).await), [text]);
            }
        })
        .await;
    let behind = told.iter().rposition(|state| *state == Health::CatchingUp).expect("it is said");
    assert!(told[behind..].contains(&Health::Polling), "and its end: {told:?}");
}

/// How often the history of a channel was asked for.
fn asked(rig: &Rig, channel: u64) -> usize {
    rig.fake.calls_of("getMessages").iter().filter(|call| call.channel == Some(channel)).count()
}

#[tokio::test]
async fn a_history_that_cannot_be_read_is_asked_for_until_it_can_while_others_go_first() {
    let (old, cursor) = left_behind().await;
    old.fake.push_text(DIRECT, USER, "private");
    old.fake.push(Incoming::text(ROOM, USER, "public").mentioning_bot());
    old.fake.on("getMessages").channel(DIRECT).times(9).does(Fault::status(502, 0, "502: Bad Gateway"));
    assert_eq!(heard(&old, &cursor, 2, |_| {}).await, ["public", "private"]);
    assert!(asked(&old, DIRECT) >= 10, "{}", asked(&old, DIRECT));
}

#[tokio::test]
async fn a_gap_that_was_not_filled_is_filled_after_a_restart() {
    for resumes in [true, false] {
        let (old, cursor) = left_behind().await;
        old.fake.push(Incoming::text(ROOM, USER, "public").mentioning_bot());
        old.fake.push_text(DIRECT, USER, "private");
        old.fake.on("getMessages").always().does(Fault::status(502, 0, "502: Bad Gateway"));
        let first = rig_on(old.fake.clone(), |_| {});
        let (cursor, _) = first
            .listen(Some(&cursor), async |gateway| {
                gateway.settle("session2").await;
                first.wait_until("tries", |world| world.calls_of("getMessages").nth(5).map(drop)).await;
                gateway.cursor.clone().expect("a cursor")
            })
            .await;
        old.fake.clear_faults();
        if !resumes {
            old.fake.forget_sessions();
        }
        let (events, _) = rig_on(old.fake.clone(), |_| {})
            .listen(Some(&cursor), async |gateway| gateway.take(2).await)
            .await;
        assert_eq!(texts(&events), ["private", "public"], "resumed: {resumes}");
        assert_eq!(events[1].source.chat_name.as_deref(), Some("general"));
        assert_eq!(events[1].source.chat_type, ChatType::Group);
    }
}

#[tokio::test]
async fn what_is_said_meanwhile_is_heard_at_once_and_in_its_channel_in_order() {
    let (old, cursor) = left_behind().await;
    old.fake.push_text(DIRECT, USER, "missed");
    let gate = old.fake.on("getMessages").channel(DIRECT).gate(Side::Before);
    let rig = rig_on(old.fake.clone(), |_| {});
    let (early, _) = rig
        .listen(Some(&cursor), async |gateway| {
            gateway.settle("session2").await;
            rig.wait_until("the history is asked for", |world| {
                world.calls_of("getMessages").next().map(drop)
            })
            .await;
            rig.fake.push_text(DIRECT, USER, "live");
            rig.fake.push_command(DIRECT, USER, "status", &[]);
            rig.fake.push(Incoming::text(ROOM, USER, "elsewhere").mentioning_bot());
            let events = gateway.take(2).await;
            assert_eq!(texts(&events), ["/status", "elsewhere"], "while the history is not there yet");
            let early = gateway.cursor.clone().expect("a cursor");
            gate.open();
            assert_eq!(texts(&gateway.take(2).await), ["missed", "live"]);
            rig.fake.push_text(DIRECT, USER, "later");
            assert_eq!(texts(&gateway.take(1).await), ["later"], "once");
            early
        })
        .await;
    // A crash before the two were kept: the cursor must not have passed them.
    for resumes in [true, false] {
        if !resumes {
            old.fake.forget_sessions();
        }
        let (events, _) = rig_on(old.fake.clone(), |_| {})
            .listen(Some(&early), async |gateway| gateway.take(3).await)
            .await;
        let private: Vec<_> = events.iter().filter(|it| it.source.chat_type == ChatType::Dm).collect();
        let said: Vec<_> = private.iter().map(|it| it.text.as_str()).filter(|it| *it != "/status").collect();
        assert_eq!(said[..2], ["missed", "live"], "resumed: {resumes}");
    }
}

#[tokio::test]
async fn nobody_waits_for_ever_for_what_was_said_before() {
    let (old, cursor) = left_behind().await;
    old.fake.push_text(DIRECT, USER, "missed");
    old.fake.on("getMessages").always().does(Fault::status(502, 0, "502: Bad Gateway"));
    let rig = rig_on(old.fake.clone(), |config| config.hold = Duration::from_millis(200));
    rig.listen(Some(&cursor), async |gateway| {
        gateway.settle("session2").await;
        rig.fake.push_text(DIRECT, USER, "one");
        assert_eq!(texts(&gateway.take(1).await), ["one"]);
        rig.fake.push_text(DIRECT, USER, "two");
        assert_eq!(texts(&gateway.take(1).await), ["two"]);
        rig.fake.clear_faults();
        assert_eq!(texts(&gateway.take(1).await), ["missed"], "and the others are not heard again");
        rig.fake.push_text(DIRECT, USER, "three");
        assert_eq!(texts(&gateway.take(1).await), ["three"]);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_opened_in_a_thread_now_is_not_given_up() {
    let (old, cursor) = left_behind().await;
    old.fake.push(Incoming::text(ROOM, USER, "one").mentioning_bot());
    old.fake.push(Incoming::text(ROOM, USER, "two").mentioning_bot());
    old.fake.on("startThread").nth(2).times(3).does(Fault::status(500, 0, "500: Internal Server Error"));
    assert_eq!(heard(&old, &cursor, 2, |config| config.auto_thread = true).await, ["one", "two"]);
    assert_eq!((old.fake.calls_of("startThread").len(), old.fake.texts(ROOM).len()), (5, 0));
}

#[tokio::test]
async fn a_role_admits_its_owner_also_in_what_was_missed() {
    let (old, cursor) = left_behind().await;
    old.fake.give_role(USER, 33);
    old.fake.push(Incoming::text(ROOM, USER, "as a member").mentioning_bot());
    old.fake.push(Incoming::text(ROOM, 6, "as a stranger").mentioning_bot());
    let rig = rig_on(old.fake.clone(), |config| config.allowed_roles = vec!["33".into()]);
    let (events, _) = rig.listen(Some(&cursor), async |gateway| gateway.take(2).await).await;
    let admitted: Vec<_> = events.iter().map(|it| (it.text.as_str(), it.source.role_authorized)).collect();
    assert_eq!(admitted, [("as a member", true), ("as a stranger", false)]);
}

#[tokio::test]
async fn a_slow_service_is_waited_for_and_a_closed_channel_passed_over() {
    let (old, cursor) = left_behind().await;
    old.fake.add_channel(GUILD, 71, "secret");
    old.fake.push(Incoming::text(71, USER, "behind a door").mentioning_bot());
    old.fake.push_text(DIRECT, USER, "private");
    old.fake.push(Incoming::text(ROOM, USER, "public").mentioning_bot());
    old.fake.on("getMessages").channel(71).always().does(Fault::missing_access());
    old.fake.on("getMessages").channel(DIRECT).does(Fault::too_many(0.01));
    old.fake.on("getMessages").channel(ROOM).times(2).does(Fault::status(500, 0, "Internal Server Error"));
    let got = heard(&old, &cursor, 2, |_| {}).await;
    assert_eq!(got, ["private", "public"]);
}

#[tokio::test]
async fn a_link_that_never_heard_a_word_is_caught_up_from_its_first_start() {
    let rig = rig();
    rig.fake.push(
        Incoming::text(ROOM, USER, "before we were here").ago(Duration::from_secs(60)).mentioning_bot(),
    );
    let (cursor, _) = rig
        .listen(None, async |gateway| {
            gateway.settle("session1").await;
            gateway.cursor.clone().expect("a cursor")
        })
        .await;
    rig.fake.forget_sessions();
    rig.fake.push(Incoming::text(ROOM, USER, "while we were away").mentioning_bot());
    assert_eq!(heard(&rig, &cursor, 1, |_| {}).await, ["while we were away"]);
}

#[tokio::test]
async fn a_first_start_catches_nothing_up() {
    let rig = rig();
    rig.fake.push_text(DIRECT, USER, "before we were here");
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.fake.push_text(DIRECT, USER, "hello");
        assert_eq!(texts(&gateway.take(1).await), ["hello"]);
    })
    .await;
    assert!(rig.fake.calls_of("getMessages").is_empty());
}

#[tokio::test]
async fn missed_messages_of_more_channels_than_the_bound_are_all_fetched() {
    const CHANNELS: u64 = 1010;
    let (old, cursor) = left_behind().await;
    let mut missing = Vec::new();
    for channel in 1000..1000 + CHANNELS {
        old.fake.add_channel(GUILD, channel, "many");
        let text = format!("in {channel}");
        old.fake.push(Incoming::text(channel, USER, &text).mentioning_bot());
        missing.push(text);
    }
    // A crash when only a part of them is on disk, of a session that can be resumed.
    let mut kept = None;
    rig_on(old.fake.clone(), |_| {})
        .listen(Some(&cursor), async |gateway| {
            let first = gateway.take(1).await;
            missing.retain(|text| !texts(&first).contains(&text.as_str()));
            kept = gateway.cursor.clone();
        })
        .await;
    rig_on(old.fake.clone(), |_| {})
        .listen(kept.as_deref(), async |gateway| {
            while !missing.is_empty() {
                let events = gateway.take(1).await;
                missing.retain(|text| !texts(&events).contains(&text.as_str()));
            }
        })
        .await;
    assert_eq!(old.count(IDENTIFY), 2, "resumed");
    assert!(!old.fake.calls_of("getGuildChannels").is_empty(), "nothing was merged");
}

#[tokio::test]
async fn messages_that_cannot_be_fetched_are_counted_in_the_link_status() {
    let (old, cursor) = left_behind_for(HOUR * 8).await;
    old.fake.push(Incoming::text(DIRECT, USER, "too old").ago(HOUR * 7));
    old.fake.push_text(DIRECT, USER, "missed");
    old.fake.add_channel(GUILD, 71, "never heard");
    old.fake.push_text(71, USER, "not for the bot");
    old.fake.on("getMessages").channel(71).always().does(Fault::missing_access());
    let rig = rig_on(old.fake.clone(), |_| {});
    rig.listen(Some(&cursor), async |gateway| {
        assert_eq!(texts(&gateway.take(1).await), ["missed"]);
        gateway.settle("session2").await;
    })
    .await;
    let lacks = rig.adapter.lacks();
    let [lack] = lacks.as_slice() else { panic!("{lacks:?}") };
    assert_eq!(lack.code, "discord_backfill_incomplete");
    assert_eq!(lack.reason, "1 older than missed_message_backfill.window_seconds");

    // The private channel was heard before: that it is closed is a loss.
    old.fake.forget_sessions();
    old.fake.push_text(DIRECT, USER, "behind a door");
    old.fake.on("getMessages").channel(DIRECT).always().does(Fault::missing_access());
    let again = rig_on(old.fake.clone(), |_| {});
    again
        .listen(Some(&cursor), async |gateway| {
            gateway.settle("session3").await;
            while again.adapter.lacks().is_empty() {
                old.fake.push_command(ROOM, USER, "status", &[]);
                gateway.take(1).await;
            }
        })
        .await;
    assert_eq!(again.adapter.lacks()[0].reason, "1 channels whose history the bot may not read");
}
