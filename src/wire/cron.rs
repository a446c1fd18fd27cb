//! How scheduled work is done, as it is configured.

use petasos_config::Settings;
use petasos_config::choices::MissedRuns;
use petasos_config::keys::agent;
use petasos_core::cron::{Missed, Terms};
use petasos_gateway::cron;

pub(super) fn cron(settings: &Settings) -> cron::Settings {
    let missed = match settings.get(&agent::CRON_MISSED) {
        MissedRuns::Once => Missed::Once,
        MissedRuns::Skip => Missed::Skip,
        MissedRuns::All => Missed::All,
    };
    cron::Settings {
        terms: Terms { missed, grace: settings.get(&agent::CRON_GRACE) },
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
    fn nothing_set_is_the_default_of_the_gateway_and_every_key_counts() {
        assert_eq!(wired(""), cron::Settings::default());
        let set = wired(
            "timezone: Europe/Berlin\ncron:\n  missed: skip\n  missed_grace_seconds: 60\n  wrap_response: false\n  mirror_delivery: true\n",
        );
        let terms = Terms { missed: Missed::Skip, grace: Duration::from_secs(60) };
        let timezone = Some("Europe/Berlin".to_owned());
        assert_eq!(set, cron::Settings { terms, wrap: false, mirror: true, timezone });
    }
}
