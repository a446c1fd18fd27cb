//! Messages of a session: downloads, admission, replies without a turn, hook events.

pub(super) mod admit;
pub(super) mod files;
pub(super) mod hook_events;
pub(super) mod reply;
