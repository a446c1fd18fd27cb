//! Background work: jobs and their runs, processes, and completions.

use std::time::Duration;

use petasos_core::cron::{Job, JobId, NewJob};
use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::person::Person;
use petasos_core::transcript::{Message, Role};
use petasos_core::{Millis, SessionId};
use petasos_store::{CompletionState, OccurrenceState, ProcessEnd, ProcessRow};

use crate::fixture::{Home, NOW, finish, inbound, key, later, session, source, start, turn};

const DAY: u64 = 86_400;
const HOUR: Duration = Duration::from_secs(3600);

fn job(id: u8) -> Job {
    let new = NewJob { schedule: "every 1h".into(), prompt: "look".into(), ..NewJob::default() };
    let zone = jiff::tz::TimeZone::UTC;
    Job::new(JobId::from_bytes([id; 6]), new, Person::owner(), Some(source("7")), &zone, NOW).unwrap()
}

#[test]
fn finds_the_next_due_job_and_skips_paused_ones() {
    let mut home = Home::new();
    home.write(|tx| {
        tx.put_job(&job(1), Some(later(60)))?;
        tx.put_job(&job(2), Some(later(30)))?;
        tx.put_job(&job(3), None)
    });
    assert_eq!(home.store.next_job_due().unwrap(), Some(later(30)));
    let due =
        |seconds| home.store.jobs_due(later(seconds)).unwrap().into_iter().map(|(job, at)| (job.id, at));
    assert_eq!(due(29).count(), 0);
    assert_eq!(due(30).collect::<Vec<_>>(), [(job(2).id, later(30))]);
    assert_eq!(due(90).count(), 2);
    assert_eq!(home.store.jobs().unwrap().len(), 3);
    home.write(|tx| tx.put_job(&job(2), None));
    assert_eq!(home.store.next_job_due().unwrap(), Some(later(60)));
    assert!(home.write(|tx| tx.delete_job(&job(1).id)) && !home.write(|tx| tx.delete_job(&job(1).id)));
    assert_eq!(home.store.next_job_due().unwrap(), None);
}

#[test]
fn a_due_time_runs_once_and_ends_with_its_message() {
    let mut home = Home::new();
    let accept = |home: &mut Home| {
        home.write(|tx| {
            let accepted = tx.accept(&inbound("7", "cron:1:0"), &key("7"), NOW)?;
            Ok((accepted.id(), tx.accept_occurrence(&job(1), NOW, Some(accepted.id()), 2, NOW)?))
        })
    };
    let (inbox, new) = accept(&mut home);
    assert!(new);
    assert_eq!(accept(&mut home), (inbox, false), "the same due time again");
    let mut home = home.crash();
    let state = |home: &Home| home.store.occurrences(&job(1).id, 10).unwrap().pop().unwrap().state;
    assert_eq!(state(&home), OccurrenceState::Accepted);
    assert_eq!(home.store.unreported_occurrences().unwrap(), []);
    assert_eq!(home.store.unreported_occurrence(&job(1).id, NOW).unwrap(), None);
    let turn = turn("7", &[inbox]);
    home.apply(&start(&turn)).unwrap();
    let append = |message| Write::Append { session: session("s1"), message };
    home.apply(&[append(Message::assistant("first", NOW)), append(Message::assistant("last", NOW))]).unwrap();
    home.apply(&finish("7", &turn, "last")).unwrap();
    let mut home = home.crash();
    assert_eq!(home.store.unreported_occurrences().unwrap(), [(job(1).id, NOW)]);
    let occurrence = home.store.unreported_occurrence(&job(1).id, NOW).unwrap().unwrap();
    assert_eq!((occurrence.skipped, occurrence.outcome), (2, Some(MessageOutcome::Answered)));
    assert_eq!(home.store.last_message_text(inbox, Role::Assistant).unwrap().as_deref(), Some("last"));
    assert!(home.write(|tx| tx.occurrence_delivered(&job(1).id, NOW, NOW)));
    assert!(!home.write(|tx| tx.occurrence_delivered(&job(1).id, NOW, NOW)), "it is reported once");
    assert_eq!(state(&home), OccurrenceState::Delivered);
    assert_eq!(home.store.unreported_occurrence(&job(1).id, NOW).unwrap(), None);
    let old = NOW.after(Duration::from_secs(40 * 86400));
    home.write(|tx| tx.prune(old));
    assert_eq!(home.store.occurrences(&job(1).id, 10).unwrap(), []);
}

#[test]
fn missed_run_is_reported_but_never_runs() {
    let mut home = Home::new();
    assert!(home.write(|tx| tx.accept_occurrence(&job(1), NOW, None, 1, NOW)));
    let earlier = Millis(NOW.0 - 1);
    assert!(home.write(|tx| tx.accept_occurrence(&job(2), earlier, None, 1, NOW)));
    assert_eq!(home.store.unreported_occurrences().unwrap(), [(job(2).id, earlier), (job(1).id, NOW)]);
    let occurrence = home.store.unreported_occurrence(&job(1).id, NOW).unwrap().unwrap();
    assert_eq!((occurrence.inbox, occurrence.outcome), (None, None));
}

#[test]
fn completion_is_delivered_once_and_consumed_with_its_message() {
    let mut home = Home::new();
    let origin = inbound("7", "1").source;
    let report = |home: &mut Home| {
        home.write(|tx| {
            tx.record_completion("d1", (&key("7"), None), &origin, "completion", "{\"exit\":0}", NOW)
        })
    };
    let id = report(&mut home);
    assert_eq!(report(&mut home), id);
    assert_eq!(home.store.queued_completions().unwrap()[0].origin, origin);
    let message = inbound("7", "completion:d1");
    let accepted = home.write(|tx| {
        let accepted = tx.accept(&message, &key("7"), NOW)?;
        assert!(tx.completion_delivered(id, accepted.id())?);
        Ok(accepted.id())
    });
    let mut home = home.reopen();
    assert_eq!(home.store.queued_completions().unwrap(), []);
    let waiting = home.store.completions(&key("7")).unwrap();
    assert_eq!((waiting.len(), waiting[0].state), (1, CompletionState::Delivered));
    assert!(!home.write(|tx| tx.completion_delivered(id, accepted)), "once");
    home.write(|tx| tx.prune(later(400 * DAY)));
    assert_eq!(home.store.completions(&key("7")).unwrap().len(), 1, "not used, not forgotten");
    assert!(!home.store.is_consumed_completion(accepted).unwrap());
    let settle = Write::SettleInbox { inbox: vec![accepted], outcome: MessageOutcome::Answered, at: NOW };
    home.write(|tx| tx.apply(std::slice::from_ref(&settle), NOW));
    assert_eq!(home.store.completions(&key("7")).unwrap(), []);
    assert_eq!(report(&mut home), id, "a late second report changes nothing");
    assert_eq!(home.store.queued_completions().unwrap(), []);
}

#[test]
fn undeliverable_completion_is_listed_then_pruned() {
    let mut home = Home::new();
    let origin = inbound("7", "1").source;
    let session = SessionId("s1".into());
    let id = home.write(|tx| {
        let to = (&key("7"), Some(&session));
        tx.record_completion("waits", to, &origin, "completion", "{}", NOW)?;
        tx.record_completion("gone", to, &origin, "completion", "{}", NOW)
    });
    assert!(home.write(|tx| tx.completion_undeliverable(id, "it is over", NOW)));
    assert!(!home.write(|tx| tx.completion_undeliverable(id, "again", NOW)), "once");
    let mut home = home.reopen();
    let untold = home.store.unreported_completions(10).unwrap();
    let about: Vec<_> = untold.iter().map(|it| (it.dispatch.as_str(), it.reason.as_deref())).collect();
    assert_eq!(about, [("gone", Some("it is over")), ("waits", None)]);
    assert_eq!(untold[0].session, Some(session));
    assert_eq!(home.store.unreported_completions(1).unwrap().len(), 1);
    let queued = home.store.queued_completions().unwrap();
    assert_eq!((queued.len(), queued[0].dispatch.as_str()), (1, "waits"));
    home.write(|tx| tx.prune(later(400 * DAY)));
    let left = home.store.unreported_completions(10).unwrap();
    assert_eq!((left.len(), left[0].dispatch.as_str()), (1, "waits"));
}

#[test]
fn completion_can_be_consumed_without_its_message() {
    let mut home = Home::new();
    let origin = inbound("7", "1").source;
    let (early, late) = home.write(|tx| {
        let report = |dispatch: &str| {
            tx.record_completion(dispatch, (&key("7"), None), &origin, "completion", "{}", NOW)
        };
        Ok((report("early")?, report("late")?))
    });
    assert!(home.write(|tx| tx.completion_consumed("early", NOW)));
    assert!(!home.write(|tx| tx.completion_consumed("early", NOW)), "once");
    assert!(!home.write(|tx| tx.completion_consumed("unknown", NOW)));
    let inbox = home.write(|tx| {
        let accepted = tx.accept(&inbound("7", "completion:late"), &key("7"), NOW)?.id();
        assert!(!tx.completion_delivered(early, accepted)?, "it is consumed");
        assert!(tx.completion_delivered(late, accepted)?);
        Ok(accepted)
    });
    assert!(home.write(|tx| tx.completion_consumed("late", NOW)));
    assert!(home.store.is_consumed_completion(inbox).unwrap());
}

#[test]
fn process_is_recorded_before_its_start_and_ends_once() {
    let mut home = Home::new();
    let row = ProcessRow {
        id: "proc_1".into(),
        key: key("7"),
        session: SessionId("s".into()),
        origin: inbound("7", "1").source,
        command: "make".into(),
        cwd: "/".into(),
        notification: "\"completion\"".into(),
        started_at: NOW,
        pid: None,
        born: None,
        end: None,
    };
    home.write(|tx| tx.begin_process(&row));
    assert_eq!(home.store.processes(later(DAY)).unwrap(), std::slice::from_ref(&row));
    home.write(|tx| tx.process_started("proc_1", 77, Some("boot:1")));
    home.write(|tx| tx.put_process_notification("proc_1", "\"nothing\""));
    let mut home = home.reopen();
    let known = home.store.processes(later(DAY)).unwrap();
    assert_eq!((known[0].pid, known[0].born.as_deref()), (Some(77), Some("boot:1")));
    assert_eq!(known[0].notification, "\"nothing\"");
    let live = |home: &Home, since| home.store.has_live_process(&key("7"), since).unwrap();
    assert!(
        live(&home, NOW.before(HOUR))
            && !live(&home, NOW)
            && !home.store.has_live_process(&key("8"), Millis(0)).unwrap()
    );
    let end =
        |code| ProcessEnd { exit_code: code, reason: "exited".into(), ended_by: String::new(), at: later(5) };
    assert!(home.write(|tx| tx.process_ended("proc_1", &end(Some(-15)))));
    assert!(!home.write(|tx| tx.process_ended("proc_1", &end(None))));
    assert_eq!(home.store.processes(NOW).unwrap()[0].end, Some(end(Some(-15))));
    assert_eq!(home.store.processes(later(5)).unwrap(), []);
    assert!(!live(&home, Millis(0)));
    home.write(|tx| tx.prune(later(8 * DAY)));
    assert_eq!(home.store.processes(NOW).unwrap(), []);
}
