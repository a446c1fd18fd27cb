//! Definitions of tools, their arguments, and the table that lists them.

pub(crate) mod arguments;
pub(crate) mod definition;
pub(super) mod table;
