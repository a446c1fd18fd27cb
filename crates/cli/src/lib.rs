//! The command line: arguments, output, and the commands that talk to a gateway or read its home.
//!
//! Commands that start a gateway or a connector are in the `petasos` binary. Commands here that need to start
//! or check one take a function for it ([`commands::chat`], [`commands::config`], [`commands::service`]).

pub mod arguments;
pub mod backup;
pub mod client;
pub mod commands;
pub mod failure;
pub mod lock;
pub mod logs;
pub mod observe;
pub mod print;
pub mod service;
pub mod socket;
