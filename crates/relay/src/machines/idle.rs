//! Decides when an idle gateway may sleep: it is allowed to, can be woken, and has no work.

use core::time::Duration;

use petasos_core::time::Millis;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleepConditions {
    pub wanted: bool,
    /// Only the connector can wake this gateway.
    pub only_relayed: bool,
    /// The connector has a wake address.
    pub wake_url: bool,
    /// A suspend method that saves resources is configured.
    pub lever: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwakeReason {
    NotWanted,
    OtherPlatforms,
    NoWakeUrl,
    NoLever,
}

impl AwakeReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotWanted => "not requested",
            Self::OtherPlatforms => "a platform does not come over the relay",
            Self::NoWakeUrl => "there is no address to wake us by (GATEWAY_RELAY_WAKE_URL)",
            Self::NoLever => "there is no way to sleep (gateway.scale_to_zero.action)",
        }
    }
}

impl SleepConditions {
    pub const fn armed(self) -> Result<(), AwakeReason> {
        match self {
            Self { wanted: false, .. } => Err(AwakeReason::NotWanted),
            Self { only_relayed: false, .. } => Err(AwakeReason::OtherPlatforms),
            Self { wake_url: false, .. } => Err(AwakeReason::NoWakeUrl),
            Self { lever: false, .. } => Err(AwakeReason::NoLever),
            Self { wanted: true, only_relayed: true, wake_url: true, lever: true } => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PendingWork {
    /// Running turns and queued messages.
    pub turns: bool,
    pub owed: bool,
    pub completions: bool,
    pub processes: bool,
    /// Scheduled jobs; nothing would wake the gateway for them.
    pub jobs: bool,
}

/// `work`: `None` if unreadable, which counts as busy. `last`: time of the last message or of the start.
pub fn is_idle(work: Option<PendingWork>, last: Millis, now: Millis, after: Duration) -> bool {
    work == Some(PendingWork::default()) && now.since(last) >= after
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: SleepConditions =
        SleepConditions { wanted: true, only_relayed: true, wake_url: true, lever: true };

    #[test]
    fn every_means_is_needed() {
        assert_eq!(ALL.armed(), Ok(()));
        assert_eq!(SleepConditions { wanted: false, ..ALL }.armed(), Err(AwakeReason::NotWanted));
        assert_eq!(SleepConditions { only_relayed: false, ..ALL }.armed(), Err(AwakeReason::OtherPlatforms));
        assert_eq!(SleepConditions { wake_url: false, ..ALL }.armed(), Err(AwakeReason::NoWakeUrl));
        assert_eq!(SleepConditions { lever: false, ..ALL }.armed(), Err(AwakeReason::NoLever));
    }

    #[test]
    fn reasons_to_stay_awake_name_the_setting_to_change() {
        assert!(AwakeReason::NoWakeUrl.as_str().contains("GATEWAY_RELAY_WAKE_URL"));
        assert!(AwakeReason::NoLever.as_str().contains("gateway.scale_to_zero.action"));
        assert_ne!(AwakeReason::NotWanted.as_str(), AwakeReason::OtherPlatforms.as_str());
    }

    #[test]
    fn idle_is_nothing_to_do_for_long_enough() {
        let five = Duration::from_secs(300);
        let at = |ms: u64| is_idle(Some(PendingWork::default()), Millis(1_000), Millis(1_000 + ms), five);
        assert!(!at(299_900) && at(300_000));
        for busy in [
            None,
            Some(PendingWork { turns: true, ..PendingWork::default() }),
            Some(PendingWork { owed: true, ..PendingWork::default() }),
            Some(PendingWork { completions: true, ..PendingWork::default() }),
            Some(PendingWork { processes: true, ..PendingWork::default() }),
            Some(PendingWork { jobs: true, ..PendingWork::default() }),
        ] {
            assert!(!is_idle(busy, Millis(0), Millis(u64::MAX), five), "{busy:?}");
        }
    }
}
