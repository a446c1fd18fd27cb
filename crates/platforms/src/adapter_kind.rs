//! Which adapter handles a platform. The set is closed, so a new adapter stops the build wherever a `match`
//! lacks it.

use petasos_core::Platform;

macro_rules! built_in {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        /// The built-in adapters, and platforms served by another program.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum AdapterKind {
            $($variant,)+
            /// Served by another program through a connector; `relay` stands for platforms without a name
            /// here.
            External(Platform),
        }

        impl AdapterKind {
            pub const BUILT_IN: &[Self] = &[$(Self::$variant),+];

            pub fn of(platform: Platform) -> Self {
                match platform.as_str() {
                    $($name => Self::$variant,)+
                    _elsewhere => Self::External(platform),
                }
            }

            /// A name that the catalogue of `petasos-core` lacks does not compile.
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
    /// Every kind that a configuration may name.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::BUILT_IN.iter().copied().chain([Self::External(Platform::RELAY)])
    }

    /// Whether a connector serves this platform for gateways. Webhooks go to a gateway directly, and a
    /// connector does not front another connector.
    pub const fn is_fronted(self) -> bool {
        match self {
            Self::Telegram | Self::Discord | Self::Slack => true,
            Self::Webhook | Self::External(_) => false,
        }
    }

    pub fn fronted() -> impl Iterator<Item = &'static str> {
        Self::all().filter(|kind| kind.is_fronted()).map(|kind| kind.platform().as_str())
    }

    /// Display name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Telegram => "Telegram",
            Self::Discord => "Discord",
            Self::Slack => "Slack",
            Self::Webhook => "Webhook",
            Self::External(platform) => platform.as_str(),
        }
    }

    /// Whether missed messages are backfilled from our cursor. The other platforms keep them until they are
    /// acknowledged.
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
    fn maps_every_platform_to_one_adapter_kind() {
        for platform in Platform::all() {
            assert_eq!(AdapterKind::of(platform).platform(), platform);
        }
        for kind in AdapterKind::all() {
            assert_eq!(AdapterKind::of(kind.platform()), kind);
        }
    }
}
