//! Petasos: arguments, configuration, wiring and signals. Everything it does is done by the crates below.

mod arguments;
mod backup;
mod client;
mod commands;
mod failure;
mod life;
mod lock;
mod logs;
mod print;
mod progress;
mod serve;
mod service;
mod signals;
mod socket;
mod takeover;
mod wire;

use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;

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
