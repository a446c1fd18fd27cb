//! Petasos: wiring, signals, and the commands that start something. Everything it does is done by the crates below.

mod commands;
mod serve;
mod signals;
mod takeover;
mod wire;

use std::process::ExitCode;

use clap::Parser;
use petasos_cli::arguments::Arguments;
use petasos_cli::{failure, logs};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let form = if arguments.json { failure::Form::Json } else { failure::Form::Text };
    let done = commands::run(arguments);
    logs::flush();
    match done {
        Ok(code) => code,
        Err(failure) => {
            failure.tell(form);
            failure.exit_code()
        }
    }
}
