//! Text as platforms measure, cut and understand it.

mod fence;
mod nearest;
mod silence;
mod size;
mod split;
mod unit;

pub use fence::Fences;
pub use nearest::nearest;
pub use silence::{is_silence_marker, is_silence_narration, may_become_silence_marker};
pub use size::size;
pub use split::{Limits, indicator, number, split, split_measured, split_plain};
pub use unit::Unit;
