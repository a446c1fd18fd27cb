//! The `petasos` binary: wiring, signals, and the commands that start a gateway or a connector.

mod commands;
mod serve;
mod signals;
mod takeover;
mod wire;

use std::process::ExitCode;

use clap::Parser;
use petasos_cli::arguments::Arguments;
use petasos_cli::{failure, logs};
use petasos_sandbox::launcher;

fn main() -> ExitCode {
    let mut given = std::env::args_os().skip(1);
    // Before anything that could start a thread. The gateway starts commands with it; it is not for people.
    if given.next().is_some_and(|first| first == launcher::SUBCOMMAND) {
        return launcher::run(given);
    }
    let arguments = Arguments::parse();
    let form = if arguments.json { failure::OutputFormat::Json } else { failure::OutputFormat::Text };
    let done = commands::run(arguments);
    logs::flush();
    match done {
        Ok(code) => code,
        Err(failure) => {
            failure.report(form);
            failure.exit_code()
        }
    }
}
