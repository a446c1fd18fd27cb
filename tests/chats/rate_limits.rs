//! Rate limits of platforms across `kill -9`: no request of any kind leaves before they are over.

use std::time::{Duration, Instant};

use crate::support::{Bench, SOON, eventually, fine};
use petasos_fakes::telegram::Fault;
use petasos_fakes::{discord, telegram};

const LIMITED: i64 = 101;
const OTHER: i64 = 102;
const BAN: Duration = Duration::from_secs(6);
/// Longer than any test takes.
const LONG_BAN: Duration = Duration::from_secs(1800);
/// The platform's clock and ours begin to count a moment apart.
const SLACK: Duration = Duration::from_millis(50);

/// Chat 101 has been refused with a wait; gives the moment. The wait is on disk.
fn banned(bench: &mut Bench, method: &str, wait: Duration) -> Instant {
    bench.telegram.on(method).does(Fault::too_many(wait.as_secs()));
    bench.start();
    bench.telegram.push_text(LIMITED, LIMITED, "first");
    let refused = |world: &telegram::World| world.calls_of(method).next().map(|call| call.at);
    let at = bench.telegram.wait_until(SOON, refused).expect("refused");
    eventually("stored", || stored(bench) == 1);
    at
}

fn stored(bench: &Bench) -> i64 {
    let raw = rusqlite::Connection::open(bench.database()).expect("readable");
    raw.query_row("SELECT count(*) FROM rate_limits", [], |row| row.get(0)).expect("counted")
}

/// No request for the chat before the wait is over; then its messages are answered.
fn keeps_still(bench: &Bench, since: Instant, answers: &[&str]) {
    for answer in answers {
        let answered = bench.telegram.wait_until(BAN + SOON, |world| {
            world.texts(LIMITED).iter().any(|text| text.ends_with(answer)).then_some(())
        });
        assert!(answered.is_some(), "{answer}: {:?}", bench.telegram.texts(LIMITED));
    }
    let calls = bench.telegram.calls();
    let later = calls.iter().filter(|call| call.chat() == Some(LIMITED) && call.at > since);
    let later: Vec<_> = later.map(|call| (call.method.clone(), call.at - since)).collect();
    assert!(!later.is_empty());
    for (method, after) in later {
        assert!(after + SLACK >= BAN, "{method} left after {after:?}");
    }
}

#[test]
fn restart_keeps_the_wait_of_a_refused_message() {
    let mut bench = Bench::with("streaming:\n  enabled: true\n");
    let since = banned(&mut bench, "sendMessage", BAN);
    bench.kill();
    bench.start();
    // A turn in the limited chat would show that it types.
    bench.telegram.push_text(LIMITED, LIMITED, "second");
    keeps_still(&bench, since, &["echo: first", "echo: second"]);
    bench.settle();
    let once = bench.telegram.texts(LIMITED).iter().filter(|text| text.ends_with("echo: first")).count();
    assert_eq!(once, 1);
    eventually("the row is deleted", || !fine(&bench.run(&["outbox"])).contains("rate limited"));
    eventually("no row is left", || stored(&bench) == 0);
}

#[test]
fn wait_of_one_chat_is_listed_and_delays_no_other_chat_after_a_restart() {
    let mut bench = Bench::new();
    let since = banned(&mut bench, "sendMessage", LONG_BAN);
    for command in ["outbox", "links"] {
        let listed = fine(&bench.run(&[command]));
        assert!(listed.contains("telegram:101 is rate limited until"), "{command}: {listed}");
        let listed = crate::support::json(&bench.run(&[command, "--json"]));
        assert_eq!(listed["rate_limits"][0]["name"], "101", "{command}");
    }
    assert_eq!(bench.status()["rate_limits"][0]["name"], "101");
    bench.kill();
    bench.start();
    bench.telegram.push_text(OTHER, OTHER, "hello");
    let answered = |world: &telegram::World| (!world.texts(OTHER).is_empty()).then_some(());
    assert!(bench.telegram.wait_until(SOON, answered).is_some(), "the other chat waits, too");
    let calls = bench.telegram.calls();
    let early: Vec<_> = calls.iter().filter(|it| it.chat() == Some(LIMITED) && it.at > since).collect();
    assert!(early.is_empty(), "{early:?}");
}

#[test]
fn wait_met_by_typing_holds_back_the_answer_after_a_restart() {
    let mut bench = Bench::new();
    let gate = bench.model.gate(petasos_fakes::model::Point::Before);
    let since = banned(&mut bench, "sendChatAction", BAN);
    bench.kill();
    gate.open();
    bench.start();
    keeps_still(&bench, since, &["echo: first"]);
}

#[test]
fn restart_keeps_a_limit_on_the_whole_platform() {
    let mut bench = Bench::setup().discord().build();
    bench.discord().add_direct(51);
    bench.discord().on("createMessage").does(discord::Fault::Limited(BAN.as_secs_f64()));
    bench.start();
    bench.discord().push_text(50, 7, "one");
    let refused = |world: &discord::World| world.calls_of("createMessage").next().map(|call| call.at);
    let since = bench.discord().wait_until(SOON, refused).expect("refused");
    let limited = |text: String| text.contains("discord is rate limited until");
    eventually("stored", || limited(fine(&bench.run(&["outbox"]))));
    bench.kill();
    bench.launch();
    eventually("in force again", || {
        let listed = bench.run(&["links"]);
        listed.status.success() && limited(crate::support::stdout(&listed))
    });
    bench.discord().push_text(51, 7, "two");
    for (channel, want) in [(50, "echo: one"), (51, "echo: two")] {
        let said = |world: &discord::World| world.texts(channel).iter().any(|it| it == want).then_some(());
        assert!(bench.discord().wait_until(BAN + SOON, said).is_some(), "{channel}");
    }
    for call in bench
        .discord()
        .look(|world| world.calls().cloned().collect::<Vec<_>>())
        .iter()
        .filter(|call| call.at > since)
    {
        let after = call.at - since;
        assert!(after + SLACK >= BAN, "{} left after {after:?}", call.route);
    }
}
