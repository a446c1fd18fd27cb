//! The log: to stderr, for the person who must act. No level shows message text or secrets.

use tracing_subscriber::EnvFilter;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loudness {
    Quiet,
    Normal,
    Verbose,
    Everything,
}

/// `RUST_LOG` says it all if it is set; otherwise ours is heard, and of others what goes wrong.
pub(crate) fn start(loudness: Loudness) {
    let chosen = std::env::var("RUST_LOG").ok().filter(|text| !text.trim().is_empty());
    let directives = match (loudness, chosen) {
        (_, Some(chosen)) => chosen,
        (Loudness::Quiet, None) => "error".into(),
        (Loudness::Normal, None) => ours("warn", "info"),
        (Loudness::Verbose, None) => ours("info", "debug"),
        (Loudness::Everything, None) => ours("debug", "trace"),
    };
    let filter = EnvFilter::builder().parse_lossy(directives);
    let plain = anstream::AutoStream::choice(&std::io::stderr()) == anstream::ColorChoice::Never;
    let log = tracing_subscriber::fmt()
        .compact()
        .with_writer(std::io::stderr)
        .with_ansi(!plain)
        .with_target(false)
        .with_env_filter(filter);
    // A second subscriber in one process can only be a test's; its log is as good as ours.
    let _ = log.try_init();
}

fn ours(others: &str, us: &str) -> String {
    let crates =
        ["petasos", "petasos_gateway", "petasos_web", "petasos_platforms", "petasos_agent", "petasos_store"];
    let ours: Vec<String> = crates.iter().map(|name| format!("{name}={us}")).collect();
    format!("{others},{}", ours.join(","))
}
