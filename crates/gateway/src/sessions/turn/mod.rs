//! A running turn: how it starts, works, shrinks its conversation, stalls, and is recovered after a crash.

pub(super) mod begin;
pub(super) mod compaction;
pub(super) mod feed;
pub(super) mod notices;
pub(super) mod prepare;
pub(super) mod recover;
pub(super) mod show;
pub(super) mod stall;
pub(super) mod work;
