//! Discord: the global rate limit, the backfill window and the gateway URL.
use std::time::Duration;

use crate::support::{ProgramFixture, SOON};
use petasos_fakes::discord::{Fault, Incoming, Outcome, State};

const DIRECT: u64 = 50;
const OTHER_DIRECT: u64 = 51;
const CHANNEL: u64 = 70;
const USER: u64 = 7;
const IDENTIFY: u64 = 2;

#[track_caller]
fn wait_text(fixture: &ProgramFixture, channel: u64, want: &str) {
    let said = |state: &State| state.texts(channel).iter().any(|text| text == want).then_some(());
    assert!(fixture.discord().wait_until(SOON, said).is_some(), "{:?}", fixture.discord().texts(channel));
}

#[test]
fn global_discord_rate_limit_delays_every_chat() {
    let mut fixture = ProgramFixture::builder().discord().build();
    let limit = Duration::from_secs(2);
    fixture.discord().add_direct(OTHER_DIRECT);
    fixture.discord().on("createMessage").does(Fault::too_many_globally(limit.as_secs_f64()));
    fixture.start();
    fixture.discord().push_text(DIRECT, USER, "one");
    let refused = |state: &State| {
        state.calls_of("createMessage").next().filter(|call| call.outcome != Outcome::Pending).map(drop)
    };
    assert!(fixture.discord().wait_until(SOON, refused).is_some(), "nothing was said");
    fixture.discord().push_text(OTHER_DIRECT, USER, "two");
    wait_text(&fixture, DIRECT, "echo: one");
    wait_text(&fixture, OTHER_DIRECT, "echo: two");
    let calls = fixture.discord().calls_of("createMessage");
    assert_eq!(calls.len(), 3, "one refusal for all of them");
    for call in &calls[1..] {
        let waited = call.at - calls[0].at;
        assert!(waited >= limit.mul_f64(0.95), "channel {:?} after {waited:?}", call.channel);
    }
}

#[test]
fn messages_outside_backfill_window_are_counted_and_logged() {
    let mut fixture = ProgramFixture::builder().discord().build();
    fixture.start();
    let ago = |hours: u64, text: &str| {
        Incoming::text(CHANNEL, USER, text).mentioning_bot().ago(Duration::from_secs(hours * 3600))
    };
    fixture.discord().push(Incoming::text(CHANNEL, USER, "a talk").ago(Duration::from_secs(4 * 3600)));
    fixture.discord().push_text(DIRECT, USER, "one");
    wait_text(&fixture, DIRECT, "echo: one");
    fixture.wait_idle();
    fixture.kill();
    let lost = [fixture.discord().push(ago(3, "lost")), fixture.discord().push(ago(2, "lost"))];
    let asked = fixture.discord().push(ago(0, "two"));
    fixture.discord().forget_sessions();
    fixture.launch_with(&[("DISCORD_MISSED_MESSAGE_BACKFILL_WINDOW_SECONDS", "3600")]);
    wait_text(&fixture, asked, "echo: two");
    fixture.wait_idle();
    assert!(lost.iter().all(|thread| fixture.discord().texts(*thread).is_empty()));
    let said = fixture.kill();
    assert!(said.contains("2 messages older than missed_message_backfill.window_seconds"), "{said}");
}

#[test]
fn connects_to_configured_discord_gateway_url() {
    let mut fixture = ProgramFixture::builder().discord().build();
    let file = fixture.home.path().join("config.yaml");
    let config = std::fs::read_to_string(&file).expect("a configuration");
    let url = fixture.discord().gateway_url().replace("/gateway", "/elsewhere");
    let config = config.replace("extra:\n", &format!("extra:\n      gateway_url: {url}\n"));
    std::fs::write(&file, config).expect("written");
    fixture.start();
    fixture.discord().push_text(DIRECT, USER, "hello");
    wait_text(&fixture, DIRECT, "echo: hello");
    let paths: Vec<_> = fixture.discord().frames(IDENTIFY).into_iter().map(|heard| heard.path).collect();
    assert_eq!(paths, ["/elsewhere"]);
}
