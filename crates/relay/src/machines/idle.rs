//! When a gateway that nobody needs may sleep: it has to be able to, somebody has to wake it, and nothing may be left
//! to do.

use core::time::Duration;

use petasos_core::time::Millis;

/// What sleeping takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Means {
    /// The owner wants it.
    pub wanted: bool,
    /// Every platform comes over the relay: nobody else could wake us.
    pub only_relayed: bool,
    /// The connector knows whom to call when something waits.
    pub wake_url: bool,
    /// There is a way to stop that saves something.
    pub lever: bool,
}

/// Why we stay awake for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awake {
    NotWanted,
    OtherPlatforms,
    NoWakeUrl,
    NoLever,
}

impl Awake {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotWanted => "nobody asked for it",
            Self::OtherPlatforms => "a platform does not come over the relay",
            Self::NoWakeUrl => "there is no address to wake us by (GATEWAY_RELAY_WAKE_URL)",
            Self::NoLever => "there is no way to sleep (gateway.scale_to_zero.action)",
        }
    }
}

impl Means {
    pub const fn armed(self) -> Result<(), Awake> {
        match self {
            Self { wanted: false, .. } => Err(Awake::NotWanted),
            Self { only_relayed: false, .. } => Err(Awake::OtherPlatforms),
            Self { wake_url: false, .. } => Err(Awake::NoWakeUrl),
            Self { lever: false, .. } => Err(Awake::NoLever),
            Self { wanted: true, only_relayed: true, wake_url: true, lever: true } => Ok(()),
        }
    }
}

/// What is left to do, of every kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Running turns, and messages that wait for one.
    pub turns: bool,
    /// Messages that are owed to chats.
    pub owed: bool,
    /// Ends of background work that a conversation has not heard of.
    pub completions: bool,
    pub processes: bool,
    /// Jobs whose time will come: nobody would wake us for them.
    pub jobs: bool,
}

/// `work`: `None` if it cannot be read, which counts as busy. `last`: when somebody wrote to us last, or we started.
pub fn is_idle(work: Option<Work>, last: Millis, now: Millis, after: Duration) -> bool {
    work == Some(Work::default()) && now.since(last) >= after
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Means = Means { wanted: true, only_relayed: true, wake_url: true, lever: true };

    #[test]
    fn every_means_is_needed() {
        assert_eq!(ALL.armed(), Ok(()));
        assert_eq!(Means { wanted: false, ..ALL }.armed(), Err(Awake::NotWanted));
        assert_eq!(Means { only_relayed: false, ..ALL }.armed(), Err(Awake::OtherPlatforms));
        assert_eq!(Means { wake_url: false, ..ALL }.armed(), Err(Awake::NoWakeUrl));
        assert_eq!(Means { lever: false, ..ALL }.armed(), Err(Awake::NoLever));
    }

    #[test]
    fn reasons_to_stay_awake_name_the_setting_to_change() {
        assert!(Awake::NoWakeUrl.as_str().contains("GATEWAY_RELAY_WAKE_URL"));
        assert!(Awake::NoLever.as_str().contains("gateway.scale_to_zero.action"));
        assert_ne!(Awake::NotWanted.as_str(), Awake::OtherPlatforms.as_str());
    }

    #[test]
    fn idle_is_nothing_to_do_for_long_enough() {
        let five = Duration::from_secs(300);
        let at = |ms: u64| is_idle(Some(Work::default()), Millis(1_000), Millis(1_000 + ms), five);
        assert!(!at(299_900) && at(300_000));
        for busy in [
            None,
            Some(Work { turns: true, ..Work::default() }),
            Some(Work { owed: true, ..Work::default() }),
            Some(Work { completions: true, ..Work::default() }),
            Some(Work { processes: true, ..Work::default() }),
            Some(Work { jobs: true, ..Work::default() }),
        ] {
            assert!(!is_idle(busy, Millis(0), Millis(u64::MAX), five), "{busy:?}");
        }
    }
}
