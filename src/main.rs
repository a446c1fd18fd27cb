//! Petasos: arguments, configuration, wiring and signals. Everything it does is done by the crates below.

mod arguments;
mod client;
mod commands;
mod config;
mod failure;
mod lock;
mod logs;
mod print;
mod serve;
mod signals;
mod socket;
mod wire;

use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match commands::run(arguments) {
        Ok(code) => code,
        Err(failure) => {
            crate::print::warn_of!("{} {failure}", print::styled(print::BAD, "error:"));
            failure.exit_code()
        }
    }
}
