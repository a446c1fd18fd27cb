//! Files as messages carry them: what they are by name and by their first bytes, and how an answer names them.

mod extract;
mod types;

pub use extract::{Media, broken_off, extract, growing};
pub use types::{Sort, extension_for, image_type, of_name};

/// The folder of the home in which the files that people sent are kept for a while.
pub const CACHE: &str = "cache";
