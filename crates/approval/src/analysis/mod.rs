//! What a shell command would do: parsed as the shell would, and walked without running anything.

mod expand;
pub(crate) mod own;
pub(crate) mod path;
mod rules;
mod shell;
mod state;
pub(crate) mod text;
pub(crate) mod walk;
