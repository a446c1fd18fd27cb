//! The real program, killed at every one of its commits, before and after, on every kind of link, and what the next
//! process makes of it. With the recorder preloaded the kill is a power cut: what was not synced is gone as well.
//!
//! [`visits`] is the table: a commit without a row does not build, and every row is run here. `PETASOS_SWEEP=full` adds the
//! whole product of commits, sides, forms, links and power cuts (`scripts/full`).

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod archive;
mod life;
mod links;
mod owner;
#[path = "../power/mod.rs"]
mod power;
#[path = "../support/mod.rs"]
mod support;
mod talk;
mod unusable;
mod work;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

use life::{Life, Outcome};
use links::Link;
use petasos_gateway::{Commit, Side};
use power::Left;
use support::{Bench, SOON};
use talk::{CHAT, FORMS, Form, Hindrance, QUESTION};

const SIDES: [Side; 2] = [Side::Before, Side::After];
/// Deaths at the same time: most of the time each waits for a process to start.
const WORKERS: usize = 6;

/// What leads to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A question and its answer.
    Ask(Form),
    /// The same, and the platform does this to the first message it gets.
    Hindered(Hindrance),
    Command,
    /// A message with a file.
    Photo,
    Retry,
    /// An interrupted turn is resumed.
    Resume,
    /// An interrupted turn is held, resumed alone, and runs for the stable interval.
    Suspect,
    /// The gateway is stopped with a turn under way.
    Stop,
    /// The gateway is stopped while a platform has not answered a send yet.
    LateSend,
    /// The store refuses the turn.
    Unusable,
    /// The store refuses the turn and the notice about it.
    Untellable,
    /// A background process ends.
    Background,
    Approval,
    Todo,
    Delegate,
    DueJob,
    RunJob,
    AddJob,
    Terminal,
    Send,
    Topic,
    /// A message for a chat that had refused us.
    Probe,
    PassOn,
    Outage,
    OutboxRetry,
    ApiRun,
    Watchdog,
    Housekeeping,
    /// An old conversation is archived.
    Archive,
    /// A question and its answer on another link.
    On(Link, Form),
}

/// Where a commit is killed.
enum Covered {
    /// Here: on the way of each scenario, at the n-th commit of this name.
    Here(Vec<(Scenario, u32)>),
    /// In another test program; [`named_tests_exist`] checks that the test is there.
    ByTest { source: &'static str, test: &'static str },
}

fn once(scenario: Scenario) -> Covered {
    Covered::Here(vec![(scenario, 1)])
}

fn asked(forms: &[Form]) -> Covered {
    Covered::Here(forms.iter().map(|form| (Scenario::Ask(*form), 1)).collect())
}

/// A new commit needs a row here, or this does not build.
fn visits(commit: Commit) -> Covered {
    match commit {
        Commit::TakeOver
        | Commit::Take
        | Commit::WakeLanes
        | Commit::Begin
        | Commit::Step
        | Commit::Claim => asked(&FORMS),
        Commit::StagePreview | Commit::PreviewShown => asked(&[Form::Streamed]),
        Commit::Sending | Commit::PartSent => asked(&[Form::Split]),
        Commit::Postpone | Commit::RateLimit => once(Scenario::Hindered(Hindrance::TooMany)),
        Commit::Bury => once(Scenario::Hindered(Hindrance::Refused)),
        Commit::DropPreview => once(Scenario::Hindered(Hindrance::Uneditable)),
        Commit::Say => once(Scenario::Command),
        Commit::TakenUp => once(Scenario::Resume),
        Commit::MarkAtWork | Commit::Announce | Commit::CloseBooks | Commit::DropBanners => {
            once(Scenario::Stop)
        }
        Commit::Outcome => once(Scenario::LateSend),
        Commit::Submit => once(Scenario::Terminal),
        Commit::Completions => once(Scenario::Background),
        // It begins, it has started, it has ended.
        Commit::Process => Covered::Here((1..=3).map(|nth| (Scenario::Background, nth)).collect()),
        Commit::Rewrite => Covered::Here(vec![(Scenario::Photo, 1), (Scenario::Retry, 1)]),
        Commit::GiveUp => Covered::Here(vec![(Scenario::Unusable, 1), (Scenario::Untellable, 2)]),
        Commit::ChatAlive => once(Scenario::Probe),
        Commit::Post => once(Scenario::Send),
        Commit::PassOn => once(Scenario::PassOn),
        Commit::Outage => once(Scenario::Outage),
        Commit::CronBegin => Covered::Here(vec![(Scenario::DueJob, 1), (Scenario::RunJob, 1)]),
        Commit::CronTell => once(Scenario::DueJob),
        Commit::CronJob => once(Scenario::AddJob),
        // It is asked, it is answered.
        Commit::Question => Covered::Here(vec![(Scenario::Approval, 1), (Scenario::Approval, 2)]),
        Commit::Run => once(Scenario::ApiRun),
        // It begins, it has ended.
        Commit::Delegation => Covered::Here(vec![(Scenario::Delegate, 1), (Scenario::Delegate, 2)]),
        Commit::Topic => once(Scenario::Topic),
        Commit::Operator => once(Scenario::OutboxRetry),
        Commit::Todo => once(Scenario::Todo),
        Commit::Sweep => once(Scenario::Housekeeping),
        Commit::Archive => once(Scenario::Archive),
        Commit::Pulse => once(Scenario::Watchdog),
        Commit::ClearSuspect => once(Scenario::Suspect),
        // All of them, one after the other, until a life without a death.
        Commit::Connector => Covered::ByTest {
            source: include_str!("../relay/connector.rs"),
            test: "killed_at_every_commit_a_connector_loses_nothing_and_does_nothing_twice",
        },
    }
}

/// One death.
#[derive(Clone, Copy, Debug)]
struct Death {
    commit: Commit,
    side: Side,
    /// At the n-th commit of that name.
    nth: u32,
    scenario: Scenario,
    /// The power goes with it.
    cut: Option<Left>,
}

/// Lives through one death and says what went wrong.
fn survive(death: Death) -> Outcome {
    let Death { commit, side, nth, scenario, cut } = death;
    let mut life = set_up(scenario);
    let place = format!("{commit:?}:{side:?}:{nth}");
    let log = life.bench.home.path().join("power.log");
    life.dying.push(("PETASOS_DIE_AT", place.clone()));
    if cut.is_some() {
        life.dying.push(("LD_PRELOAD", power::shim().display().to_string()));
        life.dying.push(("PETASOS_POWER_LOG", log.display().to_string()));
    }
    provoke(&mut life, scenario, nth)?;
    if !life.bench.dies(patience(scenario)) {
        return Err(format!("{place} was never reached"));
    }
    let mut lost = power::Lost::default();
    if let Some(left) = cut {
        lost = power::cut(&log, left);
        if lost.syncs == 0 {
            return Err("nothing was ever synced".into());
        }
    }
    life.bench.telegram.clear_faults();
    life.dying.clear();
    check(&mut life, death).map_err(|error| format!("{error} ({lost:?})"))
}

fn patience(scenario: Scenario) -> Duration {
    // Its first look at old rows is a minute after the start.
    if scenario == Scenario::Housekeeping { SOON + Duration::from_secs(60) } else { SOON }
}

fn set_up(scenario: Scenario) -> Life {
    match scenario {
        Scenario::Ask(form) => Life::new(talk::bench(form)),
        Scenario::Hindered(hindrance) => Life::new(talk::bench(hindrance.form())),
        Scenario::Command
        | Scenario::Photo
        | Scenario::Retry
        | Scenario::Resume
        | Scenario::Stop
        | Scenario::LateSend => Life::new(talk::bench(Form::Plain)),
        Scenario::Suspect => Life::new(talk::holding_suspects()),
        Scenario::Unusable => unusable::set_up(&[unusable::TURN]),
        Scenario::Untellable => unusable::set_up(&[unusable::TURN, unusable::NOTICE]),
        Scenario::Background
        | Scenario::Approval
        | Scenario::Todo
        | Scenario::Delegate
        | Scenario::DueJob
        | Scenario::RunJob
        | Scenario::AddJob => work::set_up(),
        Scenario::Terminal
        | Scenario::Send
        | Scenario::Topic
        | Scenario::OutboxRetry
        | Scenario::Housekeeping => Life::new(Bench::new()),
        Scenario::Probe => owner::with_dead_chat(),
        Scenario::PassOn => links::with_webhook(),
        Scenario::Outage => owner::with_two_platforms(),
        Scenario::ApiRun => links::with_api(),
        Scenario::Watchdog => owner::with_watchdog(),
        Scenario::Archive => archive::with_old_conversation(),
        Scenario::On(link, form) => links::set_up(link, form),
    }
}

/// Starts the gateway that dies, and does what leads to the commit.
fn provoke(life: &mut Life, scenario: Scenario, nth: u32) -> Outcome {
    match scenario {
        Scenario::Ask(_) | Scenario::Hindered(_) => talk::ask(life, scenario),
        Scenario::Command => talk::command(life),
        Scenario::Photo => talk::photo(life),
        Scenario::Retry => talk::retry(life),
        Scenario::Resume => talk::resume(life),
        Scenario::Suspect => talk::suspect(life),
        Scenario::Stop => talk::stop(life),
        Scenario::LateSend => talk::late_send(life),
        Scenario::Unusable | Scenario::Untellable | Scenario::Watchdog => {
            talk::ask(life, Scenario::Ask(Form::Plain))
        }
        Scenario::Background => work::say(life, "run echo finished"),
        Scenario::Approval => work::ask_for_approval(life, nth),
        Scenario::Todo => work::say(life, "todo"),
        Scenario::Delegate => work::say(life, "delegate: dig"),
        Scenario::DueJob => work::due_job(life),
        Scenario::RunJob => work::run_job(life),
        Scenario::AddJob => work::add_job(life),
        Scenario::Terminal => owner::chat(life),
        Scenario::Send => owner::send(life, "telegram:101"),
        Scenario::Probe => owner::send(life, "telegram:101"),
        Scenario::Topic => owner::send_to_topic(life),
        Scenario::PassOn => links::pass_on(life),
        Scenario::Outage => owner::lose_platform(life),
        Scenario::OutboxRetry => owner::retry_dead(life),
        Scenario::ApiRun => links::start_run(life),
        Scenario::Housekeeping => owner::wait_for_housekeeping(life),
        Scenario::Archive => archive::wait_for_retention(life),
        Scenario::On(link, form) => links::provoke(life, link, form),
    }
}

/// Starts the next process: everything that was accepted is answered or reported, and nothing twice without a mark.
fn check(life: &mut Life, death: Death) -> Outcome {
    let (side, nth) = (death.side, death.nth);
    match death.scenario {
        Scenario::Ask(_)
        | Scenario::Hindered(_)
        | Scenario::Command
        | Scenario::Resume
        | Scenario::Suspect
        | Scenario::Stop
        | Scenario::LateSend
        | Scenario::Photo => talk::check(life, death.scenario),
        Scenario::Retry => talk::check_retry(life),
        Scenario::Unusable | Scenario::Untellable => unusable::check(life, death.scenario, side),
        Scenario::Background => work::check_background(life, death.commit, side, nth),
        Scenario::Approval => work::check_approval(life, side, nth),
        Scenario::Todo => work::check_todo(life),
        Scenario::Delegate => work::check_delegation(life, side, nth),
        Scenario::DueJob => work::check_job(life),
        Scenario::RunJob | Scenario::AddJob => work::check_asked_job(life, death.scenario, side),
        Scenario::Terminal => owner::check_chat(life),
        Scenario::Send | Scenario::Probe => owner::check_sent(life, side),
        Scenario::Topic => owner::check_topic(life, side),
        Scenario::PassOn => links::check_passed_on(life),
        Scenario::Outage => owner::check_outage(life),
        Scenario::OutboxRetry => owner::check_retried(life, side),
        Scenario::ApiRun => links::check_run(life),
        Scenario::Watchdog => talk::check(life, Scenario::Ask(Form::Plain)),
        Scenario::Housekeeping => owner::check_housekeeping(life),
        Scenario::Archive => archive::check(life, side),
        Scenario::On(link, form) => links::check(life, link, form),
    }
}

/// Lives through all of them, a few at the same time.
#[track_caller]
fn survive_all(mut deaths: Vec<Death>) {
    assert!(!deaths.is_empty());
    // Those that wait for a minute begin first.
    deaths.sort_by_key(|death| patience(death.scenario));
    let (left, failed) = (Mutex::new(deaths), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let Some(death) = left.lock().expect("no panic").pop() else { return };
                    let survived = catch_unwind(AssertUnwindSafe(|| survive(death)));
                    let survived = survived.unwrap_or_else(|_| Err("it panicked, see above".into()));
                    if let Err(error) = survived {
                        failed.lock().expect("no panic").push(format!("{death:?}: {error}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic");
    assert!(failed.is_empty(), "{} deaths:\n{}", failed.len(), failed.join("\n"));
}

/// Every row of the table; `PETASOS_SWEEP_ONLY` runs those whose description contains it.
fn deaths(visits: impl Fn(Commit) -> Vec<(Scenario, u32)>) -> Vec<Death> {
    let mut all = Vec::new();
    for commit in Commit::ALL {
        for (scenario, nth) in visits(commit) {
            all.extend(SIDES.map(|side| Death { commit, side, nth, scenario, cut: None }));
        }
    }
    if let Ok(only) = std::env::var("PETASOS_SWEEP_ONLY") {
        all.retain(|death| format!("{death:?}").contains(&only));
    }
    all
}

fn here(commit: Commit) -> Vec<(Scenario, u32)> {
    match visits(commit) {
        Covered::Here(visits) => visits,
        Covered::ByTest { .. } => vec![],
    }
}

fn everything() -> bool {
    std::env::var_os("PETASOS_SWEEP").is_some_and(|it| it == "full")
}

#[test]
fn named_tests_exist() {
    for commit in Commit::ALL {
        match visits(commit) {
            Covered::Here(visits) => assert!(!visits.is_empty(), "{commit:?} is killed nowhere"),
            Covered::ByTest { source, test } => {
                assert!(source.contains(&format!("#[test]\nfn {test}()")), "{commit:?}: there is no {test}");
            }
        }
    }
}

#[test]
fn killed_at_every_commit_nothing_is_lost_and_nothing_is_doubled() {
    survive_all(deaths(here));
}

#[test]
fn killed_at_every_commit_of_another_link_nothing_is_lost_and_nothing_is_doubled() {
    survive_all(deaths(|commit| links::visits(commit, everything())));
}

#[test]
fn a_power_cut_at_every_commit_leaves_everything_that_was_acknowledged() {
    let cuts = [Left::Nothing, Left::Some(1), Left::Some(2)];
    if everything() {
        let all = deaths(|commit| [here(commit), links::visits(commit, true)].concat());
        let each = |death: Death| cuts.map(|cut| Death { cut: Some(cut), ..death });
        return survive_all(all.into_iter().flat_map(each).collect());
    }
    let answered = |death: &Death| matches!(death.scenario, Scenario::Ask(_));
    let all = deaths(here).into_iter().filter(answered);
    // Each commit with another remainder, all of them with every form.
    survive_all(all.enumerate().map(|(at, death)| Death { cut: Some(cuts[at % 3]), ..death }).collect());
}

#[test]
fn unsynced_writes_may_be_missing_and_the_file_is_sound() {
    let mut bench = talk::bench(Form::Plain);
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
