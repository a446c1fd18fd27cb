//! Platforms that come and go, and what the owner hears of it.
#![allow(clippy::expect_used, reason = "tests")]

mod support;

use std::time::{Duration, Instant};

use petasos_gateway::HomeChannel;
use support::{World, telegram};

const HOME: i64 = 99;

fn at_home(patience: Duration) -> World {
    World::with(|setup| {
        setup.lifetime.outage_notice = patience;
        let (platform, chat_id) = (telegram(), HOME.to_string());
        setup.lifetime.home_channels =
            vec![HomeChannel { platform, chat_id, thread_id: None, name: "Home".into() }];
    })
}

#[test]
fn an_outage_that_lasts_is_told_when_somebody_can_hear_it_and_once() {
    let patience = Duration::from_millis(500);
    let world = at_home(patience);
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "echo: hello");
    world.owes_nothing();
    let before = world.telegram.texts(HOME).len();
    world.telegram.down();
    let down = || {
        let status = world.runtime.block_on(world.handle().status()).expect("a status");
        (status.links[0].link.published() != "connected").then_some(())
    };
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    support::eventually("down", down);
    let since = Instant::now();
    support::eventually("worth telling", || (since.elapsed() > 2 * patience).then_some(()));
    world.telegram.up().expect("telegram comes back");
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    world.ends_with(HOME, "telegram is back after 0 min");
    world.telegram.push_text(7, 7, "again");
    world.ends_with(7, "echo: again");
    world.owes_nothing();
    assert_eq!(world.telegram.texts(HOME).len(), before + 1, "{:?}", world.telegram.texts(HOME));
}

#[test]
fn a_short_outage_is_nobodys_business() {
    let world = at_home(Duration::from_secs(600));
    world.telegram.down();
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    let status = || world.runtime.block_on(world.handle().status()).expect("a status");
    support::eventually("down", || (status().links[0].link.published() != "connected").then_some(()));
    world.telegram.up().expect("telegram comes back");
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "echo: hello");
    world.owes_nothing();
    assert_eq!(world.telegram.texts(HOME), [""; 0]);
}
