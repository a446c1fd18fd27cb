//! Kills the program before and after every commit, on every link, and checks the next process. With the recorder preloaded
//! the kill is a power cut that also loses unsynced data.
//!
//! [`visits`] is the table: a commit without a row does not build, and every row runs here. `PETASOS_SWEEP=full` adds the
//! product of commits, sides, forms, links and power cuts (`scripts/full`).

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod archive;
mod fixture;
mod links;
mod operator;

mod agent_work;
mod conversation;
mod rejected_message;
#[path = "../support/mod.rs"]
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

use conversation::{AnswerForm, CHAT, FORMS, QUESTION, SendFailure};
use fixture::{SweepFixture, SweepResult};
use links::LinkKind;
use petasos_gateway::{Commit, Side};
use petasos_power_cut::{self as power_cut, UnsyncedData};
use support::{ProgramFixture, SOON};

const SIDES: [Side; 2] = [Side::Before, Side::After];
/// Concurrent cases; each mostly waits for a process to start.
const WORKERS: usize = 6;

/// The events that lead to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A message and its answer.
    Exchange(AnswerForm),
    /// An exchange whose first outgoing message fails.
    SendFails(SendFailure),
    Command,
    Photo,
    Retry,
    Resume,
    /// An interrupted turn is held, resumed alone, and runs for the stable interval.
    Suspect,
    /// The gateway is stopped during a turn.
    Stop,
    /// The gateway is stopped before the result of a send arrives.
    LateSend,
    RejectedTurn,
    /// The store rejects the turn and the notice about it.
    RejectedNotice,
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
    DeadChat,
    Forward,
    Outage,
    OutboxRetry,
    ApiRun,
    Watchdog,
    Housekeeping,
    Archive,
    /// A message and its answer on another link.
    OtherLink(LinkKind, AnswerForm),
}

/// How the kills at a commit are tested.
enum Coverage {
    /// By the sweep: in each scenario, at the n-th commit of this name.
    Sweep(Vec<(Scenario, u32)>),
    /// By a test elsewhere; [`named_tests_exist`] checks that it exists.
    ByTest { source: &'static str, test: &'static str },
}

fn once(scenario: Scenario) -> Coverage {
    Coverage::Sweep(vec![(scenario, 1)])
}

fn in_exchange(forms: &[AnswerForm]) -> Coverage {
    Coverage::Sweep(forms.iter().map(|form| (Scenario::Exchange(*form), 1)).collect())
}

/// No `_` arm: a new commit needs a row here.
fn visits(commit: Commit) -> Coverage {
    match commit {
        Commit::TakeOver
        | Commit::AcceptBatch
        | Commit::WakeLanes
        | Commit::Begin
        | Commit::Step
        | Commit::Claim => in_exchange(&FORMS),
        Commit::StagePreview | Commit::PreviewShown => in_exchange(&[AnswerForm::Streamed]),
        Commit::Sending | Commit::PartSent => in_exchange(&[AnswerForm::Split]),
        Commit::Postpone | Commit::RateLimit => once(Scenario::SendFails(SendFailure::TooMany)),
        Commit::DeadLetter => once(Scenario::SendFails(SendFailure::Refused)),
        Commit::DropPreview => once(Scenario::SendFails(SendFailure::Uneditable)),
        Commit::Reply => once(Scenario::Command),
        Commit::ResumeTurn => once(Scenario::Resume),
        Commit::MarkInterrupted
        | Commit::AnnounceShutdown
        | Commit::ConfirmInterrupted
        | Commit::DropBanners => once(Scenario::Stop),
        Commit::Outcome => once(Scenario::LateSend),
        Commit::Submit => once(Scenario::Terminal),
        Commit::Completions => once(Scenario::Background),
        // Accepted, started, ended.
        Commit::Process => Coverage::Sweep((1..=3).map(|nth| (Scenario::Background, nth)).collect()),
        Commit::Rewrite => Coverage::Sweep(vec![(Scenario::Photo, 1), (Scenario::Retry, 1)]),
        Commit::GiveUp => Coverage::Sweep(vec![(Scenario::RejectedTurn, 1), (Scenario::RejectedNotice, 2)]),
        Commit::ChatAlive => once(Scenario::DeadChat),
        Commit::Notification => once(Scenario::Send),
        Commit::Forward => once(Scenario::Forward),
        Commit::Outage => once(Scenario::Outage),
        Commit::CronBegin => Coverage::Sweep(vec![(Scenario::DueJob, 1), (Scenario::RunJob, 1)]),
        Commit::CronReport => once(Scenario::DueJob),
        Commit::CronJob => once(Scenario::AddJob),
        // Requested, answered.
        Commit::Question => Coverage::Sweep(vec![(Scenario::Approval, 1), (Scenario::Approval, 2)]),
        Commit::Run => once(Scenario::ApiRun),
        // Started, ended.
        Commit::Delegation => Coverage::Sweep(vec![(Scenario::Delegate, 1), (Scenario::Delegate, 2)]),
        Commit::Topic => once(Scenario::Topic),
        Commit::Operator => once(Scenario::OutboxRetry),
        Commit::Todo => once(Scenario::Todo),
        Commit::Sweep => once(Scenario::Housekeeping),
        Commit::Archive => once(Scenario::Archive),
        Commit::WriteProbe => once(Scenario::Watchdog),
        Commit::ClearSuspect => once(Scenario::Suspect),
        // Every commit in turn, until an exchange ends without a kill.
        Commit::Connector => Coverage::ByTest {
            source: include_str!("../relay/connector.rs"),
            test: "connector_killed_at_every_commit_keeps_exactly_once",
        },
    }
}

#[derive(Clone, Copy, Debug)]
struct KillCase {
    commit: Commit,
    side: Side,
    /// At the n-th commit of that name.
    nth: u32,
    scenario: Scenario,
    /// A power cut instead of a kill.
    cut: Option<UnsyncedData>,
}

/// Runs one case. The error says what went wrong.
fn run_case(case: KillCase) -> SweepResult {
    let KillCase { commit, side, nth, scenario, cut } = case;
    let mut fixture = set_up(scenario);
    let point = format!("{commit:?}:{side:?}:{nth}");
    fixture.kill_env.push(("PETASOS_DIE_AT", point.clone()));
    let home = fixture.program.home.path().to_owned();
    if cut.is_some() {
        power_cut::record(&home);
        fixture.kill_env.push(("LD_PRELOAD", power_cut::RECORDER.into()));
    }
    let recorded = power_cut::log_length(&home);
    provoke(&mut fixture, scenario, nth)?;
    if !fixture.program.wait_killed(kill_timeout(scenario)) {
        return Err(format!("{point} was never reached"));
    }
    let mut lost = power_cut::LossCounts::default();
    if let Some(left) = cut {
        if power_cut::log_length(&home) == recorded {
            return Err("nothing was recorded".into());
        }
        lost = power_cut::apply(&home, left);
    }
    fixture.program.telegram.clear_faults();
    fixture.kill_env.clear();
    check(&mut fixture, case).map_err(|error| format!("{error} ({lost:?})"))
}

fn kill_timeout(scenario: Scenario) -> Duration {
    // Housekeeping starts a minute after the process.
    if scenario == Scenario::Housekeeping { SOON + Duration::from_secs(60) } else { SOON }
}

fn set_up(scenario: Scenario) -> SweepFixture {
    match scenario {
        Scenario::Exchange(form) => SweepFixture::new(conversation::program(form)),
        Scenario::SendFails(failure) => SweepFixture::new(conversation::program(failure.form())),
        Scenario::Command
        | Scenario::Photo
        | Scenario::Retry
        | Scenario::Resume
        | Scenario::Stop
        | Scenario::LateSend => SweepFixture::new(conversation::program(AnswerForm::Plain)),
        Scenario::Suspect => SweepFixture::new(conversation::holding_suspects()),
        Scenario::RejectedTurn => rejected_message::set_up(&[rejected_message::TURN]),
        Scenario::RejectedNotice => {
            rejected_message::set_up(&[rejected_message::TURN, rejected_message::NOTICE])
        }
        Scenario::Background
        | Scenario::Approval
        | Scenario::Todo
        | Scenario::Delegate
        | Scenario::DueJob
        | Scenario::RunJob
        | Scenario::AddJob => agent_work::set_up(),
        Scenario::Terminal
        | Scenario::Send
        | Scenario::Topic
        | Scenario::OutboxRetry
        | Scenario::Housekeeping => SweepFixture::new(ProgramFixture::new()),
        Scenario::DeadChat => operator::with_dead_chat(),
        Scenario::Forward => links::with_webhook(),
        Scenario::Outage => operator::with_two_platforms(),
        Scenario::ApiRun => links::with_api(),
        Scenario::Watchdog => operator::with_watchdog(),
        Scenario::Archive => archive::with_old_conversation(),
        Scenario::OtherLink(link, form) => links::set_up(link, form),
    }
}

/// Starts the gateway that is killed, and runs the scenario.
fn provoke(fixture: &mut SweepFixture, scenario: Scenario, nth: u32) -> SweepResult {
    match scenario {
        Scenario::Exchange(_) | Scenario::SendFails(_) => conversation::exchange(fixture, scenario),
        Scenario::Command => conversation::command(fixture),
        Scenario::Photo => conversation::photo(fixture),
        Scenario::Retry => conversation::retry(fixture),
        Scenario::Resume => conversation::resume(fixture),
        Scenario::Suspect => conversation::suspect(fixture),
        Scenario::Stop => conversation::stop(fixture),
        Scenario::LateSend => conversation::late_send(fixture),
        Scenario::RejectedTurn | Scenario::RejectedNotice | Scenario::Watchdog => {
            conversation::exchange(fixture, Scenario::Exchange(AnswerForm::Plain))
        }
        Scenario::Background => agent_work::send_text(fixture, "run echo finished"),
        Scenario::Approval => agent_work::ask_for_approval(fixture, nth),
        Scenario::Todo => agent_work::send_text(fixture, "todo"),
        Scenario::Delegate => agent_work::send_text(fixture, "delegate: dig"),
        Scenario::DueJob => agent_work::due_job(fixture),
        Scenario::RunJob => agent_work::run_job(fixture),
        Scenario::AddJob => agent_work::add_job(fixture),
        Scenario::Terminal => operator::chat(fixture),
        Scenario::Send => operator::send(fixture, "telegram:101"),
        Scenario::DeadChat => operator::send(fixture, "telegram:101"),
        Scenario::Topic => operator::send_to_topic(fixture),
        Scenario::Forward => links::forward(fixture),
        Scenario::Outage => operator::lose_platform(fixture),
        Scenario::OutboxRetry => operator::retry_dead(fixture),
        Scenario::ApiRun => links::start_run(fixture),
        Scenario::Housekeeping => operator::wait_for_housekeeping(fixture),
        Scenario::Archive => archive::wait_for_retention(fixture),
        Scenario::OtherLink(link, form) => links::provoke(fixture, link, form),
    }
}

/// Starts the next process: every accepted message is answered or reported, and a repetition is marked.
fn check(fixture: &mut SweepFixture, case: KillCase) -> SweepResult {
    let KillCase { side, nth, .. } = case;
    match case.scenario {
        Scenario::Exchange(_)
        | Scenario::SendFails(_)
        | Scenario::Command
        | Scenario::Resume
        | Scenario::Suspect
        | Scenario::Stop
        | Scenario::LateSend
        | Scenario::Photo => conversation::check(fixture, case.scenario),
        Scenario::Retry => conversation::check_retry(fixture),
        Scenario::RejectedTurn | Scenario::RejectedNotice => {
            rejected_message::check(fixture, case.scenario, side)
        }
        Scenario::Background => agent_work::check_background(fixture, case.commit, side, nth),
        Scenario::Approval => agent_work::check_approval(fixture, side, nth),
        Scenario::Todo => agent_work::check_todo(fixture),
        Scenario::Delegate => agent_work::check_delegation(fixture, side, nth),
        Scenario::DueJob => agent_work::check_job(fixture),
        Scenario::RunJob | Scenario::AddJob => agent_work::check_asked_job(fixture, case.scenario, side),
        Scenario::Terminal => operator::check_chat(fixture),
        Scenario::Send | Scenario::DeadChat => operator::check_sent(fixture, side),
        Scenario::Topic => operator::check_topic(fixture, side),
        Scenario::Forward => links::check_forwarded(fixture),
        Scenario::Outage => operator::check_outage(fixture),
        Scenario::OutboxRetry => operator::check_retried(fixture, side),
        Scenario::ApiRun => links::check_run(fixture),
        Scenario::Watchdog => conversation::check(fixture, Scenario::Exchange(AnswerForm::Plain)),
        Scenario::Housekeeping => operator::check_housekeeping(fixture),
        Scenario::Archive => archive::check(fixture, side),
        Scenario::OtherLink(link, form) => links::check(fixture, link, form),
    }
}

#[track_caller]
fn run_all(mut cases: Vec<KillCase>) {
    assert!(!cases.is_empty());
    // The slowest cases start first.
    cases.sort_by_key(|case| kill_timeout(case.scenario));
    let remaining = Mutex::new(cases);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let Some(case) = remaining.lock().expect("no panic").pop() else { return };
                    let result = catch_unwind(AssertUnwindSafe(|| run_case(case)));
                    let result = result.unwrap_or_else(|_| Err("the case panicked, see above".into()));
                    if let Err(error) = result {
                        failed.lock().expect("no panic").push(format!("{case:?}: {error}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic");
    assert!(failed.is_empty(), "{} cases:\n{}", failed.len(), failed.join("\n"));
}

/// Every row of the table, or those whose debug output contains `PETASOS_SWEEP_ONLY`.
fn kill_cases(visits: impl Fn(Commit) -> Vec<(Scenario, u32)>) -> Vec<KillCase> {
    let mut all = Vec::new();
    for commit in Commit::ALL {
        for (scenario, nth) in visits(commit) {
            all.extend(SIDES.map(|side| KillCase { commit, side, nth, scenario, cut: None }));
        }
    }
    if let Ok(only) = std::env::var("PETASOS_SWEEP_ONLY") {
        all.retain(|case| format!("{case:?}").contains(&only));
    }
    all
}

fn swept_scenarios(commit: Commit) -> Vec<(Scenario, u32)> {
    match visits(commit) {
        Coverage::Sweep(visits) => visits,
        Coverage::ByTest { .. } => vec![],
    }
}

fn is_full_sweep() -> bool {
    std::env::var_os("PETASOS_SWEEP").is_some_and(|it| it == "full")
}

#[test]
fn named_tests_exist() {
    for commit in Commit::ALL {
        match visits(commit) {
            Coverage::Sweep(visits) => assert!(!visits.is_empty(), "{commit:?} has no case"),
            Coverage::ByTest { source, test } => {
                assert!(source.contains(&format!("#[test]\nfn {test}()")), "{commit:?}: there is no {test}");
            }
        }
    }
}

#[test]
fn kill_at_every_commit_loses_and_repeats_nothing() {
    run_all(kill_cases(swept_scenarios));
}

#[test]
fn kill_at_every_commit_of_other_links_loses_nothing() {
    run_all(kill_cases(|commit| links::visits(commit, is_full_sweep())));
}

#[test]
fn power_cut_at_every_commit_keeps_acknowledged_messages() {
    let cuts = [UnsyncedData::Dropped, UnsyncedData::Partial(1), UnsyncedData::Partial(2)];
    if is_full_sweep() {
        let all = kill_cases(|commit| [swept_scenarios(commit), links::visits(commit, true)].concat());
        let each = |case: KillCase| cuts.map(|cut| KillCase { cut: Some(cut), ..case });
        return run_all(all.into_iter().flat_map(each).collect());
    }
    let chosen = |case: &KillCase| matches!(case.scenario, Scenario::Exchange(_) | Scenario::Archive);
    let all = kill_cases(swept_scenarios).into_iter().filter(chosen);
    // Each commit with another survival rule, all of them with every form.
    run_all(all.enumerate().map(|(at, case)| KillCase { cut: Some(cuts[at % 3]), ..case }).collect());
}

#[test]
fn database_is_sound_without_unsynced_writes() {
    let mut program = conversation::program(AnswerForm::Plain);
    let home = program.home.path().to_owned();
    power_cut::record(&home);
    let before = power_cut::log_length(&home);
    program.launch_with(&[("LD_PRELOAD", power_cut::RECORDER)]);
    program.telegram.push_text(CHAT, CHAT, QUESTION);
    program.wait_messages(CHAT, 1);
    program.kill();
    let log = std::fs::read(home.join(power_cut::LOG)).expect("a log of file operations");
    assert!(log.len() as u64 > before, "nothing was recorded");
    for seed in 0..8 {
        let left = if seed == 0 { UnsyncedData::Dropped } else { UnsyncedData::Partial(seed) };
        std::fs::write(home.join(power_cut::LOG), &log).expect("written");
        let lost = power_cut::apply(&home, left);
        assert!(lost.syncs > 3, "{lost:?}");
        let store = petasos_store::Store::open(program.database()).expect("a sound database");
        let accepted = store.newest().expect("readable");
        assert_eq!(accepted.0, 1, "the acknowledged message is lost with {left:?}, {lost:?}");
        drop(store);
    }
}
