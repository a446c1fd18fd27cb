//! The command line: arguments, what people see, and the commands that talk to a gateway or read its home.
//!
//! A command that starts a gateway or a connector is in the program itself; what a command here needs of that is a function
//! it is called with ([`commands::chat`], [`commands::config`], [`commands::service`]).

pub mod arguments;
pub mod backup;
pub mod client;
pub mod commands;
pub mod failure;
pub mod life;
pub mod lock;
pub mod logs;
pub mod print;
mod progress;
pub mod service;
pub mod socket;
