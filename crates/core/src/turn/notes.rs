//! What the model is told about an interruption, in front of the text of the turn that continues.
//!
//! At most one note per turn, never stored: the transcript keeps the user's words only. Each note says
//! what is certain, because a model that doubts its history repeats its tools.

use alloc::format;
use alloc::string::String;

use crate::session::{Interruption, Reader, ResumeReason};
use crate::transcript::Role;

/// The model's input for this turn: a note, then a blank line and the text (if any). `None`: the text as it
/// is. A marked session always gets words: even a stale mark has a note if the text is empty.
pub fn resume_note(what: &Interruption<'_>, reader: Reader, text: &str) -> Option<String> {
    let note = note(what, reader, text)?;
    Some(if is_silent(text) { note } else { format!("{note}\n\n{text}") })
}

fn note(what: &Interruption<'_>, reader: Reader, text: &str) -> Option<String> {
    let fresh = what.transcript_fresh || what.mark_fresh;
    if what.pending && (fresh || is_silent(text)) {
        return Some(interrupted(what.reason, reader, text));
    }
    if what.tail == Some(Role::Tool) && what.transcript_fresh {
        return Some(unfinished(text));
    }
    None
}

fn interrupted(reason: Option<&ResumeReason>, reader: Reader, text: &str) -> String {
    let cause = match reason {
        Some(ResumeReason::RestartTimeout) | None => "a gateway restart",
        Some(ResumeReason::ShutdownTimeout) => "a gateway shutdown",
        Some(ResumeReason::RestartInterrupted | ResumeReason::Other(_)) => "a gateway interruption",
    };
    let next = match (is_silent(text), reader) {
        (false, Reader::Interactive | Reader::Machine) => {
            "Answer the new message below first; go on with earlier work only as far as it asks for that."
        }
        (true, Reader::Interactive) => {
            "Nobody has written since. Tell the user in a sentence or two that the session is restored and where \
             the work stands, and ask what to do next."
        }
        (true, Reader::Machine) => {
            "Nobody is there to answer questions: continue the task from where it stopped, without an acknowledgement."
        }
    };
    format!(
        "[System note: {cause} cut off your previous turn. The history above is intact. Results recorded in it are \
         final, so do not run those tool calls again, and any restart command in it has already taken effect. {next}]"
    )
}

fn unfinished(text: &str) -> String {
    let next =
        if is_silent(text) { "Finish that answer now." } else { "Use it where the message below needs it." };
    format!(
        "[System note: your previous turn stopped after a tool result and before an answer. That result is in the \
         history above; do not run the call again. {next}]"
    )
}

/// The gateway resumes by itself; nobody has written.
fn is_silent(text: &str) -> bool {
    text.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Interruption<'static> =
        Interruption { pending: false, reason: None, mark_fresh: true, transcript_fresh: true, tail: None };

    fn pending(reason: Option<&ResumeReason>) -> Interruption<'_> {
        Interruption { pending: true, reason, ..QUIET }
    }

    #[track_caller]
    fn told(what: &Interruption<'_>, text: &str, phrases: &[&str]) -> String {
        let input = resume_note(what, Reader::Interactive, text).expect("a note");
        for phrase in phrases {
            assert!(input.contains(phrase), "{phrase:?} is missing in {input}");
        }
        assert_eq!(input.matches("[System note:").count(), 1);
        assert!(input.starts_with("[System note:") && input.ends_with(text));
        assert!(!input.contains("haven't responded to yet"));
        input
    }

    #[test]
    fn an_interrupted_turn_is_named_by_its_cause() {
        let odd = ResumeReason::Other("odd".into());
        for (reason, cause) in [
            (None, "a gateway restart"),
            (Some(&ResumeReason::RestartTimeout), "a gateway restart"),
            (Some(&ResumeReason::ShutdownTimeout), "a gateway shutdown"),
            (Some(&ResumeReason::RestartInterrupted), "a gateway interruption"),
            (Some(&odd), "a gateway interruption"),
        ] {
            told(
                &pending(reason),
                "what happened?",
                &[cause, "intact", "new message", "]\n\nwhat happened?"],
            );
        }
    }

    #[test]
    fn a_marked_session_gets_one_note_whatever_its_last_row_is() {
        for tail in [Role::Assistant, Role::Tool, Role::User] {
            let what = Interruption { tail: Some(tail), ..pending(Some(&ResumeReason::RestartTimeout)) };
            let input = told(&what, "go on", &["gateway restart"]);
            assert!(!input.contains("tool result"), "{tail:?}");
        }
    }

    #[test]
    fn either_a_fresh_mark_or_a_fresh_transcript_is_enough() {
        for (mark_fresh, transcript_fresh, want) in
            [(true, false, true), (false, true, true), (true, true, true), (false, false, false)]
        {
            let what = Interruption { mark_fresh, transcript_fresh, ..pending(None) };
            assert_eq!(resume_note(&what, Reader::Interactive, "hi").is_some(), want);
        }
    }

    #[test]
    fn an_unanswered_tool_result_is_pointed_out_while_fresh() {
        let tail = Interruption { tail: Some(Role::Tool), ..QUIET };
        told(&tail, "and?", &["tool result", "\n\nand?"]);
        let stale = Interruption { transcript_fresh: false, ..tail };
        assert_eq!(resume_note(&stale, Reader::Interactive, "and?"), None);
    }

    #[test]
    fn with_nothing_to_resume_the_text_is_unchanged() {
        for tail in [None, Some(Role::Assistant), Some(Role::User), Some(Role::Notice)] {
            let what = Interruption { tail, ..QUIET };
            assert_eq!(resume_note(&what, Reader::Interactive, "ping"), None, "{tail:?}");
        }
    }

    #[test]
    fn a_resume_without_a_message_asks_a_person_and_lets_a_program_continue() {
        let asked = told(&pending(None), "", &["restored", "what to do next"]);
        assert!(!asked.contains("new message"));
        let machine = resume_note(&pending(None), Reader::Machine, "").expect("a note");
        assert!(machine.contains("continue the task") && machine.contains("without an acknowledgement"));
        assert!(!machine.contains("new message"));
    }

    #[test]
    fn a_marked_session_never_gets_an_empty_turn() {
        let stale = Interruption { mark_fresh: false, transcript_fresh: false, ..pending(None) };
        told(&stale, "", &["gateway restart"]);
        assert_eq!(resume_note(&stale, Reader::Interactive, "hi"), None);
    }
}
