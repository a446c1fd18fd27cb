//! What the model is told about an interruption, in front of the text of the turn that continues.
//!
//! At most one note per turn, never stored: the transcript keeps the user's words only. Each note says
//! what is certain, because a model that doubts its history repeats its tools.

use alloc::format;
use alloc::string::String;

use crate::session::{Interruption, Reader, ResumeReason};
use crate::transcript::Role;

/// What the turn is about to ask the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Somebody has written.
    Message,
    /// Nobody has: the gateway takes the session up by itself.
    Silence,
    /// The same question again: its turn was interrupted.
    Continued,
}

/// What stands before the text of this turn, if anything. A marked session always gets words: even a stale mark
/// has a note when nobody has written.
pub fn resume_note(what: &Interruption<'_>, reader: Reader, moment: Moment) -> Option<String> {
    let fresh = what.transcript_fresh || what.mark_fresh;
    if what.pending && (fresh || moment == Moment::Silence) {
        return Some(interrupted(what.reason, reader, moment));
    }
    if what.tail == Some(Role::Tool) && what.transcript_fresh {
        return Some(unfinished(moment));
    }
    None
}

fn interrupted(reason: Option<&ResumeReason>, reader: Reader, moment: Moment) -> String {
    let cause = match reason {
        Some(ResumeReason::RestartTimeout) | None => "a gateway restart",
        Some(ResumeReason::ShutdownTimeout) => "a gateway shutdown",
        Some(ResumeReason::RestartInterrupted | ResumeReason::Other(_)) => "a gateway interruption",
    };
    let next = match (moment, reader) {
        (Moment::Message, Reader::Interactive | Reader::Machine) => {
            "Answer the new message below first; go on with earlier work only as far as it asks for that."
        }
        (Moment::Silence, Reader::Interactive) => {
            "Nobody has written since. Tell the user in a sentence or two that the session is restored and where \
             the work stands, and ask what to do next."
        }
        (Moment::Silence, Reader::Machine) => {
            "Nobody is there to answer questions: continue the task from where it stopped, without an acknowledgement."
        }
        (Moment::Continued, Reader::Interactive | Reader::Machine) => {
            "The message below is the one you were working on: finish it from where it stands."
        }
    };
    format!(
        "[System note: {cause} cut off your previous turn. The history above is intact. Results recorded in it are \
         final, so do not run those tool calls again, and any restart command in it has already taken effect. {next}]"
    )
}

fn unfinished(moment: Moment) -> String {
    let next = match moment {
        Moment::Silence | Moment::Continued => "Finish that answer now.",
        Moment::Message => "Use it where the message below needs it.",
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
    fn told(what: &Interruption<'_>, moment: Moment, phrases: &[&str]) -> String {
        let input = resume_note(what, Reader::Interactive, moment).expect("a note");
        for phrase in phrases {
            assert!(input.contains(phrase), "{phrase:?} is missing in {input}");
        }
        assert_eq!(input.matches("[System note:").count(), 1);
        assert!(input.starts_with("[System note:"));
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
            told(&pending(reason), Moment::Message, &[cause, "intact", "new message"]);
            told(&pending(reason), Moment::Continued, &[cause, "intact", "the one you were working on"]);
        }
    }

    #[test]
    fn a_marked_session_gets_one_note_whatever_its_last_row_is() {
        for tail in [Role::Assistant, Role::Tool, Role::User] {
            let what = Interruption { tail: Some(tail), ..pending(Some(&ResumeReason::RestartTimeout)) };
            let input = told(&what, Moment::Message, &["gateway restart"]);
            assert!(!input.contains("tool result"), "{tail:?}");
        }
    }

    #[test]
    fn either_a_fresh_mark_or_a_fresh_transcript_is_enough() {
        for (mark_fresh, transcript_fresh, want) in
            [(true, false, true), (false, true, true), (true, true, true), (false, false, false)]
        {
            let what = Interruption { mark_fresh, transcript_fresh, ..pending(None) };
            assert_eq!(resume_note(&what, Reader::Interactive, Moment::Message).is_some(), want);
        }
    }

    #[test]
    fn an_unanswered_tool_result_is_pointed_out_while_fresh() {
        let tail = Interruption { tail: Some(Role::Tool), ..QUIET };
        told(&tail, Moment::Message, &["tool result"]);
        let stale = Interruption { transcript_fresh: false, ..tail };
        assert_eq!(resume_note(&stale, Reader::Interactive, Moment::Message), None);
    }

    #[test]
    fn with_nothing_to_resume_the_text_is_unchanged() {
        for tail in [None, Some(Role::Assistant), Some(Role::User), Some(Role::Notice)] {
            let what = Interruption { tail, ..QUIET };
            assert_eq!(resume_note(&what, Reader::Interactive, Moment::Message), None, "{tail:?}");
        }
    }

    #[test]
    fn a_resume_without_a_message_asks_a_person_and_lets_a_program_continue() {
        let asked = told(&pending(None), Moment::Silence, &["restored", "what to do next"]);
        assert!(!asked.contains("new message"));
        let machine = resume_note(&pending(None), Reader::Machine, Moment::Silence).expect("a note");
        assert!(machine.contains("continue the task") && machine.contains("without an acknowledgement"));
        assert!(!machine.contains("new message"));
    }

    #[test]
    fn a_marked_session_never_gets_an_empty_turn() {
        let stale = Interruption { mark_fresh: false, transcript_fresh: false, ..pending(None) };
        told(&stale, Moment::Silence, &["gateway restart"]);
        assert_eq!(resume_note(&stale, Reader::Interactive, Moment::Message), None);
    }
}
