//! Command menu: registered when it differs, within Discord's limits.

use std::time::Duration;

use petasos_fakes::discord::{Fault, Outcome};
use petasos_platforms::discord::{Config, MenuCommand, MenuPolicy};

use super::fixture::{DM, DiscordFixture, IDENTIFY, USER, fixture_on, fixture_with};

fn with_menu(config: &mut Config) {
    let entry = |name: &str| MenuCommand { command: name.into(), description: format!("Do {name}") };
    config.menu = vec![entry("new"), entry("stop")];
}

/// How often the menu was fetched and set.
fn calls(fixture: &DiscordFixture) -> (usize, usize) {
    (fixture.fake.calls_of("getCommands").len(), fixture.fake.calls_of("putCommands").len())
}

/// Starts a new session in the same process.
async fn start_new_session(fixture: &DiscordFixture, sessions: usize) {
    fixture.fake.invalidate();
    fixture.wait_for_frames(IDENTIFY, sessions).await;
}

#[tokio::test]
async fn registers_a_menu_once() {
    let fixture = fixture_with(with_menu);
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.wait_until("registered", |state| state.commands().is_array().then_some(())).await;
            start_new_session(&fixture, 2).await;
            gateway.wait_for_session("session2").await;
        })
        .await;
    assert_eq!(calls(&fixture), (1, 1), "one session more");
    let again = fixture_on(fixture.fake.clone(), with_menu);
    again
        .listen(None, async |gateway| {
            gateway.wait_for_session("session3").await;
            again.wait_until("asked for", |state| state.calls_of("getCommands").nth(1).map(drop)).await;
            start_new_session(&again, 4).await;
            gateway.wait_for_session("session4").await;
        })
        .await;
    assert_eq!(calls(&fixture), (2, 1), "one process more, and nothing to change");
    let other = fixture_on(fixture.fake.clone(), |config| {
        with_menu(config);
        config.menu.truncate(1);
    });
    let changed = other.listen(None, async |gateway| {
        gateway.wait_for_session("session5").await;
        let names = |state: &petasos_fakes::discord::State| {
            state.commands().as_array().is_some_and(|list| list.len() == 1 && list[0]["name"] == "new")
        };
        other.wait_until("changed", move |state| names(state).then_some(())).await;
    });
    changed.await;
    assert_eq!(calls(&fixture), (3, 2));
}

#[tokio::test]
async fn keeps_rate_limits_across_sessions_and_retries_failures() {
    let fixture = fixture_with(with_menu);
    fixture.fake.on("getCommands").does(Fault::status(500, 0, "500: Internal Server Error"));
    fixture.fake.on("putCommands").does(Fault::too_many(0.4));
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture
                .wait_until("limited", |state| {
                    state
                        .calls_of("putCommands")
                        .next()
                        .filter(|call| call.outcome != Outcome::Pending)
                        .map(drop)
                })
                .await;
            // After these the refusal has been read.
            for _ in 0..5 {
                fixture.fake.push_text(DM, USER, "hello");
                gateway.commit_events(1).await;
            }
        })
        .await;
    // The next link belongs to the same bot.
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session2").await;
            fixture.wait_until("registered", |state| state.commands().is_array().then_some(())).await;
        })
        .await;
    let create_calls = fixture.fake.calls_of("putCommands");
    assert_eq!(create_calls.len(), 2);
    let waited = create_calls[1].at - create_calls[0].at;
    assert!(waited >= Duration::from_millis(380), "{waited:?}");
}

#[tokio::test]
async fn does_not_repeat_a_refused_menu_and_respects_off() {
    let fixture = fixture_with(with_menu);
    fixture.fake.on("putCommands").always().does(Fault::missing_access());
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.wait_until("refused", |state| state.calls_of("putCommands").next().map(drop)).await;
            start_new_session(&fixture, 2).await;
            gateway.wait_for_session("session2").await;
        })
        .await;
    assert_eq!(calls(&fixture), (1, 1));
    for (policy, session, want) in
        [(MenuPolicy::Off, "session3", (1, 1)), (MenuPolicy::Bulk, "session4", (1, 2))]
    {
        let fixture = fixture_on(fixture.fake.clone(), |config| {
            with_menu(config);
            config.menu_policy = policy;
        });
        fixture
            .listen(None, async |gateway| {
                gateway.wait_for_session(session).await;
                if policy == MenuPolicy::Bulk {
                    fixture.wait_until("set", |state| state.calls_of("putCommands").nth(1).map(drop)).await;
                }
            })
            .await;
        assert_eq!(calls(&fixture), want, "{policy:?}");
    }
}
