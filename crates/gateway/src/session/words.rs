//! What a session says of its own.

pub(super) const PANICKED: &str = "⚠️ Something broke inside the gateway while I was answering. Your message is kept; send /retry to try again.";
pub(super) const TOOL_PANICKED: &str =
    "{\"error\":\"The tool broke inside the gateway. Its effect is UNKNOWN. Check before repeating it.\"}";
pub(super) const CUT_OFF: &str = "\n\n(The answer was cut off here. Say “go on” and I will continue.)";
pub(super) const CONDEMNED: &str = "⚠️ I could not handle this message: what is stored about it cannot be used. It is listed as given up; please send it again.";
pub(super) const TOO_LONG: &str = "⚠️ This conversation no longer fits into the model's context, and compression is switched off. Start a new one with /new, drop the last exchanges with /undo, or set compression.enabled.";
pub(super) const TOO_LONG_MESSAGE: &str =
    "⚠️ Your message is too long for the model. Please send less of it at once.";
pub(super) const EXHAUSTED: &str = "⚠️ This conversation no longer fits into the model's context and could not be made any shorter. I have started a fresh session; please send your last message again. /resume brings the old one back.";
pub(super) const NOTHING_TO_COMPRESS: &str = "There is nothing here that could be made shorter.";
pub(super) const COMPRESSION_STOPPED: &str = "⏹ Compression stopped. Nothing was changed.";
