//! The real program, killed at every one of its commits, before and after, and what it makes of it then. With the
//! recorder preloaded the kill is a power cut: what was not synced is gone as well.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod power;
mod support;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use petasos_fakes::model::Answer;
use petasos_fakes::telegram::Fault;
use petasos_gateway::{Commit, Side};
use power::Left;
use support::{Bench, SOON, said};

const CHAT: i64 = 101;
const QUESTION: &str = "hello from 101";
const MARK: &str = "Recovered reply";
const SIDES: [Side; 2] = [Side::Before, Side::After];

/// How an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Streamed,
    Split,
}

const FORMS: [Form; 3] = [Form::Plain, Form::Streamed, Form::Split];

/// How a commit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Somebody asks and is answered, in these forms.
    Asked(&'static [Form]),
    /// The same, and the platform does this to the first message it gets.
    Hindered(Hindrance),
    /// Somebody gives a command.
    Commanded,
    /// A turn that was cut off is taken up.
    TakenUp,
    /// The gateway is asked to stop with a turn under way.
    Stopped,
    /// Not by talking; the test that shows it.
    Elsewhere(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hindrance {
    TooMany,
    Refused,
    Uneditable,
}

/// A new commit needs an answer here, or this does not build.
fn way(commit: Commit) -> Way {
    match commit {
        Commit::TakeOver
        | Commit::Take
        | Commit::WakeLanes
        | Commit::Begin
        | Commit::Step
        | Commit::Claim => Way::Asked(&FORMS),
        Commit::StagePreview | Commit::PreviewShown => Way::Asked(&[Form::Streamed]),
        Commit::Sending | Commit::PartSent => Way::Asked(&[Form::Split]),
        Commit::Postpone => Way::Hindered(Hindrance::TooMany),
        Commit::Bury => Way::Hindered(Hindrance::Refused),
        Commit::DropPreview => Way::Hindered(Hindrance::Uneditable),
        Commit::Say => Way::Commanded,
        Commit::TakenUp => Way::TakenUp,
        Commit::MarkAtWork | Commit::Announce | Commit::CloseBooks | Commit::DropBanners => Way::Stopped,
        Commit::Submit => {
            Way::Elsewhere("the page and the terminal repeat what was not confirmed: crates/sim")
        }
        Commit::Completions | Commit::Process => {
            Way::Elsewhere("crates/gateway/tests/processes.rs, crates/sim")
        }
        Commit::ClearSuspect => Way::Elsewhere("crates/gateway/tests/lifecycle/suspects.rs"),
        Commit::Rewrite => Way::Elsewhere("crates/gateway/tests/arriving.rs"),
        Commit::GiveUp => Way::Elsewhere("crates/gateway/tests/isolation.rs"),
        Commit::Outcome => Way::Elsewhere("the same writes as Claim, by a lane that stops: crates/sim"),
        Commit::ChatAlive => Way::Elsewhere("crates/gateway/tests/dead_chats.rs"),
        Commit::Post | Commit::PassOn => Way::Elsewhere("tests/webhook.rs, tests/routing.rs"),
        Commit::Outage => Way::Elsewhere("crates/gateway/tests/outage.rs"),
        Commit::CronBegin | Commit::CronTell | Commit::CronJob => {
            Way::Elsewhere("crates/store/tests/store/jobs.rs")
        }
        Commit::Question => Way::Elsewhere("tests/approvals.rs"),
        Commit::Run => Way::Elsewhere("tests/api.rs"),
        Commit::Delegation => Way::Elsewhere("crates/gateway/tests/delegation.rs"),
        Commit::Topic => Way::Elsewhere("crates/gateway/tests/delivery.rs"),
        Commit::RateLimit => Way::Elsewhere("tests/rate_limits.rs"),
        Commit::Connector => Way::Elsewhere("crates/connector/tests"),
        Commit::Operator => Way::Elsewhere("one row each, by a person who sees whether it worked"),
        Commit::Todo | Commit::Sweep | Commit::Pulse => Way::Elsewhere("nothing that was promised is in it"),
    }
}

/// One death.
#[derive(Clone, Copy, Debug)]
struct Death {
    commit: Commit,
    side: Side,
    form: Form,
    way: Way,
    /// The power goes with it.
    cut: Option<Left>,
}

impl Death {
    fn place(&self) -> String {
        // The first process of a home has nothing to take over; the interesting one is the next.
        format!("{:?}:{:?}", self.commit, self.side)
    }
}

fn answer(form: Form) -> String {
    match form {
        Form::Plain | Form::Streamed => format!("echo: {QUESTION}"),
        // Three parts of Telegram's size.
        Form::Split => format!("echo: {QUESTION} {}", "words and words ".repeat(600)),
    }
}

fn bench(form: Form) -> Bench {
    let bench = match form {
        Form::Plain | Form::Split => Bench::new(),
        Form::Streamed => Bench::with("streaming:\n  enabled: true\n  transport: edit\n"),
    };
    bench.model.respond(move |request| {
        let text = answer(form).replace(QUESTION, said(&request.last_user));
        match form {
            Form::Plain | Form::Split => Answer::text(text),
            Form::Streamed => Answer::text(text).chunks(8).every(Duration::from_millis(200)),
        }
    });
    bench
}

/// Lives through one death and says what went wrong.
fn survive(death: Death) -> Result<(), String> {
    let mut bench = bench(death.form);
    let log = bench.home.path().join("power.log");
    let place = death.place();
    let mut env = vec![("PETASOS_DIE_AT", place.as_str())];
    let (shim, log_name) = (power::shim().display().to_string(), log.display().to_string());
    if death.cut.is_some() {
        env.extend([("LD_PRELOAD", shim.as_str()), ("PETASOS_POWER_LOG", log_name.as_str())]);
    }
    provoke(&mut bench, death, &env)?;
    if !bench.dies(SOON) {
        return Err(format!("{place} was never reached"));
    }
    let mut lost = power::Lost::default();
    if let Some(left) = death.cut {
        lost = power::cut(&log, left);
        if lost.syncs == 0 {
            return Err("nothing was ever synced".into());
        }
    }
    bench.telegram.clear_faults();
    bench.start();
    well(&bench, death).map_err(|error| format!("{error} ({lost:?})"))
}

/// Whatever leads to the commit.
fn provoke(bench: &mut Bench, death: Death, env: &[(&str, &str)]) -> Result<(), String> {
    let ask = |bench: &Bench| {
        bench.telegram.push_text(CHAT, CHAT, QUESTION);
    };
    match death.way {
        Way::Asked(_) => {
            bench.launch_with(env);
            ask(bench);
        }
        Way::Hindered(hindrance) => {
            match hindrance {
                Hindrance::TooMany => {
                    bench.telegram.on("sendMessage").times(1).does(Fault::too_many(1));
                }
                Hindrance::Refused => {
                    bench
                        .telegram
                        .on("sendMessage")
                        .times(1)
                        .does(Fault::status(400, "Bad Request: message is odd"));
                }
                Hindrance::Uneditable => {
                    let refusal = Fault::status(400, "Bad Request: message can't be edited");
                    bench.telegram.on("editMessageText").does(refusal);
                }
            }
            bench.launch_with(env);
            ask(bench);
        }
        Way::Commanded => {
            bench.launch_with(env);
            bench.telegram.push_text(CHAT, CHAT, "/help");
        }
        Way::TakenUp => {
            let gate = bench.model.gate(petasos_fakes::model::Point::Before);
            bench.start();
            ask(bench);
            if !gate.wait(SOON) {
                return Err("the model was never asked".into());
            }
            bench.kill();
            gate.open();
            bench.launch_with(env);
        }
        Way::Stopped => {
            let gate = bench.model.gate(petasos_fakes::model::Point::Before);
            bench.launch_with(env);
            ask(bench);
            if !gate.wait(SOON) {
                return Err("the model was never asked".into());
            }
            bench.gateway.as_ref().expect("it runs").signal_if_alive("TERM");
            // The turn is cut off by the stop; the answer belongs to the next process.
            if !bench.dies(SOON) {
                return Err("it never stopped".into());
            }
            gate.open();
        }
        Way::Elsewhere(_) => {}
    }
    Ok(())
}

/// Everything that was accepted is answered, and nothing twice without a mark.
fn well(bench: &Bench, death: Death) -> Result<(), String> {
    let answer = match death.way {
        Way::Commanded => "/new".to_owned(),
        _ => answer(death.form).chars().take(60).collect(),
    };
    let refused = death.way == Way::Hindered(Hindrance::Refused);
    let until = Instant::now() + SOON;
    let whole = |texts: &[String]| match death.form {
        Form::Split => (1..=3).all(|part| texts.iter().any(|text| text.contains(&format!("({part}/3)")))),
        Form::Plain | Form::Streamed => {
            texts.iter().any(|text| text.contains(&answer) && !text.contains('▉'))
        }
    };
    loop {
        let texts = bench.telegram.texts(CHAT);
        if whole(&texts) {
            break;
        }
        // A message that was refused for good is listed instead.
        if refused && bench.status().pointer("/outbox/dead").and_then(serde_json::Value::as_u64) == Some(1) {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("never answered: {:?}", short(&texts)));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bench.settle();
    let texts: Vec<String> = bench
        .telegram
        .texts(CHAT)
        .into_iter()
        .filter(|text| !text.contains("Gateway shutting down"))
        .collect();
    let mut unmarked: Vec<&String> = texts.iter().filter(|text| !text.contains(MARK)).collect();
    let count = unmarked.len();
    unmarked.sort();
    unmarked.dedup();
    // A preview beside a marked answer is what the mark is for.
    let copies = unmarked.len() != count || (death.form != Form::Split && count > 1 && count == texts.len());
    if copies {
        return Err(format!("an unmarked copy: {:?}", short(&texts)));
    }
    let asked = bench.model.look(|desk| desk.request_count());
    let most = if death.way == Way::Commanded { 0 } else { 2 };
    if asked > most {
        return Err(format!("the model was asked {asked} times"));
    }
    Ok(())
}

fn short(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| text.chars().take(70).collect()).collect()
}

/// Lives through all of them, a few at the same time.
#[track_caller]
fn survive_all(deaths: Vec<Death>) {
    assert!(!deaths.is_empty());
    let (left, failed) = (Mutex::new(deaths), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(death) = left.lock().expect("no panic").pop() else { return };
                    if let Err(error) = survive(death) {
                        failed.lock().expect("no panic").push(format!("{death:?}: {error}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn deaths(cut: Option<Left>, sides: &[Side]) -> Vec<Death> {
    let mut all = Vec::new();
    for commit in Commit::ALL {
        let way = way(commit);
        let forms = match way {
            Way::Asked(forms) => forms,
            Way::Hindered(Hindrance::Uneditable) => &[Form::Streamed],
            Way::Hindered(_) | Way::Commanded | Way::TakenUp | Way::Stopped => &[Form::Plain],
            Way::Elsewhere(_) => &[],
        };
        for form in forms {
            all.extend(sides.iter().map(|side| Death { commit, side: *side, form: *form, way, cut }));
        }
    }
    all
}

#[test]
fn killed_at_every_commit_nothing_is_lost_and_nothing_is_doubled() {
    survive_all(deaths(None, &SIDES));
}

#[test]
fn a_power_cut_at_every_commit_leaves_everything_that_was_acknowledged() {
    let answered = |death: &Death| matches!(death.way, Way::Asked(_));
    let cuts = [Left::Nothing, Left::Some(1), Left::Some(2)];
    let all = deaths(None, &SIDES).into_iter().filter(answered);
    // Each commit with another remainder, all of them with every form.
    survive_all(all.enumerate().map(|(at, death)| Death { cut: Some(cuts[at % 3]), ..death }).collect());
}

#[test]
fn whatever_was_not_synced_may_be_missing_and_the_file_is_sound() {
    let mut bench = bench(Form::Plain);
    let log = bench.home.path().join("power.log");
    let (shim, log_name) = (power::shim().display().to_string(), log.display().to_string());
    bench.launch_with(&[("LD_PRELOAD", &shim), ("PETASOS_POWER_LOG", &log_name)]);
    bench.telegram.push_text(CHAT, CHAT, QUESTION);
    bench.wait_messages(CHAT, 1);
    bench.kill();
    for seed in 0..8 {
        let left = if seed == 0 { Left::Nothing } else { Left::Some(seed) };
        let lost = power::cut(&log, left);
        assert!(lost.syncs > 3, "{lost:?}");
        let store = petasos_store::Store::open(bench.database()).expect("a sound database");
        let accepted = store.newest().expect("readable");
        assert_eq!(accepted.0, 1, "the acknowledged message is gone with {left:?}, {lost:?}");
        drop(store);
    }
}
