//! Static analysis of shell commands: parsing and walking a script without running it.

mod expand;
pub(crate) mod own;
pub(crate) mod path;
mod rules;
mod shell;
mod state;
pub(crate) mod text;
pub(crate) mod walk;
