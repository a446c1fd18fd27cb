//! From settings to what a connector is started with.

use petasos_connector::Config;
use petasos_core::access::{Access, Strangers};
use petasos_core::relay::session::Terms;
use petasos_platforms::listener::{Place, is_loopback};

use super::{Spoken, access, discord, seconds, slack, sole, telegram};
use crate::config::{ForConnector, Home, Problem, Settings, Severity};

const LISTEN: &str = "connector.listen";
const SINGLE: &str = "connector.single_instance";

/// Everything a connector is started with.
#[derive(Debug)]
pub(crate) struct Fronting {
    pub(crate) connector: Config,
    pub(crate) warnings: Vec<Problem>,
}

/// All errors at once, or something that can be started. `listen` beats the configuration.
pub(crate) fn connector(
    home: &Home,
    from: ForConnector,
    listen: Option<&str>,
) -> Result<Fronting, Vec<Problem>> {
    let ForConnector { own, platforms } = from;
    let mut problems: Vec<_> = own.problems.into_iter().chain(platforms.problems).collect();
    let settings = &own.settings;
    let spoken = spoken(home, &platforms.settings, &mut problems);
    if spoken.is_empty() && !problems.iter().any(|it| it.severity == Severity::Error) {
        let problem = Problem::error("config.yaml", "the connector has no platform");
        problems.push(problem.next("write one below connector.platforms, as it would stand below platforms"));
    }
    let place = place(settings, listen, &mut problems);
    if problems.iter().any(|it| it.severity == Severity::Error) {
        return Err(problems);
    }
    let sole = sole(home, &spoken);
    let adapters = spoken.into_iter().map(|it| it.adapter).collect();
    let count = |path: &str| settings.count(path).and_then(|count| usize::try_from(count).ok());
    let (fresh, usual) = (Terms::default(), Config::new(home.path()));
    let connector = Config {
        listen: place,
        public_url: settings.text("connector.public_url").map(|url| url.trim_end_matches('/').to_owned()),
        adapters,
        sole,
        access: allowed(settings, access::access(&platforms.settings)),
        single_instance: settings.text(SINGLE),
        terms: Terms {
            durable_live: settings.flag("connector.durable_live"),
            poke_every: seconds(settings, "connector.wake_cooldown"),
            window: count("connector.window").unwrap_or(fresh.window),
            most_entries: count("connector.max_entries").unwrap_or(fresh.most_entries),
            ..fresh
        },
        wake_hosts: settings.list("connector.wake_hosts"),
        max_sockets: count("connector.max_sockets").unwrap_or(usual.max_sockets),
        max_gateways: count("connector.max_gateways_per_tenant")
            .and_then(|most| u32::try_from(most).ok())
            .unwrap_or(usual.max_gateways),
        ..usual
    };
    Ok(Fronting { connector, warnings: problems })
}

fn spoken(home: &Home, settings: &Settings, problems: &mut Vec<Problem>) -> Vec<Spoken> {
    let all = [
        telegram::spoken(settings, problems),
        discord::spoken(settings, problems),
        slack::spoken(home, settings, problems),
    ];
    all.into_iter().flatten().collect()
}

/// A connector pairs nobody: strangers are nobody's, or bound by a code.
fn allowed(settings: &Settings, of_platforms: Access) -> Access {
    let mut users = of_platforms.users;
    users.extend(settings.list("connector.allowed_users"));
    Access {
        allow_all: of_platforms.allow_all || settings.flag("connector.allow_all_users"),
        users,
        strangers: Strangers::Ignore,
        ..of_platforms
    }
}

fn place(settings: &Settings, listen: Option<&str>, problems: &mut Vec<Problem>) -> Place {
    let at = listen.map(str::to_owned).or_else(|| settings.text(LISTEN)).unwrap_or_default();
    let origin = if listen.is_some() { "--listen".to_owned() } else { settings.origin(LISTEN).to_string() };
    let parts = at.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port)) = parts.filter(|(host, _)| !host.is_empty()) else {
        let problem = Problem::error(origin, format!("{at} is no address and port"));
        problems.push(problem.next("write it like 127.0.0.1:8655"));
        return Place { host: at, port: 0, port_key: LISTEN };
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    if !is_loopback(&host) {
        let what = format!("{LISTEN} {host} can be reached from other machines, and is plain HTTP");
        let problem = Problem::warning(origin, what);
        problems.push(problem.next("put a proxy with HTTPS in front, and listen on 127.0.0.1"));
    }
    Place { host, port, port_key: LISTEN }
}
