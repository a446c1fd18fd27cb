//! One file per command. What they share: the home, and how to print.

mod approvals;
mod backup;
mod channels;
mod chat;
mod config;
mod connector;
mod cron;
mod doctor;
mod drain;
mod enroll;
mod links;
mod memory;
mod open;
mod outbox;
mod pairing;
mod prove;
mod restart;
mod resume;
mod run;
mod send;
mod service;
mod sessions;
mod status;
mod stop;
mod version;
mod wait;

use std::future::Future;
use std::process::ExitCode;

use clap::CommandFactory;
use petasos_config::Home;
use petasos_store::{OpenError, Reader, Store};

use crate::arguments::{Arguments, Command, ConnectorAction, Gateway};
use crate::failure::Failure;
use crate::logs::{self, Loudness};
use crate::{print, serve};
use stop::Haste;

/// What every command is given.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) home: Home,
    pub(crate) json: bool,
    pub(crate) loudness: Loudness,
}

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
        Command::Chat(wanted) => block_on(chat::chat(context, wanted)),
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
        Command::Config(wanted) => config::config(context, wanted),
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
        Command::Service(wanted) => service::service(context, &wanted),
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

/// Tells of warnings, once.
pub(crate) fn warn(problems: &[petasos_config::Problem]) {
    for problem in problems.iter().filter(|it| it.severity != petasos_config::Severity::Error) {
        crate::print::warn_of!("{} {problem}", print::styled(print::ODD, "warning:"));
    }
}

/// The database as it is, whoever runs. `None`: there is none yet.
pub(crate) fn reader(home: &Home) -> Result<Option<Reader>, Failure> {
    if !home.database().exists() {
        return vanished(home).map_or(Ok(None), |error| Err(error.into()));
    }
    Ok(Some(Reader::open(home.database())?))
}

/// There was a database, and it is not there any more: that is not the same as none yet.
pub(crate) fn vanished(home: &Home) -> Option<OpenError> {
    let sign = home.database_marker();
    (!home.database().exists() && sign.exists()).then(|| OpenError::Vanished { path: home.database(), sign })
}

/// Writes without a gateway: takes the home for that moment.
pub(crate) fn write<T>(
    home: &Home,
    job: impl FnOnce(&petasos_store::Tx<'_>) -> petasos_store::Result<T>,
) -> Result<T, Failure> {
    let _lock = serve::take(home)?;
    let mut store = Store::open(home.database())?;
    let done = store.write(job)?;
    store.close()?;
    Ok(done)
}
