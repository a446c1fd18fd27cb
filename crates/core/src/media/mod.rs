//! Files in messages: their types, and the `MEDIA:` tags of answers.

mod extract;
mod types;

pub use extract::{ExtractedMedia, extract, preview_text, truncated_text};
pub use types::{MediaKind, extension_for, image_type, type_of_name};

pub const CACHE_FOLDER: &str = "cache";
