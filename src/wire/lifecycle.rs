//! Lifecycle settings of a gateway, and who may control it over HTTP.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use petasos_cli::service::{is_container_init, is_supervised};
use petasos_config::keys::{any, gateway, telegram};
use petasos_config::{Origin, Problem, Settings, choices};
use petasos_core::lifecycle::{respawn, restart_breaker};
use petasos_core::link::LinkPolicy;
use petasos_core::session::CrashRecovery;
use petasos_core::{Platform, Redactor};
use petasos_gateway::{HomeChannel, Lifetime};
use petasos_platforms::AdapterKind;
use petasos_web::AccessCredentials;

const MIN_SLOW_PROBE: Duration = Duration::from_secs(30);

/// `env`: where a supervisor is declared.
pub(crate) fn lifetime(settings: &Settings, env: impl Fn(&str) -> Option<OsString>) -> Lifetime {
    Lifetime {
        drain_timeout: petasos_config::drain_timeout(settings),
        crash_recovery: match settings.get(&gateway::CRASH_RECOVERY) {
            choices::CrashRecovery::Journal => CrashRecovery::Journal,
            choices::CrashRecovery::Suspend => CrashRecovery::Suspend,
            choices::CrashRecovery::Resume => CrashRecovery::Resume,
        },
        drain_max_age: settings.get(&gateway::DRAIN_MAX_AGE),
        loop_guard: restart_breaker::RestartBreaker {
            max_restarts: settings.get(&gateway::LOOP_GUARD_RESTARTS),
            window: settings.get(&gateway::LOOP_GUARD_WINDOW),
            stable: settings.get(&gateway::LOOP_GUARD_STABLE),
        },
        storm: respawn::RespawnLimit {
            max_starts: settings.get(&gateway::STORM_STARTS),
            window: settings.get(&gateway::STORM_WINDOW),
        },
        // Set once this start is recorded.
        storm_pause: None,
        watchdog: settings.get(&gateway::WATCHDOG),
        session_cap: settings.get(&gateway::MAX_SESSIONS).filter(|cap| *cap > 0),
        home_channels: Platform::all().filter_map(|platform| home_channel(settings, platform)).collect(),
        scheduled_threads: AdapterKind::all().filter_map(|kind| scheduled_thread(settings, kind)).collect(),
        quiet_platforms: Platform::all().filter(|it| !settings.on(*it, &any::RESTART_NOTICE)).collect(),
        outage_notice: settings.get(&gateway::OUTAGE_NOTICE),
        reconnect: reconnect(settings),
        disconnect_within: settings.get(&gateway::DISCONNECT_TIMEOUT),
        bot_locks: Vec::new(),
        idle: super::platforms::relay::idle_settings(settings),
        supervised: is_supervised(std::process::id(), env) || in_a_container(),
        redactor: Redactor::default(),
    }
}

fn reconnect(settings: &Settings) -> LinkPolicy {
    let within = settings.get(&gateway::CONNECT_TIMEOUT);
    LinkPolicy {
        fast_attempts: settings.get(&gateway::RECONNECT_ATTEMPTS),
        slow_probe: settings.get(&gateway::RECONNECT_PROBE).max(MIN_SLOW_PROBE),
        jitter: settings.get(&gateway::RECONNECT_JITTER),
        connect_within: Some(within).filter(|within| !within.is_zero()),
        ..LinkPolicy::default()
    }
}

fn in_a_container() -> bool {
    let exists = |path: &str| Path::new(path).exists();
    is_container_init(std::process::id(), std::os::unix::process::parent_id(), exists)
}

pub(super) fn control_access(settings: &Settings, problems: &mut Vec<Problem>) -> AccessCredentials {
    let doors = AccessCredentials {
        drain_secret: settings.get(&gateway::DRAIN_SECRET),
        drain_scope: settings.get(&gateway::DRAIN_SCOPE),
        min_secret_chars: settings.get(&gateway::DRAIN_SECRET_CHARS),
        session_token: settings.get(&gateway::SESSION_TOKEN),
    };
    let length = doors.drain_secret.as_ref().map(|secret| secret.expose().chars().count());
    if length.is_some_and(|length| length < doors.min_secret_chars) {
        let what = format!(
            "{} is shorter than {} characters, so drain requests with it are refused",
            gateway::DRAIN_SECRET,
            doors.min_secret_chars
        );
        let problem = Problem::warning(settings.origin(&gateway::DRAIN_SECRET).to_string(), what);
        problems.push(problem.next("create a longer one with openssl rand -base64 48"));
    }
    doors
}

pub(super) fn home_channel(settings: &Settings, platform: Platform) -> Option<HomeChannel> {
    // A thread of the file belongs to the chat of the file, not to a chat from the environment.
    let chat = settings.origin_on(platform, &any::HOME_CHAT);
    let thread = settings.origin_on(platform, &any::HOME_THREAD);
    let foreign = matches!((chat, thread), (Origin::Variable { .. }, Origin::File { .. }));
    Some(HomeChannel {
        platform,
        chat_id: settings.on(platform, &any::HOME_CHAT)?,
        thread_id: settings.on(platform, &any::HOME_THREAD).filter(|_| !foreign),
        name: settings.on(platform, &any::HOME_NAME),
    })
}

fn scheduled_thread(settings: &Settings, kind: AdapterKind) -> Option<(Platform, String)> {
    match kind {
        AdapterKind::Telegram => Some((kind.platform(), settings.get(&telegram::CRON_THREAD)?)),
        AdapterKind::Discord | AdapterKind::Slack | AdapterKind::Webhook | AdapterKind::External(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use petasos_config::{Resolved, from_texts};
    use petasos_core::Secret;

    fn load(yaml: &str, process: &[(&str, &str)]) -> Resolved {
        let process = process.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        from_texts(yaml.as_bytes(), b"", process)
    }

    #[track_caller]
    fn wired(yaml: &str, process: &[(&str, &str)]) -> Lifetime {
        let resolved = load(yaml, process);
        assert!(!resolved.has_errors(), "{:?}", resolved.problems);
        lifetime(&resolved.settings, |_| None)
    }

    #[test]
    fn defaults_match_the_gateway() {
        assert_eq!(wired("", &[]), Lifetime::default());
    }

    #[test]
    fn drain_timeout_prefers_file_over_environment_and_default() {
        let env = [("HERMES_RESTART_DRAIN_TIMEOUT", "9")];
        for (yaml, env, want) in [
            ("agent: {restart_drain_timeout: 5}", &env[..], 5),
            ("", &env, 9),
            ("agent: {restart_drain_timeout: 0}", &env, 0),
            ("agent: {restart_drain_timeout: -3}", &[], 0),
            ("", &[("HERMES_RESTART_DRAIN_TIMEOUT", "-1")], 0),
            ("agent: {restart_drain_timeout: soon}", &[], 60),
            ("", &[("HERMES_RESTART_DRAIN_TIMEOUT", "nan")], 60),
        ] {
            assert_eq!(wired(yaml, env).drain_timeout, Duration::from_secs(want), "{yaml} {env:?}");
        }
    }

    #[test]
    fn every_key_is_wired() {
        let yaml = "
gateway:
  crash_recovery: suspend
  drain_max_age_seconds: 0
  restart_loop_guard: {max_restarts: 7, window_seconds: 90, stable_seconds: 20}
  respawn_storm: {max_starts: 8, window_seconds: 240}
  systemd_watchdog_seconds: 1.5
max_concurrent_sessions: 4
";
        let want = Lifetime {
            crash_recovery: CrashRecovery::Suspend,
            drain_max_age: Duration::ZERO,
            loop_guard: restart_breaker::RestartBreaker {
                max_restarts: 7,
                window: Duration::from_secs(90),
                stable: Duration::from_secs(20),
            },
            storm: respawn::RespawnLimit { max_starts: 8, window: Duration::from_secs(240) },
            // Set once this start is recorded.
            storm_pause: None,
            watchdog: Some(Duration::from_millis(1500)),
            session_cap: Some(4),
            ..Lifetime::default()
        };
        assert_eq!(wired(yaml, &[]), want);
        let env = [("HERMES_GATEWAY_MAX_STARTS", "2"), ("HERMES_GATEWAY_START_WINDOW_S", "10")];
        assert_eq!(
            wired(yaml, &env).storm,
            respawn::RespawnLimit { max_starts: 2, window: Duration::from_secs(10) }
        );
        assert_eq!(wired("max_concurrent_sessions: 0", &[]).session_cap, None);
        let odd = "gateway: {restart_loop_guard: {max_restarts: many}, respawn_storm: {window_seconds: -1}}";
        assert_eq!(wired(odd, &[]), Lifetime::default());
    }

    #[test]
    fn reconnect_settings_come_from_file_and_environment() {
        let yaml = "gateway: {reconnect: {max_attempts: none, park_probe_secs: 600, jitter: no}, \
                    platform_connect_timeout: -1, adapter_disconnect_timeout: 2}";
        let lifetime = wired(yaml, &[]);
        let want = LinkPolicy {
            fast_attempts: None,
            slow_probe: Duration::from_secs(600),
            jitter: false,
            connect_within: None,
            ..LinkPolicy::default()
        };
        assert_eq!((lifetime.reconnect, lifetime.disconnect_within), (want, Duration::from_secs(2)));
        let env = [
            ("HERMES_GATEWAY_PLATFORM_CONNECT_TIMEOUT", "7"),
            ("HERMES_GATEWAY_ADAPTER_DISCONNECT_TIMEOUT", "3"),
        ];
        let lifetime = wired("gateway: {reconnect: {max_attempts: 3, park_probe_secs: 0}}", &env);
        assert_eq!(lifetime.reconnect.fast_attempts, Some(3));
        assert_eq!(lifetime.reconnect.slow_probe, MIN_SLOW_PROBE);
        assert_eq!(lifetime.reconnect.connect_within, Some(Duration::from_secs(7)));
        assert_eq!(lifetime.disconnect_within, Duration::from_secs(3));
    }

    #[test]
    fn home_channel_accepts_number_section_or_variable() {
        let telegram = Platform::parse("telegram").unwrap();
        let channel = |chat: &str, thread: Option<&str>, name: &str| HomeChannel {
            platform: telegram,
            chat_id: chat.into(),
            thread_id: thread.map(str::to_owned),
            name: name.into(),
        };
        let check = |yaml: &str, env: &[(&str, &str)], want| {
            assert_eq!(wired(yaml, env).home_channels, [want], "{yaml} {env:?}");
        };
        check("telegram: {home_channel: -100}", &[], channel("-100", None, "Home"));
        check(
            "platforms: {telegram: {home_channel: {chat_id: -100, thread_id: 7, name: Den}}}",
            &[],
            channel("-100", Some("7"), "Den"),
        );
        let env = [
            ("TELEGRAM_HOME_CHANNEL", "5"),
            ("TELEGRAM_HOME_CHANNEL_THREAD_ID", "6"),
            ("TELEGRAM_HOME_CHANNEL_NAME", "Attic"),
        ];
        check("", &env, channel("5", Some("6"), "Attic"));
        let both = "telegram: {home_channel: {chat_id: -100, thread_id: 7}}";
        check(both, &env[..1], channel("5", None, "Home"));
        let two = "platforms: {discord: {home_channel: {chat_id: 1}}, telegram: {home_channel: 2}}";
        let found: Vec<_> = wired(two, &[]).home_channels.iter().map(|it| it.platform.as_str()).collect();
        assert_eq!(found, ["telegram", "discord"]);
        assert!(wired("telegram: {home_channel: {name: Den}}", &[]).home_channels.is_empty());
    }

    #[test]
    fn restart_notice_can_be_disabled_per_platform() {
        let quiet = wired("slack: {gateway_restart_notification: false}", &[]).quiet_platforms;
        assert_eq!(quiet, [Platform::parse("slack").unwrap()]);
    }

    #[test]
    fn detects_supervisor() {
        let settings = Settings::default();
        assert!(lifetime(&settings, |name| (name == "INVOCATION_ID").then(|| "x".into())).supervised);
    }

    #[test]
    fn warns_about_short_drain_secret() {
        let secret = "a-long-secret-a-long-secret-a-long-secret-a-long-secret";
        let env = [("HERMES_DASHBOARD_DRAIN_SECRET", secret), ("HERMES_DASHBOARD_SESSION_TOKEN", "t")];
        let mut problems = Vec::new();
        let open = control_access(
            &load("dashboard: {drain_auth: {scope: maintenance}}", &env).settings,
            &mut problems,
        );
        let want = AccessCredentials {
            drain_secret: Some(Secret::new(secret)),
            drain_scope: "maintenance".into(),
            min_secret_chars: 43,
            session_token: Some(Secret::new("t")),
        };
        assert_eq!((open, problems.len()), (want, 0));
        let short = load("dashboard: {drain_auth: {secret: abc}, theme: dark}", &[]);
        assert!(short.problems.is_empty(), "{:?}", short.problems);
        let weak = control_access(&short.settings, &mut problems);
        assert_eq!((weak.drain_scope.as_str(), weak.session_token), ("drain", None));
        let warning = problems[0].to_string();
        assert!(warning.contains("shorter than 43") && !warning.contains("abc"), "{warning}");
    }
}
