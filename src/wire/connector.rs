//! Turns settings into the configuration of a connector.

use petasos_config::keys;
use petasos_config::limits;
use petasos_config::{ForConnector, Home, Problem, Settings, Severity};
use petasos_connector::Config;
use petasos_core::InstanceId;
use petasos_core::access::{Access, Strangers};
use petasos_platforms::AdapterKind;
use petasos_platforms::listener::{ListenAddress, is_loopback};
use petasos_relay::session::SessionPolicy;

use super::access;
use super::platforms::{BuiltAdapter, bot_locks, discord, slack, telegram};

const PORT_KEY: &str = "connector.listen";

#[derive(Debug)]
pub(crate) struct WiredConnector {
    pub(crate) connector: Config,
    pub(crate) warnings: Vec<Problem>,
}

/// Returns everything that a start needs, or all errors at once. `listen` overrides the configuration.
pub(crate) fn connector(
    home: &Home,
    from: ForConnector,
    listen: Option<&str>,
) -> Result<WiredConnector, Vec<Problem>> {
    let ForConnector { own, platforms } = from;
    let mut problems: Vec<_> = own.problems.into_iter().chain(platforms.problems).collect();
    let settings = &own.settings;
    let built = native_adapters(home, &platforms.settings, &mut problems);
    if built.is_empty() && !problems.iter().any(|it| it.severity == Severity::Error) {
        let problem = Problem::error("config.yaml", "no platform is configured for the connector");
        problems.push(problem.next("add one under connector.platforms, in the same form as under platforms"));
    }
    let address = listen_address(settings, listen, &mut problems);
    if problems.iter().any(|it| it.severity == Severity::Error) {
        return Err(problems);
    }
    let native: Vec<_> = built.iter().map(|it| it.adapter.platform()).collect();
    let mut denied = limits::denied(&platforms.settings, &native);
    problems.append(&mut denied.problems);
    problems.append(&mut denied.idle);
    let bot_locks = bot_locks(home, &built);
    let adapters = built.into_iter().map(|it| it.adapter).collect();
    let connector = Config {
        listen: address,
        public_url: settings
            .get(&keys::connector::PUBLIC_URL)
            .map(|url| url.trim_end_matches('/').to_owned()),
        adapters,
        sole: bot_locks,
        access: connector_access(settings, access::access(&platforms.settings, &denied)),
        single_instance: settings.get(&keys::connector::SINGLE_INSTANCE).map(InstanceId),
        terms: SessionPolicy {
            durable_live: settings.get(&keys::connector::DURABLE_LIVE),
            poke_every: settings.get(&keys::connector::WAKE_COOLDOWN),
            window: settings.get(&keys::connector::WINDOW),
            most_entries: settings.get(&keys::connector::MAX_ENTRIES),
            ..SessionPolicy::default()
        },
        wake_hosts: settings.get(&keys::connector::WAKE_HOSTS),
        max_sockets: settings.get(&keys::connector::MAX_SOCKETS),
        max_gateways: settings.get(&keys::connector::MAX_GATEWAYS),
        outward: petasos_gateway::network::outbound_addresses,
        ..Config::new(home.path())
    };
    Ok(WiredConnector { connector, warnings: problems })
}

fn native_adapters(home: &Home, settings: &Settings, problems: &mut Vec<Problem>) -> Vec<BuiltAdapter> {
    let adapters = AdapterKind::all().filter_map(|kind| match kind {
        AdapterKind::Telegram => telegram::build(settings, problems),
        AdapterKind::Discord => discord::build(settings, problems),
        AdapterKind::Slack => slack::build(home, settings, problems),
        AdapterKind::Webhook | AdapterKind::External(_) => None,
    });
    adapters.collect()
}

/// A connector does not pair: unknown senders are ignored unless a code binds them.
fn connector_access(settings: &Settings, of_platforms: Access) -> Access {
    let mut users = of_platforms.users;
    users.extend(settings.get(&keys::connector::ALLOWED_USERS));
    Access {
        allow_all: of_platforms.allow_all || settings.get(&keys::connector::ALLOW_ALL_USERS),
        users,
        strangers: Strangers::Ignore,
        ..of_platforms
    }
}

fn listen_address(settings: &Settings, listen: Option<&str>, problems: &mut Vec<Problem>) -> ListenAddress {
    let at = listen.map_or_else(|| settings.get(&keys::connector::LISTEN), str::to_owned);
    let origin = if listen.is_some() {
        "--listen".to_owned()
    } else {
        settings.origin(&keys::connector::LISTEN).to_string()
    };
    let parts = at.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port)) = parts.filter(|(host, _)| !host.is_empty()) else {
        let problem = Problem::error(origin, format!("{at} is not an address with a port"));
        problems.push(problem.next("use the form 127.0.0.1:8655"));
        return ListenAddress { host: at, port: 0, port_key: PORT_KEY };
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    if !is_loopback(&host) {
        let what = format!("{PORT_KEY} {host} is reachable from other machines and uses plain HTTP");
        let problem = Problem::warning(origin, what);
        problems.push(problem.next("put an HTTPS proxy in front, and listen on 127.0.0.1"));
    }
    ListenAddress { host, port, port_key: PORT_KEY }
}
