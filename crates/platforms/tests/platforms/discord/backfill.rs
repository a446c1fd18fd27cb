//! Backfill over REST after a lost session.

use std::time::Duration;

use petasos_core::message::ChatType;
use petasos_fakes::discord::{Fault, Incoming, Side, State};
use petasos_platforms::LinkHealth;
use petasos_platforms::discord::Config;

use super::fixture::{
    CHANNEL, DM, DiscordFixture, GUILD, IDENTIFY, RESUME, USER, fixture, fixture_on, texts,
};

const HOUR: Duration = Duration::from_secs(3600);

/// A link that committed one private message and whose session is gone.
async fn lost_session() -> (DiscordFixture, String) {
    lost_session_after(Duration::ZERO).await
}

/// The message has this age.
async fn lost_session_after(ago: Duration) -> (DiscordFixture, String) {
    let fixture = fixture();
    let (cursor, _) = fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.push(Incoming::text(DM, USER, "before").ago(ago));
            gateway.commit_events(1).await;
            gateway.cursor.clone().expect("a cursor")
        })
        .await;
    fixture.fake.forget_sessions();
    (fixture, cursor)
}

/// Runs a new link with this cursor and returns its first messages.
async fn backfilled(
    old: &DiscordFixture,
    cursor: &str,
    count: usize,
    change: impl FnOnce(&mut Config),
) -> Vec<String> {
    let fixture = fixture_on(old.fake.clone(), change);
    let session = format!("session{}", old.count(IDENTIFY) + 1);
    let (events, _) = fixture
        .listen(Some(cursor), async |gateway| {
            let events = gateway.commit_events(count).await;
            gateway.wait_for_session(&session).await;
            events
        })
        .await;
    texts(&events).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn backfills_missed_messages_once_in_every_channel() {
    let (old, cursor) = lost_session().await;
    old.fake.push_text(DM, USER, "private one");
    old.fake.push_text(DM, USER, "private two");
    old.fake.push(Incoming::text(CHANNEL, USER, "in a channel never heard before").mentioning_bot());
    old.fake.push_text(CHANNEL, USER, "not for us");
    let got = backfilled(&old, &cursor, 3, |_| {}).await;
    assert_eq!(got, ["private one", "private two", "in a channel never heard before"]);
    assert_eq!((old.count(RESUME), old.count(IDENTIFY)), (1, 2));
}

#[tokio::test]
async fn backfills_the_window_in_several_requests() {
    let (old, cursor) = lost_session_after(HOUR * 8).await;
    old.fake.push(Incoming::text(DM, USER, "long ago").ago(HOUR * 7));
    for number in 0..5 {
        old.fake.push_text(DM, USER, format!("number {number}"));
    }
    let got = backfilled(&old, &cursor, 5, |config| config.backfill.messages = 3).await;
    assert_eq!(got, ["number 0", "number 1", "number 2", "number 3", "number 4"]);
    let requests = old.fake.calls_of("getMessages");
    assert!(requests.len() >= 2 && requests.iter().all(|call| call.query["limit"] == "3"), "{requests:?}");
}

#[tokio::test]
async fn unaddressed_messages_do_not_use_up_the_backfill() {
    let (old, cursor) = lost_session().await;
    for number in 0..7 {
        old.fake.push_text(CHANNEL, USER, format!("not for us {number}"));
    }
    old.fake.push(Incoming::text(CHANNEL, USER, "for us").mentioning_bot());
    old.fake.push_text(DM, USER, "private");
    let got = backfilled(&old, &cursor, 2, |config| config.backfill.messages = 2).await;
    assert_eq!(got, ["private", "for us"]);
}

#[tokio::test]
async fn keeps_a_gap_until_the_server_lists_its_channels() {
    for resumes in [true, false] {
        let (old, cursor) = lost_session().await;
        old.fake.push_text(DM, USER, "missed");
        old.fake.push(Incoming::text(CHANNEL, USER, "also missed").mentioning_bot());
        old.fake.withhold_guilds();
        let (cursor, _) = fixture_on(old.fake.clone(), |_| {})
            .listen(Some(&cursor), async |gateway| {
                assert_eq!(texts(&gateway.commit_events(1).await), ["missed"]);
                gateway.cursor.clone().expect("a cursor")
            })
            .await;
        if !resumes {
            old.fake.forget_sessions();
        }
        old.fake.list_guilds();
        let (events, _) = fixture_on(old.fake.clone(), |_| {})
            .listen(Some(&cursor), async |gateway| {
                let events = gateway.commit_events(1).await;
                old.fake.push_text(DM, USER, "live");
                events.into_iter().chain(gateway.commit_events(1).await).collect::<Vec<_>>()
            })
            .await;
        assert_eq!(texts(&events), ["also missed", "live"], "resumed: {resumes}");
        assert_eq!(old.count(IDENTIFY), if resumes { 2 } else { 3 });
    }
}

#[tokio::test]
async fn reports_backfilling_until_nothing_is_missing() {
    let (old, cursor) = lost_session().await;
    old.fake.push_text(DM, USER, "missed");
    let slow = old.fake.gate("getMessages", Side::Before);
    let ((), health_log) = fixture_on(old.fake.clone(), |_| {})
        .listen(Some(&cursor), async |gateway| {
            gateway.wait_for_session("session2").await;
            let asked = |state: &State| state.calls_of("getMessages").next().map(drop);
            old.wait_until("asked for what is missing", asked).await;
            slow.open();
            assert_eq!(texts(&gateway.commit_events(1).await), ["missed"]);
            // The first message's health is reported before the second arrives.
            for text in ["live", "and again"] {
                old.fake.push_text(DM, USER, text);
                assert_eq!(texts(&gateway.commit_events(1).await), [text]);
            }
        })
        .await;
    let behind = health_log
        .iter()
        .rposition(|state| *state == LinkHealth::Backfilling)
        .expect("it is texts_of_private");
    assert!(health_log[behind..].contains(&LinkHealth::Connected), "and its end: {health_log:?}");
}

fn history_requests(fixture: &DiscordFixture, channel: u64) -> usize {
    fixture.fake.calls_of("getMessages").iter().filter(|call| call.channel == Some(channel)).count()
}

#[tokio::test]
async fn retries_a_failing_history_after_other_channels() {
    let (old, cursor) = lost_session().await;
    old.fake.push_text(DM, USER, "private");
    old.fake.push(Incoming::text(CHANNEL, USER, "public").mentioning_bot());
    old.fake.on("getMessages").channel(DM).times(9).does(Fault::status(502, 0, "502: Bad Gateway"));
    assert_eq!(backfilled(&old, &cursor, 2, |_| {}).await, ["public", "private"]);
    assert!(history_requests(&old, DM) >= 10, "{}", history_requests(&old, DM));
}

#[tokio::test]
async fn fills_an_open_gap_after_a_restart() {
    for resumes in [true, false] {
        let (old, cursor) = lost_session().await;
        old.fake.push(Incoming::text(CHANNEL, USER, "public").mentioning_bot());
        old.fake.push_text(DM, USER, "private");
        old.fake.on("getMessages").always().does(Fault::status(502, 0, "502: Bad Gateway"));
        let first = fixture_on(old.fake.clone(), |_| {});
        let (cursor, _) = first
            .listen(Some(&cursor), async |gateway| {
                gateway.wait_for_session("session2").await;
                first
                    .wait_until("create_calls", |state| state.calls_of("getMessages").nth(5).map(drop))
                    .await;
                gateway.cursor.clone().expect("a cursor")
            })
            .await;
        old.fake.clear_faults();
        if !resumes {
            old.fake.forget_sessions();
        }
        let (events, _) = fixture_on(old.fake.clone(), |_| {})
            .listen(Some(&cursor), async |gateway| gateway.commit_events(2).await)
            .await;
        assert_eq!(texts(&events), ["private", "public"], "resumed: {resumes}");
        assert_eq!(events[1].source.chat_name.as_deref(), Some("general"));
        assert_eq!(events[1].source.chat_type, ChatType::Group);
    }
}

#[tokio::test]
async fn orders_live_messages_only_within_their_channel() {
    let (old, cursor) = lost_session().await;
    old.fake.push_text(DM, USER, "missed");
    let gate = old.fake.on("getMessages").channel(DM).gate(Side::Before);
    let fixture = fixture_on(old.fake.clone(), |_| {});
    let (early, _) = fixture
        .listen(Some(&cursor), async |gateway| {
            gateway.wait_for_session("session2").await;
            fixture
                .wait_until("the history is asked for", |state| {
                    state.calls_of("getMessages").next().map(drop)
                })
                .await;
            fixture.fake.push_text(DM, USER, "live");
            fixture.fake.push_command(DM, USER, "status", &[]);
            fixture.fake.push(Incoming::text(CHANNEL, USER, "elsewhere").mentioning_bot());
            let events = gateway.commit_events(2).await;
            assert_eq!(texts(&events), ["/status", "elsewhere"], "while the history is not there yet");
            let early = gateway.cursor.clone().expect("a cursor");
            gate.open();
            assert_eq!(texts(&gateway.commit_events(2).await), ["missed", "live"]);
            fixture.fake.push_text(DM, USER, "later");
            assert_eq!(texts(&gateway.commit_events(1).await), ["later"], "once");
            early
        })
        .await;
    // A crash before both were committed: the cursor must not have passed them.
    for resumes in [true, false] {
        if !resumes {
            old.fake.forget_sessions();
        }
        let (events, _) = fixture_on(old.fake.clone(), |_| {})
            .listen(Some(&early), async |gateway| gateway.commit_events(3).await)
            .await;
        let private: Vec<_> = events.iter().filter(|it| it.source.chat_type == ChatType::Dm).collect();
        let texts_of_private: Vec<_> =
            private.iter().map(|it| it.text.as_str()).filter(|it| *it != "/status").collect();
        assert_eq!(texts_of_private[..2], ["missed", "live"], "resumed: {resumes}");
    }
}

#[tokio::test]
async fn releases_live_messages_when_a_backfill_stalls() {
    let (old, cursor) = lost_session().await;
    old.fake.push_text(DM, USER, "missed");
    old.fake.on("getMessages").always().does(Fault::status(502, 0, "502: Bad Gateway"));
    let fixture = fixture_on(old.fake.clone(), |config| config.max_reorder_wait = Duration::from_millis(200));
    fixture
        .listen(Some(&cursor), async |gateway| {
            gateway.wait_for_session("session2").await;
            fixture.fake.push_text(DM, USER, "one");
            assert_eq!(texts(&gateway.commit_events(1).await), ["one"]);
            fixture.fake.push_text(DM, USER, "two");
            assert_eq!(texts(&gateway.commit_events(1).await), ["two"]);
            fixture.fake.clear_faults();
            assert_eq!(
                texts(&gateway.commit_events(1).await),
                ["missed"],
                "and the others are not heard again"
            );
            fixture.fake.push_text(DM, USER, "three");
            assert_eq!(texts(&gateway.commit_events(1).await), ["three"]);
        })
        .await;
}

#[tokio::test]
async fn retries_messages_whose_thread_cannot_be_created_yet() {
    let (old, cursor) = lost_session().await;
    old.fake.push(Incoming::text(CHANNEL, USER, "one").mentioning_bot());
    old.fake.push(Incoming::text(CHANNEL, USER, "two").mentioning_bot());
    old.fake.on("startThread").nth(2).times(3).does(Fault::status(500, 0, "500: Internal Server Error"));
    assert_eq!(backfilled(&old, &cursor, 2, |config| config.auto_thread = true).await, ["one", "two"]);
    assert_eq!((old.fake.calls_of("startThread").len(), old.fake.texts(CHANNEL).len()), (5, 0));
}

#[tokio::test]
async fn checks_roles_of_backfilled_messages() {
    let (old, cursor) = lost_session().await;
    old.fake.add_role(USER, 33);
    old.fake.push(Incoming::text(CHANNEL, USER, "as a member").mentioning_bot());
    old.fake.push(Incoming::text(CHANNEL, 6, "as a stranger").mentioning_bot());
    let fixture = fixture_on(old.fake.clone(), |config| config.allowed_roles = vec!["33".into()]);
    let (events, _) = fixture.listen(Some(&cursor), async |gateway| gateway.commit_events(2).await).await;
    let admitted: Vec<_> = events.iter().map(|it| (it.text.as_str(), it.source.role_authorized)).collect();
    assert_eq!(admitted, [("as a member", true), ("as a stranger", false)]);
}

#[tokio::test]
async fn waits_for_a_slow_service_and_skips_closed_channels() {
    let (old, cursor) = lost_session().await;
    old.fake.add_channel(GUILD, 71, "secret");
    old.fake.push(Incoming::text(71, USER, "behind a door").mentioning_bot());
    old.fake.push_text(DM, USER, "private");
    old.fake.push(Incoming::text(CHANNEL, USER, "public").mentioning_bot());
    old.fake.on("getMessages").channel(71).always().does(Fault::missing_access());
    old.fake.on("getMessages").channel(DM).does(Fault::too_many(0.01));
    old.fake.on("getMessages").channel(CHANNEL).times(2).does(Fault::status(500, 0, "Internal Server Error"));
    let got = backfilled(&old, &cursor, 2, |_| {}).await;
    assert_eq!(got, ["private", "public"]);
}

#[tokio::test]
async fn backfills_from_the_first_start_without_any_message() {
    let fixture = fixture();
    fixture.fake.push(
        Incoming::text(CHANNEL, USER, "before we were here").ago(Duration::from_secs(60)).mentioning_bot(),
    );
    let (cursor, _) = fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            gateway.cursor.clone().expect("a cursor")
        })
        .await;
    fixture.fake.forget_sessions();
    fixture.fake.push(Incoming::text(CHANNEL, USER, "while we were away").mentioning_bot());
    assert_eq!(backfilled(&fixture, &cursor, 1, |_| {}).await, ["while we were away"]);
}

#[tokio::test]
async fn first_start_does_not_backfill() {
    let fixture = fixture();
    fixture.fake.push_text(DM, USER, "before we were here");
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.push_text(DM, USER, "hello");
            assert_eq!(texts(&gateway.commit_events(1).await), ["hello"]);
        })
        .await;
    assert!(fixture.fake.calls_of("getMessages").is_empty());
}

#[tokio::test]
async fn backfills_more_channels_than_the_gap_bound() {
    const CHANNELS: u64 = 1010;
    let (old, cursor) = lost_session().await;
    let mut missing = Vec::new();
    for channel in 1000..1000 + CHANNELS {
        old.fake.add_channel(GUILD, channel, "many");
        let text = format!("in {channel}");
        old.fake.push(Incoming::text(channel, USER, &text).mentioning_bot());
        missing.push(text);
    }
    // A crash with a part of them on disk, in a resumable session.
    let mut committed = None;
    fixture_on(old.fake.clone(), |_| {})
        .listen(Some(&cursor), async |gateway| {
            let first = gateway.commit_events(1).await;
            missing.retain(|text| !texts(&first).contains(&text.as_str()));
            committed = gateway.cursor.clone();
        })
        .await;
    fixture_on(old.fake.clone(), |_| {})
        .listen(committed.as_deref(), async |gateway| {
            while !missing.is_empty() {
                let events = gateway.commit_events(1).await;
                missing.retain(|text| !texts(&events).contains(&text.as_str()));
            }
        })
        .await;
    assert_eq!(old.count(IDENTIFY), 2, "resumed");
    assert!(!old.fake.calls_of("getGuildChannels").is_empty(), "nothing was merged");
}

#[tokio::test]
async fn counts_unfetchable_messages_in_the_link_status() {
    let (old, cursor) = lost_session_after(HOUR * 8).await;
    old.fake.push(Incoming::text(DM, USER, "too old").ago(HOUR * 7));
    old.fake.push_text(DM, USER, "missed");
    old.fake.add_channel(GUILD, 71, "never heard");
    old.fake.push_text(71, USER, "not for the bot");
    old.fake.on("getMessages").channel(71).always().does(Fault::missing_access());
    let fixture = fixture_on(old.fake.clone(), |_| {});
    fixture
        .listen(Some(&cursor), async |gateway| {
            assert_eq!(texts(&gateway.commit_events(1).await), ["missed"]);
            gateway.wait_for_session("session2").await;
        })
        .await;
    let outages = fixture.adapter.partial_outages();
    let [outage] = outages.as_slice() else { panic!("{outages:?}") };
    assert_eq!(outage.code, "discord_backfill_incomplete");
    assert_eq!(outage.reason, "1 message older than missed_message_backfill.window_seconds");

    // The private channel had messages before, so losing it counts.
    old.fake.forget_sessions();
    old.fake.push_text(DM, USER, "behind a door");
    old.fake.on("getMessages").channel(DM).always().does(Fault::missing_access());
    let again = fixture_on(old.fake.clone(), |_| {});
    again
        .listen(Some(&cursor), async |gateway| {
            gateway.wait_for_session("session3").await;
            while again.adapter.partial_outages().is_empty() {
                old.fake.push_command(CHANNEL, USER, "status", &[]);
                gateway.commit_events(1).await;
            }
        })
        .await;
    assert_eq!(again.adapter.partial_outages()[0].reason, "1 channel whose history the bot may not read");
}
