//! The menu of commands: registered when it differs, and never more often than Discord wants.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use petasos_fakes::discord::{Fault, Outcome};
use petasos_platforms::discord::{Config, MenuCommand, MenuPolicy};

use crate::rig::{DIRECT, IDENTIFY, Rig, USER, rig_on, rig_with};

fn with_menu(config: &mut Config) {
    let entry = |name: &str| MenuCommand { command: name.into(), description: format!("Do {name}") };
    config.menu = vec![entry("new"), entry("stop")];
}

/// How often the menu was asked for, and set.
fn calls(rig: &Rig) -> (usize, usize) {
    (rig.fake.calls_of("getCommands").len(), rig.fake.calls_of("putCommands").len())
}

/// A new session in the same process, until it is greeted.
async fn anew(rig: &Rig, sessions: usize) {
    rig.fake.invalidate();
    rig.wait_heard(IDENTIFY, sessions).await;
}

#[tokio::test]
async fn a_menu_is_registered_once_and_left_alone() {
    let rig = rig_with(with_menu);
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.wait_until("registered", |world| world.commands().is_array().then_some(())).await;
        anew(&rig, 2).await;
        gateway.settle("session2").await;
    })
    .await;
    assert_eq!(calls(&rig), (1, 1), "one session more");
    let again = rig_on(rig.fake.clone(), with_menu);
    again
        .listen(None, async |gateway| {
            gateway.settle("session3").await;
            again.wait_until("asked for", |world| world.calls_of("getCommands").nth(1).map(drop)).await;
            anew(&again, 4).await;
            gateway.settle("session4").await;
        })
        .await;
    assert_eq!(calls(&rig), (2, 1), "one process more, and nothing to change");
    let other = rig_on(rig.fake.clone(), |config| {
        with_menu(config);
        config.menu.truncate(1);
    });
    let changed = other.listen(None, async |gateway| {
        gateway.settle("session5").await;
        let names = |world: &petasos_fakes::discord::World| {
            world.commands().as_array().is_some_and(|list| list.len() == 1 && list[0]["name"] == "new")
        };
        other.wait_until("changed", move |world| names(world).then_some(())).await;
    });
    changed.await;
    assert_eq!(calls(&rig), (3, 2));
}

#[tokio::test]
async fn a_limit_is_kept_also_by_the_next_session_and_a_failure_made_good() {
    let rig = rig_with(with_menu);
    rig.fake.on("getCommands").does(Fault::status(500, 0, "500: Internal Server Error"));
    rig.fake.on("putCommands").does(Fault::too_many(0.4));
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.wait_until("limited", |world| {
            world.calls_of("putCommands").next().filter(|call| call.outcome != Outcome::Pending).map(drop)
        })
        .await;
        // The answer is on its way; by then it has been read.
        for _ in 0..5 {
            rig.fake.push_text(DIRECT, USER, "hello");
            gateway.take(1).await;
        }
    })
    .await;
    // The link ends, and the next one belongs to the same bot.
    rig.listen(None, async |gateway| {
        gateway.settle("session2").await;
        rig.wait_until("registered", |world| world.commands().is_array().then_some(())).await;
    })
    .await;
    let tries = rig.fake.calls_of("putCommands");
    assert_eq!(tries.len(), 2);
    let waited = tries[1].at - tries[0].at;
    assert!(waited >= Duration::from_millis(380), "{waited:?}");
}

#[tokio::test]
async fn a_refusal_is_not_repeated_and_off_is_off() {
    let rig = rig_with(with_menu);
    rig.fake.on("putCommands").always().does(Fault::missing_access());
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.wait_until("refused", |world| world.calls_of("putCommands").next().map(drop)).await;
        anew(&rig, 2).await;
        gateway.settle("session2").await;
    })
    .await;
    assert_eq!(calls(&rig), (1, 1));
    for (policy, session, want) in
        [(MenuPolicy::Off, "session3", (1, 1)), (MenuPolicy::Bulk, "session4", (1, 2))]
    {
        let rig = rig_on(rig.fake.clone(), |config| {
            with_menu(config);
            config.menu_policy = policy;
        });
        rig.listen(None, async |gateway| {
            gateway.settle(session).await;
            if policy == MenuPolicy::Bulk {
                rig.wait_until("set", |world| world.calls_of("putCommands").nth(1).map(drop)).await;
            }
        })
        .await;
        assert_eq!(calls(&rig), want, "{policy:?}");
    }
}
