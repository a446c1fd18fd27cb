//! What the model is told of an interruption, as it stands in the request.

use std::time::Duration;

use petasos_core::session::ResumeReason;
use petasos_core::transcript::Role;

use super::corners::accepted_before;
use crate::support::World;
use crate::support::planted::{Mark, Planted, Tail};

const YESTERDAY: Duration = Duration::from_secs(24 * 3600);

/// What the model reads when somebody writes into such a session.
#[track_caller]
fn told(planted: Planted, text: &str) -> String {
    let mut world = World::idle(|_| {});
    let session = world.plant(&planted);
    // A session with a waiting message is not resumed without it.
    accepted_before(&world, planted.chat, text);
    world.start();
    world.ends_with(planted.chat, text);
    let requests = world.model.requests();
    assert_eq!(requests.len(), 1, "one turn");
    let entry = world.entry(planted.chat).expect("an entry");
    assert_eq!(entry.session_id, session, "the same conversation");
    assert!(!entry.resume_pending, "a good turn clears the mark");
    let rows = world.transcript(planted.chat);
    let own = &rows[rows.len() - 2..];
    assert_eq!(own[0], (Role::User, text.to_owned()), "only the user's words are kept");
    assert_eq!(own[1].0, Role::Assistant);
    assert!(rows.iter().all(|(_, row)| !row.starts_with("[System note:")), "{rows:?}");
    let told = requests[0].last_user.clone();
    let body = requests[0].body().to_string();
    assert_eq!(body.matches("[System note:").count(), told.matches("[System note:").count(), "{body}");
    assert!(body.contains("the question before"), "the history is there");
    told
}

#[track_caller]
fn check(planted: Planted, want: &[&str]) {
    let told = told(planted.clone(), "what happened?");
    assert!(told.starts_with("[System note:") && told.ends_with("\n\nwhat happened?"), "{planted:?}: {told}");
    assert_eq!(told.matches("[System note:").count(), 1, "{planted:?}: {told}");
    for phrase in want {
        assert!(told.contains(phrase), "{planted:?} without {phrase:?}: {told}");
    }
    assert!(!told.contains("haven't responded to yet"), "{told}");
}

#[test]
fn a_marked_session_learns_what_cut_it_off() {
    let other = ResumeReason::Other("power_cut".into());
    for (reason, phrase) in [
        (ResumeReason::RestartTimeout, "a gateway restart"),
        (ResumeReason::ShutdownTimeout, "a gateway shutdown"),
        (ResumeReason::RestartInterrupted, "a gateway interruption"),
        (other, "a gateway interruption"),
    ] {
        check(Planted { mark: Mark::now(reason), ..Planted::new(7) }, &[phrase, "intact"]);
    }
}

#[test]
fn a_marked_session_with_a_tool_result_at_its_end_gets_one_note_and_not_the_other() {
    let mark = Mark::now(ResumeReason::RestartTimeout);
    check(Planted { tail: Tail::ToolResult, mark, ..Planted::new(7) }, &["gateway restart"]);
}

#[test]
fn a_tool_result_that_nobody_spoke_about_is_pointed_out() {
    check(Planted { tail: Tail::ToolResult, ..Planted::new(7) }, &["tool result"]);
}

#[test]
fn an_old_mark_in_a_conversation_that_moved_since_still_counts() {
    let mark = Some(Mark { reason: ResumeReason::RestartTimeout, age: YESTERDAY });
    check(Planted { mark, ..Planted::new(7) }, &["gateway restart"]);
}

#[test]
fn with_nothing_to_resume_the_model_reads_the_message_and_nothing_else() {
    let stale = Some(Mark { reason: ResumeReason::RestartTimeout, age: YESTERDAY });
    for planted in [
        Planted::new(7),
        Planted { age: YESTERDAY, ..Planted::new(7) },
        Planted { age: YESTERDAY, tail: Tail::ToolResult, ..Planted::new(7) },
        Planted { age: YESTERDAY, mark: stale, ..Planted::new(7) },
    ] {
        assert_eq!(told(planted.clone(), "ping"), "ping", "{planted:?}");
    }
}
