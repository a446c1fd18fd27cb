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

fn main() -> ExitCode {
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
