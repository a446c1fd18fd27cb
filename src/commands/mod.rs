//! Which command does what. Those that start a gateway or a connector, or ask what one would be started with, are here; the
//! others are in `petasos-cli`.

mod connector;
mod doctor;
mod enroll;
mod run;

use std::future::Future;
use std::process::ExitCode;

use clap::CommandFactory;
use petasos_cli::arguments::{Arguments, Command, ConnectorAction, Gateway};
use petasos_cli::commands::stop::Haste;
use petasos_cli::commands::{
    Context, approvals, backup, channels, chat, config, cron, drain, links, memory, open, outbox, pairing,
    prove, restart, resume, send, service, sessions, status, stop, version, warn,
};
use petasos_cli::failure::Failure;
use petasos_cli::logs::{self, Loudness};
use petasos_cli::{lock, print};
use petasos_config::{Home, Problem, Resolved};
use petasos_core::lifecycle::Leave;

use crate::serve::{self, Serving};
use crate::wire::wire;

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let loudness = match (arguments.quiet, arguments.verbose) {
        (true, _) => Loudness::Quiet,
        (false, 0) => Loudness::Normal,
        (false, 1) => Loudness::Verbose,
        (false, _) => Loudness::Everything,
    };
    match &arguments.command {
        Command::Version => return version::version(arguments.json),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "petasos", &mut script);
            print::say!("{}", String::from_utf8_lossy(&script).trim_end());
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let home = Home::resolve(arguments.home.as_deref(), |name| std::env::var_os(name))?;
    if home.path().exists() && !home.path().is_dir() {
        let what = format!("{} ({}) is not a directory", home.path().display(), home.named_by);
        return Err(
            Failure::configuration(what).next("--home DIR names the directory with config.yaml in it")
        );
    }
    dispatch(&Context { home, json: arguments.json, loudness }, arguments.command)
}

fn dispatch(context: &Context, command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(how) | Command::Gateway(Gateway::Run(how)) => {
            logs::start(context.loudness);
            block_on(run::run(context, how))
        }
        Command::Chat(wanted) => block_on(chat::chat(context, wanted, host)),
        Command::Status => block_on(status::status(context)),
        Command::Sessions(wanted) => block_on(sessions::sessions(context, wanted)),
        Command::Links(wanted) => block_on(links::links(context, wanted)),
        Command::Send(wanted) => block_on(send::send(context, wanted)),
        Command::Channels => channels::channels(context),
        Command::Outbox(wanted) => block_on(outbox::outbox(context, wanted)),
        Command::Cron(wanted) => block_on(cron::cron(context, wanted)),
        Command::Memory(wanted) => memory::memory(context, wanted),
        Command::Pairing(wanted) => block_on(pairing::pairing(context, wanted)),
        Command::Approvals(wanted) => block_on(approvals::approvals(context, wanted)),
        Command::Config(wanted) => config::config(context, wanted, &can_start),
        Command::Doctor(wanted) if wanted.repair => doctor::repair(context),
        Command::Doctor(wanted) if wanted.compact => doctor::compact(context),
        Command::Doctor(wanted) => block_on(doctor::doctor(context, wanted.online)),
        Command::Backup(wanted) => backup::backup(context, &wanted),
        Command::Restore(wanted) => backup::restore(context, &wanted),
        Command::Open => block_on(open::open(context)),
        Command::Prove(wanted) => prove::prove(context, &wanted),
        Command::Stop { now } => block_on(stop::stop(context, if now { Haste::Now } else { Haste::Patient })),
        Command::Restart { no_wait, .. } => block_on(restart::restart(context, no_wait)),
        Command::Drain(wanted) => block_on(drain::drain(context, wanted)),
        Command::Resume => block_on(resume::resume(context)),
        Command::Enroll(wanted) => block_on(enroll::enroll(context, wanted)),
        Command::Connector(wanted) => match wanted.action {
            ConnectorAction::Run { listen } => {
                logs::start(context.loudness);
                block_on(connector::run::run(context, listen))
            }
            other => connector::connector(context, other),
        },
        Command::Service(wanted) => service::service(context, &wanted, &can_start),
        Command::Version | Command::Completions { .. } => Ok(ExitCode::SUCCESS),
    }
}

/// Two workers carry hundreds of turns a second; blocking calls are short reads of the database.
fn block_on(work: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(8)
        .thread_name("petasos")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no runtime: {error}")))?;
    let done = runtime.block_on(work);
    // A thread that still waits for a key press must not keep us.
    runtime.shutdown_background();
    done
}

fn can_start(home: &Home, resolved: &mut Resolved) -> Result<(), Vec<Problem>> {
    wire(home, resolved).map(drop)
}

/// A gateway for as long as a chat lasts.
async fn host(context: &Context) -> Result<Serving, Failure> {
    let lock = lock::take(&context.home)?;
    let mut resolved = petasos_config::load(&context.home);
    let mut wired = wire(&context.home, &mut resolved).map_err(|problems| Failure::of_problems(&problems))?;
    warn(&resolved.problems);
    // The page belongs to a gateway that stays.
    wired.listen = None;
    serve::start(&context.home, wired, lock).await
}

impl chat::Hosted for Serving {
    async fn end(self) {
        self.handle.leave(Leave::Stop, None);
        self.handle.hurry();
        self.wait().await;
    }
}
