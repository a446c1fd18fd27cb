//! Settings of scheduled jobs.

use petasos_config::Settings;
use petasos_config::choices::MissedRuns;
use petasos_config::keys::agent;
use petasos_core::cron::{CatchUpPolicy, MissedRunMode};
use petasos_gateway::cron;

pub(super) fn cron(settings: &Settings) -> cron::Settings {
    let missed = match settings.get(&agent::CRON_MISSED) {
        MissedRuns::Once => MissedRunMode::Once,
        MissedRuns::Skip => MissedRunMode::Skip,
        MissedRuns::All => MissedRunMode::All,
    };
    cron::Settings {
        terms: CatchUpPolicy { missed, grace: settings.get(&agent::CRON_GRACE) },
        wrap: settings.get(&agent::CRON_WRAP),
        mirror: settings.get(&agent::CRON_MIRROR),
        timezone: settings.get(&agent::TIMEZONE),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use petasos_config::from_texts;

    #[track_caller]
    fn wired(yaml: &str) -> cron::Settings {
        let resolved = from_texts(yaml.as_bytes(), b"", []);
        assert!(!resolved.has_errors(), "{:?}", resolved.problems);
        cron(&resolved.settings)
    }

    #[test]
    fn every_key_is_wired_and_defaults_match_the_gateway() {
        assert_eq!(wired(""), cron::Settings::default());
        let set = wired(
            "timezone: Europe/Berlin\ncron:\n  missed: skip\n  missed_grace_seconds: 60\n  wrap_response: false\n  mirror_delivery: true\n",
        );
        let terms = CatchUpPolicy { missed: MissedRunMode::Skip, grace: Duration::from_secs(60) };
        let timezone = Some("Europe/Berlin".to_owned());
        assert_eq!(set, cron::Settings { terms, wrap: false, mirror: true, timezone });
    }
}
