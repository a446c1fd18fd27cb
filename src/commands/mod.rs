//! Dispatches commands. Those that start a gateway or a connector, or check what would be started, are here;
//! the others are in `petasos-cli`.

mod connector;
mod doctor;
mod enroll;
mod run;

use std::future::Future;
use std::process::ExitCode;

use clap::CommandFactory;
use petasos_cli::arguments::{Arguments, CliCommand, ConnectorAction, GatewayCommand};
use petasos_cli::commands::stop::StopMode;
use petasos_cli::commands::{
    Context, approvals, backup, channels, chat, config, cron, drain, links, memory, open, outbox, pairing,
    print_warnings, prove, restart, resume, send, service, sessions, status, stop, version,
};
use petasos_cli::failure::Failure;
use petasos_cli::logs::{self, Verbosity};
use petasos_cli::{lock, print};
use petasos_config::{Home, Problem, Resolved};
use petasos_core::lifecycle::ShutdownReason;

use crate::serve::{self, RunningPetasos};
use crate::wire::{configured_platforms, wire};

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let verbosity = match (arguments.quiet, arguments.verbose) {
        (true, _) => Verbosity::Quiet,
        (false, 0) => Verbosity::Normal,
        (false, 1) => Verbosity::Verbose,
        (false, _) => Verbosity::Trace,
    };
    match &arguments.command {
        CliCommand::Version => return version::version(arguments.json),
        CliCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "petasos", &mut script);
            print::outln!("{}", String::from_utf8_lossy(&script).trim_end());
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
    dispatch(&Context { home, json: arguments.json, verbosity }, arguments.command)
}

fn dispatch(context: &Context, command: CliCommand) -> Result<ExitCode, Failure> {
    match command {
        CliCommand::Run(how) | CliCommand::Gateway(GatewayCommand::Run(how)) => {
            logs::start(context.verbosity);
            block_on(run::run(context, how))
        }
        CliCommand::Chat(wanted) => block_on(chat::chat(context, wanted, start_hosted)),
        CliCommand::Status => block_on(status::status(context, configured_platforms)),
        CliCommand::Sessions(wanted) => block_on(sessions::sessions(context, wanted)),
        CliCommand::Links(wanted) => block_on(links::links(context, wanted)),
        CliCommand::Send(wanted) => block_on(send::send(context, wanted)),
        CliCommand::Channels => channels::channels(context),
        CliCommand::Outbox(wanted) => block_on(outbox::outbox(context, wanted)),
        CliCommand::Cron(wanted) => block_on(cron::cron(context, wanted)),
        CliCommand::Memory(wanted) => memory::memory(context, wanted),
        CliCommand::Pairing(wanted) => block_on(pairing::pairing(context, wanted)),
        CliCommand::Approvals(wanted) => block_on(approvals::approvals(context, wanted)),
        CliCommand::Config(wanted) => config::config(context, wanted, &can_start),
        CliCommand::Doctor(wanted) if wanted.repair => doctor::repair(context),
        CliCommand::Doctor(wanted) if wanted.security => doctor::security(context),
        CliCommand::Doctor(wanted) if wanted.compact => doctor::compact(context),
        CliCommand::Doctor(wanted) => block_on(doctor::doctor(context, wanted.online)),
        CliCommand::Backup(wanted) => backup::backup(context, &wanted),
        CliCommand::Restore(wanted) => backup::restore(context, &wanted),
        CliCommand::Open => block_on(open::open(context)),
        CliCommand::Prove(wanted) => prove::prove(context, &wanted),
        CliCommand::Stop { now } => {
            block_on(stop::stop(context, if now { StopMode::Now } else { StopMode::Graceful }))
        }
        CliCommand::Restart { no_wait, .. } => block_on(restart::restart(context, no_wait)),
        CliCommand::Drain(wanted) => block_on(drain::drain(context, wanted)),
        CliCommand::Resume => block_on(resume::resume(context)),
        CliCommand::Enroll(wanted) => block_on(enroll::enroll(context, wanted)),
        CliCommand::Connector(wanted) => match wanted.action {
            ConnectorAction::Run { listen } => {
                logs::start(context.verbosity);
                block_on(connector::run::run(context, listen))
            }
            other => connector::connector(context, other),
        },
        CliCommand::Service(wanted) => service::service(context, &wanted, &can_start),
        CliCommand::Version | CliCommand::Completions { .. } => Ok(ExitCode::SUCCESS),
    }
}

/// Two workers carry hundreds of turns a second; blocking calls are short database reads.
fn block_on(work: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(8)
        .thread_name("petasos")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no runtime: {error}")))?;
    let done = runtime.block_on(work);
    // A thread that waits for a key press must not delay the exit.
    runtime.shutdown_background();
    done
}

fn can_start(home: &Home, resolved: &mut Resolved) -> Result<(), Vec<Problem>> {
    wire(home, resolved).map(drop)
}

async fn start_hosted(context: &Context) -> Result<RunningPetasos, Failure> {
    let lock = lock::acquire(&context.home)?;
    let mut resolved = petasos_config::load_with_secrets(&context.home)?;
    let mut wired =
        wire(&context.home, &mut resolved).map_err(|problems| Failure::from_problems(&problems))?;
    print_warnings(&resolved.problems);
    // Only a permanent gateway serves the page.
    wired.listen = None;
    serve::start(&context.home, wired, lock).await
}

impl chat::HostedGateway for RunningPetasos {
    async fn end(self) {
        self.handle.shut_down(ShutdownReason::Stop, None);
        self.handle.skip_drain();
        self.wait().await;
    }
}
