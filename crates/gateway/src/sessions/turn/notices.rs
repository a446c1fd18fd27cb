//! What a session says of its own.

use petasos_core::turn::Closing;

pub(in crate::sessions) const PANICKED: &str = "⚠️ Something broke inside the gateway while I was answering. Your message is kept; send /retry to try again.";
pub(in crate::sessions) const TOOL_PANICKED: &str = "{\"error\":\"The tool broke inside the gateway. Its effect is UNKNOWN. Check before repeating it.\",\"effect_disposition\":\"unknown\"}";
pub(in crate::sessions) const TOO_SLOW: &str = "{\"error\":\"This call did not end in time and was given up. Its effect is UNKNOWN. Check before repeating it.\",\"effect_disposition\":\"unknown\"}";
pub(in crate::sessions) const CUT_OFF: &str =
    "\n\n(The answer was cut off here. Say “go on” and I will continue.)";
pub(in crate::sessions) const CONDEMNED: &str = "⚠️ I could not handle this message: what is stored about it cannot be used. Please send it again; the owner finds it with `petasos links unreadable`.";
pub(in crate::sessions) const TOO_LONG: &str = "⚠️ This conversation no longer fits into the model's context, and compression is switched off. Start a new one with /new, drop the last exchanges with /undo, or set compression.enabled.";
pub(in crate::sessions) const TOO_LONG_MESSAGE: &str =
    "⚠️ Your message is too long for the model. Please send less of it at once.";
pub(in crate::sessions) const EXHAUSTED: &str = "⚠️ This conversation no longer fits into the model's context and could not be made any shorter. I have started a fresh session; please send your last message again. /resume brings the old one back.";
pub(in crate::sessions) const NOTHING_TO_COMPRESS: &str = "There is nothing here that could be made shorter.";
pub(in crate::sessions) const COMPRESSION_STOPPED: &str = "⏹ Compression stopped. Nothing was changed.";

/// What the model is told when it gets no more tools.
pub(in crate::sessions) const fn closing(why: Closing) -> &'static str {
    match why {
        Closing::Spent => {
            "(The number of steps for this message is used up: no more tools. Tell the user now what was done, what was found, and what is still to do.)"
        }
        Closing::Circling => {
            "(Your tool calls go round in circles: no more tools. Tell the user now what was tried, what is in the way, and what they could do.)"
        }
    }
}
