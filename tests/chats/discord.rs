//! The gateway on Discord alone: what holds for all of its chats together, and what an outage leaves.
use std::time::Duration;

use crate::support::{Bench, SOON};
use petasos_fakes::discord::{Fault, Incoming, Outcome, World};

/// A private chat of the fake, and another one.
const DIRECT: u64 = 50;
const OTHER: u64 = 51;
/// A channel of a server.
const ROOM: u64 = 70;
const SOMEBODY: u64 = 7;
const IDENTIFY: u64 = 2;

/// Waits until the bot has said this in a channel.
#[track_caller]
fn answered(bench: &Bench, channel: u64, want: &str) {
    let said = |world: &World| world.texts(channel).iter().any(|text| text == want).then_some(());
    assert!(bench.discord().wait_until(SOON, said).is_some(), "{:?}", bench.discord().texts(channel));
}

#[test]
fn a_limit_on_all_of_discord_holds_back_every_chat() {
    let mut bench = Bench::setup().discord().build();
    let limit = Duration::from_secs(2);
    bench.discord().add_direct(OTHER);
    bench.discord().on("createMessage").does(Fault::Limited(limit.as_secs_f64()));
    bench.start();
    bench.discord().push_text(DIRECT, SOMEBODY, "one");
    let refused = |world: &World| {
        world.calls_of("createMessage").next().filter(|call| call.outcome != Outcome::Pending).map(drop)
    };
    assert!(bench.discord().wait_until(SOON, refused).is_some(), "nothing was said");
    bench.discord().push_text(OTHER, SOMEBODY, "two");
    answered(&bench, DIRECT, "echo: one");
    answered(&bench, OTHER, "echo: two");
    let calls = bench.discord().calls_of("createMessage");
    assert_eq!(calls.len(), 3, "one refusal for all of them");
    for call in &calls[1..] {
        let waited = call.at - calls[0].at;
        assert!(waited >= limit.mul_f64(0.95), "channel {:?} after {waited:?}", call.channel);
    }
}

#[test]
fn what_is_too_old_to_be_answered_after_an_outage_is_counted_and_said() {
    let mut bench = Bench::setup().discord().build();
    bench.start();
    let ago = |hours: u64, text: &str| {
        Incoming::text(ROOM, SOMEBODY, text).mentioning_bot().ago(Duration::from_secs(hours * 3600))
    };
    bench.discord().push(Incoming::text(ROOM, SOMEBODY, "a talk").ago(Duration::from_secs(4 * 3600)));
    bench.discord().push_text(DIRECT, SOMEBODY, "one");
    answered(&bench, DIRECT, "echo: one");
    bench.settle();
    bench.kill();
    let lost = [bench.discord().push(ago(3, "lost")), bench.discord().push(ago(2, "lost"))];
    let asked = bench.discord().push(ago(0, "two"));
    bench.discord().forget_sessions();
    bench.launch_with(&[("DISCORD_MISSED_MESSAGE_BACKFILL_WINDOW_SECONDS", "3600")]);
    answered(&bench, asked, "echo: two");
    bench.settle();
    assert!(lost.iter().all(|thread| bench.discord().texts(*thread).is_empty()));
    let said = bench.kill();
    assert!(said.contains("2 older than missed_message_backfill.window_seconds"), "{said}");
}

#[test]
fn the_gateway_is_where_the_configuration_says() {
    let mut bench = Bench::setup().discord().build();
    let file = bench.home.path().join("config.yaml");
    let config = std::fs::read_to_string(&file).expect("a configuration");
    let url = bench.discord().gateway_url().replace("/gateway", "/elsewhere");
    let config = config.replace("extra:\n", &format!("extra:\n      gateway_url: {url}\n"));
    std::fs::write(&file, config).expect("written");
    bench.start();
    bench.discord().push_text(DIRECT, SOMEBODY, "hello");
    answered(&bench, DIRECT, "echo: hello");
    let paths: Vec<_> = bench.discord().heard(IDENTIFY).into_iter().map(|heard| heard.path).collect();
    assert_eq!(paths, ["/elsewhere"]);
}
