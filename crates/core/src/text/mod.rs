//! Measuring, splitting and recognising text.

mod equal;
mod fence;
mod hex;
mod nearest;
mod silence;
mod size;
mod split;
mod unit;

pub use equal::equal;
pub use fence::Fences;
pub use hex::{hex, unhex};
pub use nearest::nearest;
pub use silence::{is_silence_marker, is_silence_narration, may_become_silence_marker};
pub use size::format_bytes;
pub use split::{Limits, number_parts, part_suffix, split, split_measured, split_plain};
pub use unit::Unit;
