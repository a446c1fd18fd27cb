//! File names and protected files.

mod name;
pub mod protected;

pub use name::file_name;
