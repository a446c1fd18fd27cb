//! Scheduled jobs in a full gateway: one run per due time, reported to every destination.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use petasos_core::access::Access;
use petasos_core::cron::{Job, JobId, JobUpdate, NewJob};
use petasos_core::journal::Write;
use petasos_core::lifecycle::marker::Marker;
use petasos_core::message::ChatType;
use petasos_core::person::Person;
use petasos_core::target::ChatAddress;
use petasos_core::transcript::Role;
use petasos_core::{SessionKey, Source};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use petasos_gateway::cron::ScheduledJob;
use petasos_gateway::home::drain;
use petasos_gateway::{HomeChannel, clock};
use petasos_store::OccurrenceState;
use support::{GatewayFixture, SOON, eventually, telegram, web};

fn world() -> GatewayFixture {
    let world = GatewayFixture::new(|_| {});
    world.model.respond(|request| Answer::text(format!("ran: {}", last_line(&request.last_user))));
    world
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().to_owned()
}

fn chat(id: &str) -> Source {
    let mut source = Source::new(telegram(), ChatType::Dm, id);
    source.user_id = Some(id.into());
    source
}

fn new(schedule: &str, prompt: &str) -> NewJob {
    NewJob {
        name: Some("Look".into()),
        schedule: schedule.into(),
        prompt: prompt.into(),
        ..NewJob::default()
    }
}

impl GatewayFixture {
    fn add(&self, new: NewJob, origin: Source) -> ScheduledJob {
        self.runtime.block_on(self.handle().job_create(new, Some(origin))).unwrap()
    }

    fn run_now(&self, id: &JobId) {
        self.runtime.block_on(self.handle().job_run(id)).unwrap();
    }

    /// Waits until this many runs of the job are reported.
    #[track_caller]
    fn wait_for_reports(&self, id: &JobId, runs: usize) {
        eventually("told", || {
            let found = self.read(|reader| reader.occurrences(id, 100));
            let told = found.iter().filter(|run| run.state == OccurrenceState::Delivered).count();
            assert!(found.len() <= runs, "{found:?}");
            (told == runs).then_some(())
        });
        self.wait_until_delivered();
    }
}

/// Stores a job that was due while no gateway ran.
fn plant_missed_job(world: &GatewayFixture, schedule: &str, ago: Duration) -> JobId {
    let now = clock::now();
    let begun = now.before(ago);
    let id = JobId::from_bytes([7; 6]);
    let zone = jiff::tz::TimeZone::UTC;
    let new = new(schedule, "planted");
    let job = Job::new(id.clone(), new, Person::owner(), Some(chat("7")), &zone, begun).unwrap();
    let next = job.next(begun, &zone);
    assert!(next.is_some_and(|next| next < now));
    world.write(|tx| tx.put_job(&job, next));
    id
}

#[test]
fn runs_job_once_and_reports_to_its_origin() {
    let world = world();
    let job = world.add(new("1s", "say hello"), chat("7"));
    assert!(job.next.is_some());
    world.expect_messages(7, &["⏰ Look\n\nran: say hello"]);
    world.wait_for_reports(&job.job.id, 1);
    assert_eq!(world.read(|reader| reader.jobs()), [], "it is over and gone");
    let requests = world.model.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].last_user.contains("No user is present to answer questions"));
    // The chat's own session is unchanged.
    assert_eq!(world.transcript(7), []);
}

#[test]
fn each_run_gets_its_own_transcript() {
    let world = world();
    let job = world.add(new("every 5h", "again"), chat("7")).job.id;
    world.run_now(&job);
    world.wait_for_reports(&job, 1);
    world.run_now(&job);
    world.wait_for_reports(&job, 2);
    let requests = world.model.requests();
    let asked = |at: usize| requests[at].body()["messages"].as_array().unwrap().len();
    assert_eq!((requests.len(), asked(0)), (2, asked(1)), "the second run knows nothing of the first");
    let sessions =
        world.read(|reader| reader.sessions(Some(&SessionKey(format!("agent:main:cron:dm:{job}"))), 10));
    assert_eq!(sessions.len(), 2);
}

#[test]
fn suppresses_silence_and_repeated_failures() {
    let world = world();
    let job = world.add(new("every 5h", "look"), chat("7")).job.id;
    let run = |count: usize, answer: Answer| {
        world.model.respond(move |_| answer.clone());
        world.run_now(&job);
        world.wait_for_reports(&job, count);
        world.read(|reader| reader.job(&job)).unwrap().0
    };
    let quiet = run(1, Answer::text("[SILENT]"));
    assert_eq!(quiet.last.unwrap().status, "silent");
    assert_eq!(world.telegram.texts(7), [""; 0]);
    let failed = run(2, Answer::status(401, "no"));
    assert_eq!((failed.last.unwrap().status.as_str(), failed.failures), ("error", 1));
    assert_eq!(world.count(7, "⚠️ Look failed."), 1);
    run(3, Answer::status(401, "no"));
    assert_eq!(world.telegram.texts(7).len(), 1, "the same news again");
    let well = run(4, Answer::text("all is well"));
    assert_eq!((well.last.unwrap().status.as_str(), well.failures), ("ok", 0));
    world.expect_last_message(7, "(The job had failed 2 times in a row before.)");
}

#[test]
fn missed_times_run_once_and_report_skipped_count() {
    let mut world = world();
    world.stop();
    let job = plant_missed_job(&world, "every 1h", Duration::from_secs(3 * 3600 + 600));
    world.start();
    world.expect_messages(
        7,
        &["⏰ Look\n\nran: planted\n\n(2 earlier runs were skipped: the gateway was not running.)"],
    );
    world.wait_for_reports(&job, 1);
    let next = world.read(|reader| reader.job(&job)).unwrap().1.unwrap();
    assert!(next > clock::now(), "and goes on as it was");
}

#[test]
fn reports_times_missed_for_too_long_without_run() {
    let mut world = world();
    world.stop();
    let job = plant_missed_job(&world, "1h", Duration::from_secs(48 * 3600));
    world.start();
    world.expect_last_message(7, "⏰ Look was not run, because the gateway was not running at its time (");
    world.wait_for_reports(&job, 1);
    assert_eq!(world.model.requests().len(), 0);
    assert_eq!(world.read(|reader| reader.jobs()), []);
}

#[test]
fn crash_at_any_point_leaves_exactly_one_run() {
    for point in [Point::Before, Point::AfterDelta(0)] {
        // Strangers are not authorised; jobs are exempt.
        let users = vec!["7".to_owned(), "8".to_owned()];
        let mut world = GatewayFixture::with(|setup| setup.access = Access { users, ..Access::default() });
        let gate = Arc::new(Gate::new());
        let held = gate.clone();
        world.model.respond(move |_| Answer::text("done").gate(point, &held));
        let job = world.add(new("every 5h", "work"), chat("7")).job.id;
        world.run_now(&job);
        assert!(world.model.wait_until(SOON, |desk| (desk.requests().count() == 1).then_some(())).is_some());
        world.crash();
        gate.open();
        world.start();
        world.expect_last_message(7, "⏰ Look\n\ndone");
        world.wait_for_reports(&job, 1);
        world.crash();
        world.start();
        let other = world.add(new("1s", "other"), chat("8")).job.id;
        world.wait_for_reports(&other, 1);
        assert_eq!((world.count(7, "done"), world.count(8, "done")), (1, 1), "{point:?}");
        world.wait_for_reports(&job, 1);
    }
}

#[test]
fn saves_report_in_file_if_chat_is_dead() {
    let mut world = GatewayFixture::idle(|_| {});
    world.model.respond(|_| Answer::text("ran: work"));
    let reason = "Forbidden: bot was blocked by the user".to_owned();
    let dead = Write::MarkChatDead { platform: telegram(), chat_id: "7".into(), reason, at: clock::now() };
    world.write(|tx| tx.apply(&[dead], clock::now()));
    world.start();
    let job = world.add(new("every 5h", "work"), chat("7")).job.id;
    world.run_now(&job);
    world.wait_for_reports(&job, 1);
    let (job, _) = world.read(|reader| reader.job(&job)).unwrap();
    let last = job.last.unwrap();
    assert!(
        last.delivery_error.as_deref().is_some_and(|why| why.contains("cannot receive messages")),
        "{last:?}"
    );
    let kept = std::fs::read_dir(world.home.path().join("cron/output")).unwrap();
    assert_eq!(kept.count(), 1, "the answer is in a file");
    assert_eq!(world.count(7, "ran: work"), 0);
}

#[test]
fn due_job_waits_for_the_end_of_a_drain() {
    let world = world();
    let marker: Marker =
        world.runtime.block_on(world.handle().drain(drain::DrainRequest::default())).unwrap();
    world.until("draining", |situation| situation.drain.is_some().then_some(()));
    let job = world.add(new("1s", "patience"), chat("7")).job.id;
    // Another run is already in the inbox, as if the drain had started in between.
    world.run_now(&job);
    eventually("due", || {
        let (_, next) = world.read(|reader| reader.job(&job))?;
        next.is_some_and(|next| next < clock::now()).then_some(())
    });
    let queued = world.read(|reader| reader.backlog()).queued;
    let asked = world.model.requests().len();
    assert_eq!((queued, asked), (1, 0), "{marker:?}");
    assert!(world.runtime.block_on(world.handle().cancel_drain()).unwrap());
    world.wait_for_reports(&job, 2);
    assert_eq!(world.count(7, "ran: patience"), 2);
}

#[test]
fn page_gets_report_after_the_running_turn() {
    let world = world();
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    world.model.respond(move |request| match request.last_user.as_str() {
        "think" => Answer::text("thought").gate(Point::Before, &held),
        said => Answer::text(format!("ran: {}", last_line(said))),
    });
    let page = world.send_web("main", "think");
    assert!(world.model.wait_until(SOON, |desk| (desk.requests().count() == 1).then_some(())).is_some());
    let job = world.add(new("every 5h", "remind me"), web("main", "").source).job.id;
    world.run_now(&job);
    eventually("ran", || {
        let runs = world.read(|reader| reader.occurrences(&job, 1));
        runs.iter().any(|run| run.state == OccurrenceState::Ran).then_some(())
    });
    gate.open();
    world.wait_for_reports(&job, 1);
    let rows = world.read(|reader| {
        let entry = reader.entry(&page)?.unwrap();
        reader.history(&entry.session_id, 10)
    });
    let said: Vec<_> = rows.into_iter().map(|row| (row.message.role, row.message.content)).collect();
    let want =
        [(Role::User, "think"), (Role::Assistant, "thought"), (Role::Assistant, "⏰ Look\n\nran: remind me")];
    assert_eq!(said, want.map(|(role, text)| (role, text.to_owned())));
    let view = world.runtime.block_on(world.handle().view(&page)).unwrap();
    eventually("seen", || {
        (view.borrow().rows
            == world.read(|reader| reader.last_row(&reader.entry(&page)?.unwrap().session_id)))
        .then_some(())
    });
}

#[test]
fn running_turn_delays_only_reports_for_its_chat() {
    let world = world();
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    world.model.respond(move |request| match request.last_user.as_str() {
        "think" => Answer::text("thought").gate(Point::Before, &held),
        said if said.contains("fails") => Answer::status(401, "no"),
        said => Answer::text(format!("ran: {}", last_line(said))),
    });
    let page = world.send_web("main", "think");
    assert!(gate.wait_for(1, SOON), "no model call is open");
    let remind = |prompt: &str| world.add(new("every 5h", prompt), web("main", "").source).job.id;
    let waiting: Vec<JobId> = (0..16).map(|_| remind("remind me")).collect();
    let failing = remind("this fails");
    for job in waiting.iter().chain([&failing, &failing]) {
        world.run_now(job);
    }
    let ran = |job: &JobId| {
        world
            .read(|reader| reader.occurrences(job, 5))
            .iter()
            .filter(|it| it.state == OccurrenceState::Ran)
            .count()
    };
    eventually("ran", || (waiting.iter().all(|job| ran(job) == 1) && ran(&failing) == 2).then_some(()));
    // Queued behind all of these, for another chat.
    let other = world.add(new("every 5h", "not for the page"), chat("7")).job.id;
    world.run_now(&other);
    world.wait_for_reports(&other, 1);
    assert_eq!(world.count(7, "ran: not for the page"), 1);
    assert!(waiting.iter().all(|job| ran(job) == 1), "the page is still busy");
    gate.open();
    for job in &waiting {
        world.wait_for_reports(job, 1);
    }
    world.wait_for_reports(&failing, 2);
    let rows = world.read(|reader| reader.history(&reader.entry(&page)?.unwrap().session_id, 100));
    let said = |what: &str| rows.iter().filter(|row| row.message.content.contains(what)).count();
    assert_eq!((said("ran: remind me"), said("⚠️ Look failed.")), (16, 1), "the same failure is told once");
}

#[test]
fn simultaneous_run_requests_each_get_a_run() {
    let world = world();
    let job = world.add(new("every 5h", "now"), chat("7")).job.id;
    let asked = (0..20).map(|_| world.handle().job_run(&job));
    let answers = world.runtime.block_on(futures_util::future::join_all(asked));
    assert!(answers.iter().all(Result::is_ok));
    world.wait_for_reports(&job, 20);
    assert_eq!(world.count(7, "ran: now"), 20);
}

#[test]
fn reports_once_per_target_and_to_file_if_none_works() {
    let place = ChatAddress { platform: telegram(), chat_id: "9".into(), thread_id: None };
    let world = GatewayFixture::with(|setup| {
        setup.lifetime.home_channels = vec![HomeChannel {
            platform: place.platform,
            chat_id: place.chat_id.clone(),
            thread_id: None,
            name: "Home".into(),
        }];
    });
    world.model.respond(|_| Answer::text("news"));
    let to = |deliver: &str| NewJob { deliver: Some(deliver.into()), ..new("every 5h", "x") };
    let many = world.add(to("origin, telegram:8, all, telegram:7, discord:5"), chat("7")).job.id;
    world.run_now(&many);
    world.wait_for_reports(&many, 1);
    for chat in [7, 8, 9] {
        assert_eq!(world.telegram.texts(chat), ["⏰ Look\n\nnews"], "{chat}");
    }
    let last = world.read(|reader| reader.job(&many)).unwrap().0.last.unwrap();
    assert!(last.delivery_error.unwrap().contains("discord:5"));
    let nowhere = world.add(to("discord:5"), chat("7")).job.id;
    world.run_now(&nowhere);
    world.wait_for_reports(&nowhere, 1);
    let files = std::fs::read_dir(world.home().join("cron/output").join(nowhere.as_str())).unwrap();
    let page = std::fs::read_to_string(files.flatten().next().unwrap().path()).unwrap();
    assert!(page.contains("# Look") && page.ends_with("⏰ Look\n\nnews\n"), "{page}");
}

#[test]
fn pauses_changes_counts_and_removes_jobs() {
    let world = world();
    let handle = world.handle();
    let job = world.add(NewJob { repeat: Some(2), ..new("every 5h", "x") }, chat("7")).job.id;
    let change = |change: JobUpdate| world.runtime.block_on(handle.job_change(&job, change));
    let paused = change(JobUpdate { enabled: Some(false), ..JobUpdate::default() }).unwrap();
    assert_eq!((paused.next, paused.job.enabled), (None, false));
    let resumed =
        change(JobUpdate { enabled: Some(true), name: Some("Other".into()), ..JobUpdate::default() })
            .unwrap();
    assert!(resumed.next.is_some_and(|next| next > clock::now()) && resumed.job.name == "Other");
    assert!(
        change(JobUpdate { schedule: Some("whenever".into()), ..JobUpdate::default() })
            .unwrap_err()
            .to_string()
            .contains("use 30m")
    );
    world.run_now(&job);
    world.wait_for_reports(&job, 1);
    assert_eq!(world.runtime.block_on(handle.jobs()).unwrap().len(), 1);
    world.run_now(&job);
    world.wait_for_reports(&job, 2);
    assert_eq!(world.runtime.block_on(handle.jobs()).unwrap(), [], "twice was asked for");
    let gone = world.runtime.block_on(handle.job_remove(&job)).unwrap_err();
    assert_eq!(gone.to_string(), "there is no such job");
}
