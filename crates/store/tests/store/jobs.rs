//! Jobs and their runs.

use std::time::Duration;

use petasos_core::cron::{Job, JobId, NewJob};
use petasos_core::journal::{Outcome, Write};
use petasos_core::person::Person;
use petasos_core::transcript::{Message, Role};
use petasos_core::{Millis, SessionKey};
use petasos_store::RunState;

use crate::fixture::{Home, NOW, finish, inbound, key, later, session, source, start, turn};

fn job(id: u8) -> Job {
    let new = NewJob { schedule: "every 1h".into(), prompt: "look".into(), ..NewJob::default() };
    let zone = jiff::tz::TimeZone::UTC;
    Job::new(JobId::from_bytes([id; 6]), new, Person::owner(), Some(source("7")), &zone, NOW).unwrap()
}

#[test]
fn the_next_due_job_is_found_and_one_that_rests_is_not() {
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
    assert_eq!(state(&home), RunState::Accepted);
    assert_eq!(home.store.runs_to_tell().unwrap(), []);
    assert_eq!(home.store.run_to_tell(&job(1).id, NOW).unwrap(), None);
    let turn = turn("7", &[inbox]);
    home.apply(&start(&turn)).unwrap();
    let append = |message| Write::Append { session: session("s1"), message };
    home.apply(&[append(Message::assistant("first", NOW)), append(Message::assistant("last", NOW))]).unwrap();
    home.apply(&finish("7", &turn, "last")).unwrap();
    let mut home = home.crash();
    assert_eq!(home.store.runs_to_tell().unwrap(), [(job(1).id, NOW)]);
    let told = home.store.run_to_tell(&job(1).id, NOW).unwrap().unwrap();
    assert_eq!((told.skipped, told.outcome), (2, Some(Outcome::Answered)));
    assert_eq!(home.store.last_words(inbox, Role::Assistant).unwrap().as_deref(), Some("last"));
    assert!(home.write(|tx| tx.occurrence_delivered(&job(1).id, NOW, NOW)));
    assert!(!home.write(|tx| tx.occurrence_delivered(&job(1).id, NOW, NOW)), "nobody tells it twice");
    assert_eq!(state(&home), RunState::Delivered);
    assert_eq!(home.store.run_to_tell(&job(1).id, NOW).unwrap(), None);
    let old = NOW.after(Duration::from_secs(40 * 86400));
    home.write(|tx| tx.prune(old));
    assert_eq!(home.store.occurrences(&job(1).id, 10).unwrap(), []);
}

#[test]
fn a_missed_run_is_told_and_never_runs() {
    let mut home = Home::new();
    assert!(home.write(|tx| tx.accept_occurrence(&job(1), NOW, None, 1, NOW)));
    let earlier = Millis(NOW.0 - 1);
    assert!(home.write(|tx| tx.accept_occurrence(&job(2), earlier, None, 1, NOW)));
    assert_eq!(home.store.runs_to_tell().unwrap(), [(job(2).id, earlier), (job(1).id, NOW)]);
    let told = home.store.run_to_tell(&job(1).id, NOW).unwrap().unwrap();
    assert_eq!((told.inbox, told.outcome), (None, None));
}

#[test]
fn what_one_person_said_is_not_found_by_another() {
    let mut home = Home::new();
    let say = |home: &mut Home, name: &str, user: &str| {
        let (id, mut from) = (session(name), source(user));
        from.user_id = Some(user.into());
        home.write(|tx| {
            tx.create_session(&id, &key(user), Some(&from), None, NOW)?;
            tx.append(&id, &Message::user(format!("the needle of {user}"), NOW))?;
            tx.append(&id, &Message::assistant("北京见面", NOW))
        });
        Person::of(&from, &key(user))
    };
    let (a, b) = (say(&mut home, "s1", "7"), say(&mut home, "s2", "8"));
    let found = |person: &Person, query: &str| {
        let hits = home.store.search_of(person, query, 10).unwrap();
        hits.into_iter().map(|hit| hit.session.0).collect::<Vec<_>>()
    };
    for query in ["needle", "北京"] {
        assert_eq!(found(&a, query), ["s1"], "{query}");
        assert_eq!(found(&b, query), ["s2"], "{query}");
        assert_eq!(found(&Person::owner(), query), [""; 0], "{query}");
    }
    let stranger = Person::of(&source("9"), &SessionKey("k".into()));
    assert_eq!(found(&stranger, "needle"), [""; 0]);
    assert_eq!(found(&a, "needle of 8"), [""; 0]);
    let row = home.store.search_of(&a, "needle", 1).unwrap()[0].row;
    let (of, rows) = home.store.rows_around(&a, row, 5).unwrap().unwrap();
    assert_eq!((of, rows.len()), (session("s1"), 2));
    assert_eq!(home.store.rows_around(&b, row, 5).unwrap(), None, "not by its number either");
}

#[test]
fn a_list_of_things_to_do_belongs_to_its_transcript() {
    let mut home = Home::new();
    assert_eq!(home.store.todos(&session("s1")).unwrap(), None);
    home.write(|tx| tx.put_todos(&session("s1"), "[1]", NOW));
    home.write(|tx| tx.put_todos(&session("s1"), "[1,2]", Millis(NOW.0 + 1)));
    let home = home.crash();
    assert_eq!(home.store.todos(&session("s1")).unwrap().as_deref(), Some("[1,2]"));
    assert_eq!(home.store.todos(&session("s2")).unwrap(), None);
}
