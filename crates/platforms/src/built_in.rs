//! Which adapter speaks a platform. A closed set: a `match` on it stops the build wherever a new adapter is missing.

use petasos_core::Platform;

macro_rules! built_in {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        /// The adapters of this program, and what is spoken elsewhere.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum AdapterKind {
            $($variant,)+
            /// Spoken by another program: behind a connector. `relay`: whatever has no name here.
            External(Platform),
        }

        impl AdapterKind {
            /// Those that this program has itself.
            pub const BUILT_IN: &[Self] = &[$(Self::$variant),+];

            pub fn of(platform: Platform) -> Self {
                match platform.as_str() {
                    $($name => Self::$variant,)+
                    _elsewhere => Self::External(platform),
                }
            }

            /// A name without a row in the catalogue of `petasos-core` does not compile.
            pub const fn platform(self) -> Platform {
                match self {
                    $(Self::$variant => const { Platform::named($name) },)+
                    Self::External(platform) => platform,
                }
            }
        }
    };
}

built_in! {
    Telegram = "telegram",
    Discord = "discord",
    Slack = "slack",
    Webhook = "webhook",
}

impl AdapterKind {
    /// Everything that a program of ours may be configured to speak.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::BUILT_IN.iter().copied().chain([Self::External(Platform::RELAY)])
    }

    /// Whether a connector serves this platform for gateways. Webhooks are delivered to a gateway itself, and a
    /// connector does not serve another connector.
    pub const fn is_fronted(self) -> bool {
        match self {
            Self::Telegram | Self::Discord | Self::Slack => true,
            Self::Webhook | Self::External(_) => false,
        }
    }

    /// The names of the platforms that a connector serves.
    pub fn fronted() -> impl Iterator<Item = &'static str> {
        Self::all().filter(|kind| kind.is_fronted()).map(|kind| kind.platform().as_str())
    }

    /// The name that people know.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Telegram => "Telegram",
            Self::Discord => "Discord",
            Self::Slack => "Slack",
            Self::Webhook => "Webhook",
            Self::External(platform) => platform.as_str(),
        }
    }

    /// Whether missed messages are found by a cursor of ours. The others keep them until we have acknowledged them.
    pub const fn backfills(self) -> bool {
        match self {
            Self::Discord | Self::Slack => true,
            Self::Telegram | Self::Webhook | Self::External(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_platform_has_one_kind_of_adapter() {
        for platform in Platform::known() {
            assert_eq!(AdapterKind::of(platform).platform(), platform);
        }
        for kind in AdapterKind::all() {
            assert_eq!(AdapterKind::of(kind.platform()), kind);
        }
    }
}
