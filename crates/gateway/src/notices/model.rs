//! Texts for the model, not for people.

use petasos_core::turn::Cutoff;

pub(crate) const TOOL_PANICKED: &str = "{\"error\":\"The tool failed inside the gateway. Its effect is UNKNOWN. Check before repeating it.\",\"effect_disposition\":\"unknown\"}";
pub(crate) const TOOL_TOO_SLOW: &str = "{\"error\":\"This call did not end in time and was abandoned. Its effect is UNKNOWN. Check before repeating it.\",\"effect_disposition\":\"unknown\"}";

/// Sent with the last request of a turn, which offers no tools.
pub(crate) const fn closing(why: Cutoff) -> &'static str {
    match why {
        Cutoff::StepLimit => {
            "(The number of steps for this message is used up: no more tools. Tell the user now what was done, what was found, and what is still to do.)"
        }
        Cutoff::LoopDetected => {
            "(Your tool calls repeat without progress: no more tools. Tell the user now what was tried, what prevents progress, and what they could do.)"
        }
    }
}

/// In the first turn after an automatic reset.
pub(crate) fn reset(reason: &str) -> String {
    format!(
        "[System note: the conversation before this message was closed by the gateway ({reason}). This is a fresh start; the user \
         can bring the old one back with /resume.]"
    )
}
