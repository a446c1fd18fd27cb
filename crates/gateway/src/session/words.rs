//! What a session says of its own.

pub(super) const PANICKED: &str = "⚠️ Something broke inside the gateway while I was answering. Your message is kept; send /retry to try again.";
pub(super) const TOOL_PANICKED: &str =
    "{\"error\":\"The tool broke inside the gateway. Its effect is UNKNOWN. Check before repeating it.\"}";
pub(super) const CUT_OFF: &str = "\n\n(The answer was cut off here. Say “go on” and I will continue.)";
pub(super) const CONDEMNED: &str = "⚠️ I could not handle this message: what is stored about it cannot be used. It is listed as given up; please send it again.";
