//! Notes about an interruption in the request to the model.

use std::time::Duration;

use petasos_core::session::ResumeReason;
use petasos_core::transcript::Role;

use super::edge_cases::accepted_before;
use crate::support::GatewayFixture;
use crate::support::planted::{PlantedSession, ResumeMark, TranscriptTail};

const YESTERDAY: Duration = Duration::from_secs(24 * 3600);

/// The model's input for a message to such a session.
#[track_caller]
fn model_input(planted: PlantedSession, text: &str) -> String {
    let mut world = GatewayFixture::idle(|_| {});
    let session = world.plant(&planted);
    // A session with a waiting message is resumed with it.
    accepted_before(&world, planted.chat, text);
    world.start();
    world.expect_last_message(planted.chat, text);
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
    let input = requests[0].last_user.clone();
    let body = requests[0].body().to_string();
    assert_eq!(body.matches("[System note:").count(), input.matches("[System note:").count(), "{body}");
    assert!(body.contains("the question before"), "the history is there");
    input
}

#[track_caller]
fn check(planted: PlantedSession, want: &[&str]) {
    let input = model_input(planted.clone(), "what happened?");
    assert!(
        input.starts_with("[System note:") && input.ends_with("\n\nwhat happened?"),
        "{planted:?}: {input}"
    );
    assert_eq!(input.matches("[System note:").count(), 1, "{planted:?}: {input}");
    for phrase in want {
        assert!(input.contains(phrase), "{planted:?} without {phrase:?}: {input}");
    }
    assert!(!input.contains("haven't responded to yet"), "{input}");
}

#[test]
fn note_names_the_reason_of_the_interruption() {
    let other = ResumeReason::Other("power_cut".into());
    for (reason, phrase) in [
        (ResumeReason::RestartTimeout, "a gateway restart"),
        (ResumeReason::ShutdownTimeout, "a gateway shutdown"),
        (ResumeReason::RestartInterrupted, "a gateway interruption"),
        (other, "a gateway interruption"),
    ] {
        check(
            PlantedSession { mark: ResumeMark::now(reason), ..PlantedSession::new(7) },
            &[phrase, "intact"],
        );
    }
}

#[test]
fn marked_session_with_open_tool_result_gets_one_note() {
    let mark = ResumeMark::now(ResumeReason::RestartTimeout);
    check(
        PlantedSession { tail: TranscriptTail::ToolResult, mark, ..PlantedSession::new(7) },
        &["gateway restart"],
    );
}

#[test]
fn note_mentions_unanswered_tool_result() {
    check(PlantedSession { tail: TranscriptTail::ToolResult, ..PlantedSession::new(7) }, &["tool result"]);
}

#[test]
fn old_mark_counts_in_recently_used_session() {
    let mark = Some(ResumeMark { reason: ResumeReason::RestartTimeout, age: YESTERDAY });
    check(PlantedSession { mark, ..PlantedSession::new(7) }, &["gateway restart"]);
}

#[test]
fn session_without_interruption_gets_no_note() {
    let stale = Some(ResumeMark { reason: ResumeReason::RestartTimeout, age: YESTERDAY });
    for planted in [
        PlantedSession::new(7),
        PlantedSession { age: YESTERDAY, ..PlantedSession::new(7) },
        PlantedSession { age: YESTERDAY, tail: TranscriptTail::ToolResult, ..PlantedSession::new(7) },
        PlantedSession { age: YESTERDAY, mark: stale, ..PlantedSession::new(7) },
    ] {
        assert_eq!(model_input(planted.clone(), "ping"), "ping", "{planted:?}");
    }
}
