//! From settings to what a connector is started with.

use petasos_config::keys;
use petasos_config::limits;
use petasos_config::{ForConnector, Home, Problem, Settings, Severity};
use petasos_connector::Config;
use petasos_core::access::{Access, Strangers};
use petasos_platforms::AdapterKind;
use petasos_platforms::listener::{Place, is_loopback};
use petasos_relay::session::Terms;

use super::{Spoken, access, discord, slack, sole, telegram};

/// The port is set there.
const PORT_KEY: &str = "connector.listen";

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
    let native: Vec<_> = spoken.iter().map(|it| it.adapter.platform()).collect();
    let mut denied = limits::denied(&platforms.settings, &native);
    problems.append(&mut denied.problems);
    problems.append(&mut denied.idle);
    let sole = sole(home, &spoken);
    let adapters = spoken.into_iter().map(|it| it.adapter).collect();
    let connector = Config {
        listen: place,
        public_url: settings
            .get(&keys::connector::PUBLIC_URL)
            .map(|url| url.trim_end_matches('/').to_owned()),
        adapters,
        sole,
        access: allowed(settings, access::access(&platforms.settings, &denied)),
        single_instance: settings.get(&keys::connector::SINGLE_INSTANCE),
        terms: Terms {
            durable_live: settings.get(&keys::connector::DURABLE_LIVE),
            poke_every: settings.get(&keys::connector::WAKE_COOLDOWN),
            window: settings.get(&keys::connector::WINDOW),
            most_entries: settings.get(&keys::connector::MAX_ENTRIES),
            ..Terms::default()
        },
        wake_hosts: settings.get(&keys::connector::WAKE_HOSTS),
        max_sockets: settings.get(&keys::connector::MAX_SOCKETS),
        max_gateways: settings.get(&keys::connector::MAX_GATEWAYS),
        outward: petasos_gateway::network::outward,
        ..Config::new(home.path())
    };
    Ok(Fronting { connector, warnings: problems })
}

fn spoken(home: &Home, settings: &Settings, problems: &mut Vec<Problem>) -> Vec<Spoken> {
    let spoken = AdapterKind::all().filter_map(|kind| match kind {
        AdapterKind::Telegram => telegram::spoken(settings, problems),
        AdapterKind::Discord => discord::spoken(settings, problems),
        AdapterKind::Slack => slack::spoken(home, settings, problems),
        AdapterKind::Webhook | AdapterKind::External(_) => None,
    });
    spoken.collect()
}

/// A connector pairs nobody: strangers are nobody's, or bound by a code.
fn allowed(settings: &Settings, of_platforms: Access) -> Access {
    let mut users = of_platforms.users;
    users.extend(settings.get(&keys::connector::ALLOWED_USERS));
    Access {
        allow_all: of_platforms.allow_all || settings.get(&keys::connector::ALLOW_ALL_USERS),
        users,
        strangers: Strangers::Ignore,
        ..of_platforms
    }
}

fn place(settings: &Settings, listen: Option<&str>, problems: &mut Vec<Problem>) -> Place {
    let at = listen.map_or_else(|| settings.get(&keys::connector::LISTEN), str::to_owned);
    let origin = if listen.is_some() {
        "--listen".to_owned()
    } else {
        settings.origin(&keys::connector::LISTEN).to_string()
    };
    let parts = at.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port)) = parts.filter(|(host, _)| !host.is_empty()) else {
        let problem = Problem::error(origin, format!("{at} is no address and port"));
        problems.push(problem.next("write it like 127.0.0.1:8655"));
        return Place { host: at, port: 0, port_key: PORT_KEY };
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    if !is_loopback(&host) {
        let what = format!("{PORT_KEY} {host} can be reached from other machines, and is plain HTTP");
        let problem = Problem::warning(origin, what);
        problems.push(problem.next("put a proxy with HTTPS in front, and listen on 127.0.0.1"));
    }
    Place { host, port, port_key: PORT_KEY }
}
