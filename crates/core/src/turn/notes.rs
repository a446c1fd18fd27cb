//! Notes to the model about an interruption, placed before the text of the continued turn.
//!
//! A turn gets at most one note, which is never stored. The note states what is certain, because a model that doubts its
//! history repeats its tool calls.

use alloc::format;
use alloc::string::String;

use crate::session::{Interruption, ReaderKind, ResumeReason};
use crate::transcript::Role;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnStart {
    NewMessage,
    /// The gateway resumes the session without a new message.
    Unprompted,
    /// The interrupted message is continued.
    Continued,
}

/// The note for this turn, if any. An unprompted turn of a marked session always gets one, even with a stale mark.
pub fn resume_note(interruption: &Interruption<'_>, reader: ReaderKind, start: TurnStart) -> Option<String> {
    let fresh = interruption.transcript_fresh || interruption.mark_fresh;
    if interruption.pending && (fresh || start == TurnStart::Unprompted) {
        return Some(interrupted(interruption.reason, reader, start));
    }
    if interruption.tail == Some(Role::Tool) && interruption.transcript_fresh {
        return Some(unfinished(start));
    }
    None
}

fn interrupted(reason: Option<&ResumeReason>, reader: ReaderKind, start: TurnStart) -> String {
    let cause = match reason {
        Some(ResumeReason::RestartTimeout) | None => "a gateway restart",
        Some(ResumeReason::ShutdownTimeout) => "a gateway shutdown",
        Some(ResumeReason::RestartInterrupted | ResumeReason::Other(_)) => "a gateway interruption",
    };
    let next = match (start, reader) {
        (TurnStart::NewMessage, ReaderKind::Interactive | ReaderKind::Machine) => {
            "Answer the new message below first; go on with earlier work only as far as it asks for that."
        }
        (TurnStart::Unprompted, ReaderKind::Interactive) => {
            "No message has arrived since. Tell the user in a sentence or two that the session is restored and where \
             the work stands, and ask what to do next."
        }
        (TurnStart::Unprompted, ReaderKind::Machine) => {
            "No user is present to answer questions: continue the task from where it stopped, without an acknowledgement."
        }
        (TurnStart::Continued, ReaderKind::Interactive | ReaderKind::Machine) => {
            "The message below is the one you were working on: finish it from where it stands."
        }
    };
    format!(
        "[System note: {cause} cut off your previous turn. The history above is intact. Results recorded in it are \
         final, so do not run those tool calls again, and any restart command in it has already taken effect. {next}]"
    )
}

fn unfinished(start: TurnStart) -> String {
    let next = match start {
        TurnStart::Unprompted | TurnStart::Continued => "Finish that answer now.",
        TurnStart::NewMessage => "Use it where the message below needs it.",
    };
    format!(
        "[System note: your previous turn stopped after a tool result and before an answer. That result is in the \
         history above; do not run the call again. {next}]"
    )
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
    fn note_with(what: &Interruption<'_>, start: TurnStart, phrases: &[&str]) -> String {
        let input = resume_note(what, ReaderKind::Interactive, start).expect("a note");
        for phrase in phrases {
            assert!(input.contains(phrase), "{phrase:?} is missing in {input}");
        }
        assert_eq!(input.matches("[System note:").count(), 1);
        assert!(input.starts_with("[System note:"));
        assert!(!input.contains("haven't responded to yet"));
        input
    }

    #[test]
    fn names_the_cause_of_the_interruption() {
        let odd = ResumeReason::Other("odd".into());
        for (reason, cause) in [
            (None, "a gateway restart"),
            (Some(&ResumeReason::RestartTimeout), "a gateway restart"),
            (Some(&ResumeReason::ShutdownTimeout), "a gateway shutdown"),
            (Some(&ResumeReason::RestartInterrupted), "a gateway interruption"),
            (Some(&odd), "a gateway interruption"),
        ] {
            note_with(&pending(reason), TurnStart::NewMessage, &[cause, "intact", "new message"]);
            note_with(
                &pending(reason),
                TurnStart::Continued,
                &[cause, "intact", "the one you were working on"],
            );
        }
    }

    #[test]
    fn gives_a_marked_session_one_note() {
        for tail in [Role::Assistant, Role::Tool, Role::User] {
            let what = Interruption { tail: Some(tail), ..pending(Some(&ResumeReason::RestartTimeout)) };
            let input = note_with(&what, TurnStart::NewMessage, &["gateway restart"]);
            assert!(!input.contains("tool result"), "{tail:?}");
        }
    }

    #[test]
    fn requires_a_fresh_mark_or_a_fresh_transcript() {
        for (mark_fresh, transcript_fresh, want) in
            [(true, false, true), (false, true, true), (true, true, true), (false, false, false)]
        {
            let what = Interruption { mark_fresh, transcript_fresh, ..pending(None) };
            assert_eq!(resume_note(&what, ReaderKind::Interactive, TurnStart::NewMessage).is_some(), want);
        }
    }

    #[test]
    fn mentions_a_fresh_unanswered_tool_result() {
        let tail = Interruption { tail: Some(Role::Tool), ..QUIET };
        note_with(&tail, TurnStart::NewMessage, &["tool result"]);
        let stale = Interruption { transcript_fresh: false, ..tail };
        assert_eq!(resume_note(&stale, ReaderKind::Interactive, TurnStart::NewMessage), None);
    }

    #[test]
    fn adds_no_note_without_an_interruption() {
        for tail in [None, Some(Role::Assistant), Some(Role::User), Some(Role::Notice)] {
            let what = Interruption { tail, ..QUIET };
            assert_eq!(resume_note(&what, ReaderKind::Interactive, TurnStart::NewMessage), None, "{tail:?}");
        }
    }

    #[test]
    fn unprompted_resume_asks_a_person_but_not_a_program() {
        let asked = note_with(&pending(None), TurnStart::Unprompted, &["restored", "what to do next"]);
        assert!(!asked.contains("new message"));
        let machine =
            resume_note(&pending(None), ReaderKind::Machine, TurnStart::Unprompted).expect("a note");
        assert!(machine.contains("continue the task") && machine.contains("without an acknowledgement"));
        assert!(!machine.contains("new message"));
    }

    #[test]
    fn gives_an_unprompted_marked_session_a_note() {
        let stale = Interruption { mark_fresh: false, transcript_fresh: false, ..pending(None) };
        note_with(&stale, TurnStart::Unprompted, &["gateway restart"]);
        assert_eq!(resume_note(&stale, ReaderKind::Interactive, TurnStart::NewMessage), None);
    }
}
