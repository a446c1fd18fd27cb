//! Rate limits of platforms across `kill -9`: no request is sent before they expire.

use std::time::{Duration, Instant};

use crate::support::{ProgramFixture, SOON, eventually, expect_success};
use petasos_fakes::telegram::Fault;
use petasos_fakes::{discord, telegram};

const LIMITED: i64 = 101;
const OTHER: i64 = 102;
const BAN: Duration = Duration::from_secs(6);
/// Longer than any test takes.
const LONG_BAN: Duration = Duration::from_secs(1800);
/// The fake and the gateway start to count at slightly different moments.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(50);

/// Provokes a rate limit in chat 101 and waits until it is stored. Returns the moment of the refusal.
fn provoke_rate_limit(fixture: &mut ProgramFixture, method: &str, wait: Duration) -> Instant {
    fixture.telegram.on(method).does(Fault::too_many(wait.as_secs()));
    fixture.start();
    fixture.telegram.push_text(LIMITED, LIMITED, "first");
    let refused = |state: &telegram::State| state.calls_of(method).next().map(|call| call.at);
    let at = fixture.telegram.wait_until(SOON, refused).expect("refused");
    eventually("stored", || stored_limits(fixture) == 1);
    at
}

fn stored_limits(fixture: &ProgramFixture) -> i64 {
    let raw = rusqlite::Connection::open(fixture.database()).expect("readable");
    raw.query_row("SELECT count(*) FROM rate_limits", [], |row| row.get(0)).expect("counted")
}

/// The chat gets no request before the limit expires; then its messages are answered.
fn assert_waits(fixture: &ProgramFixture, since: Instant, answers: &[&str]) {
    for answer in answers {
        let answered = fixture.telegram.wait_until(BAN + SOON, |state| {
            state.texts(LIMITED).iter().any(|text| text.ends_with(answer)).then_some(())
        });
        assert!(answered.is_some(), "{answer}: {:?}", fixture.telegram.texts(LIMITED));
    }
    let calls = fixture.telegram.calls();
    let later = calls.iter().filter(|call| call.chat() == Some(LIMITED) && call.at > since);
    let later: Vec<_> = later.map(|call| (call.method.clone(), call.at - since)).collect();
    assert!(!later.is_empty());
    for (method, after) in later {
        assert!(after + CLOCK_TOLERANCE >= BAN, "{method} left after {after:?}");
    }
}

#[test]
fn restart_keeps_rate_limit_of_a_message() {
    let mut fixture = ProgramFixture::with_config("streaming:\n  enabled: true\n");
    let since = provoke_rate_limit(&mut fixture, "sendMessage", BAN);
    fixture.kill();
    fixture.start();
    // A turn in the limited chat would send a typing indicator.
    fixture.telegram.push_text(LIMITED, LIMITED, "second");
    assert_waits(&fixture, since, &["echo: first", "echo: second"]);
    fixture.wait_idle();
    let once = fixture.telegram.texts(LIMITED).iter().filter(|text| text.ends_with("echo: first")).count();
    assert_eq!(once, 1);
    eventually("the row is deleted", || !expect_success(&fixture.run(&["outbox"])).contains("rate limited"));
    eventually("no row is left", || stored_limits(&fixture) == 0);
}

#[test]
fn rate_limit_of_one_chat_is_listed_and_delays_no_other() {
    let mut fixture = ProgramFixture::new();
    let since = provoke_rate_limit(&mut fixture, "sendMessage", LONG_BAN);
    for command in ["outbox", "links"] {
        let listed = expect_success(&fixture.run(&[command]));
        assert!(listed.contains("telegram:101 is rate limited until"), "{command}: {listed}");
        let listed = crate::support::expect_json(&fixture.run(&[command, "--json"]));
        assert_eq!(listed["rate_limits"][0]["name"], "101", "{command}");
    }
    assert_eq!(fixture.status()["rate_limits"][0]["name"], "101");
    fixture.kill();
    fixture.start();
    fixture.telegram.push_text(OTHER, OTHER, "hello");
    let answered = |state: &telegram::State| (!state.texts(OTHER).is_empty()).then_some(());
    assert!(fixture.telegram.wait_until(SOON, answered).is_some(), "the other chat is delayed");
    let calls = fixture.telegram.calls();
    let early: Vec<_> = calls.iter().filter(|it| it.chat() == Some(LIMITED) && it.at > since).collect();
    assert!(early.is_empty(), "{early:?}");
}

#[test]
fn rate_limit_hit_by_typing_delays_answer_after_restart() {
    let mut fixture = ProgramFixture::new();
    let gate = fixture.model.gate(petasos_fakes::model::Point::Before);
    let since = provoke_rate_limit(&mut fixture, "sendChatAction", BAN);
    fixture.kill();
    gate.open();
    fixture.start();
    assert_waits(&fixture, since, &["echo: first"]);
}

#[test]
fn restart_keeps_platform_rate_limit() {
    let mut fixture = ProgramFixture::builder().discord().build();
    fixture.discord().add_direct(51);
    fixture.discord().on("createMessage").does(discord::Fault::too_many_globally(BAN.as_secs_f64()));
    fixture.start();
    fixture.discord().push_text(50, 7, "one");
    let refused = |state: &discord::State| state.calls_of("createMessage").next().map(|call| call.at);
    let since = fixture.discord().wait_until(SOON, refused).expect("refused");
    let limited = |text: String| text.contains("discord is rate limited until");
    eventually("stored", || limited(expect_success(&fixture.run(&["outbox"]))));
    fixture.kill();
    fixture.launch();
    eventually("in force again", || {
        let listed = fixture.run(&["links"]);
        listed.status.success() && limited(crate::support::stdout(&listed))
    });
    fixture.discord().push_text(51, 7, "two");
    for (channel, want) in [(50, "echo: one"), (51, "echo: two")] {
        let said = |state: &discord::State| state.texts(channel).iter().any(|it| it == want).then_some(());
        assert!(fixture.discord().wait_until(BAN + SOON, said).is_some(), "{channel}");
    }
    for call in fixture
        .discord()
        .read(|state| state.calls().cloned().collect::<Vec<_>>())
        .iter()
        .filter(|call| call.at > since)
    {
        let after = call.at - since;
        assert!(after + CLOCK_TOLERANCE >= BAN, "{} left after {after:?}", call.route);
    }
}
