//! Which messages are for us. Alone with somebody all of them; elsewhere it depends on the settings. Pure.

use std::collections::HashSet;

use petasos_core::access::Bots;

use super::Config;

/// The settings, ready to be asked.
#[derive(Debug)]
pub(super) struct Gate {
    require_mention: bool,
    strict_mention: bool,
    allowed_channels: HashSet<String>,
    free_channels: HashSet<String>,
    bots: Bots,
}

/// What is known of a message when its addressee is decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene<'a> {
    /// A conversation of two.
    pub(super) private: bool,
    pub(super) channel: &'a str,
    pub(super) from_bot: bool,
    pub(super) mentioned: bool,
    /// Said in a thread that we began, were called into, or speak in.
    pub(super) our_thread: bool,
}

impl Gate {
    pub(super) fn new(config: &Config) -> Self {
        let set = |list: &[String]| list.iter().map(|entry| entry.trim().to_owned()).collect();
        Self {
            require_mention: config.require_mention,
            strict_mention: config.strict_mention,
            allowed_channels: set(&config.allowed_channels),
            free_channels: set(&config.free_response_channels),
            bots: config.allow_bots,
        }
    }

    pub(super) fn admits(&self, scene: &Scene<'_>) -> bool {
        if scene.from_bot && !self.admits_bot(scene) {
            return false;
        }
        if scene.private {
            return true;
        }
        if !self.allowed_channels.is_empty() && !self.allowed_channels.contains(scene.channel) {
            return false;
        }
        if self.free_channels.contains(scene.channel) || !self.require_mention || scene.mentioned {
            return true;
        }
        scene.our_thread && !self.strict_mention
    }

    fn admits_bot(&self, scene: &Scene<'_>) -> bool {
        match self.bots {
            Bots::None => false,
            Bots::Mentions => scene.mentioned,
            Bots::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: Scene<'static> =
        Scene { private: false, channel: "C1", from_bot: false, mentioned: false, our_thread: false };

    #[track_caller]
    fn check(change: impl FnOnce(&mut Config), want: [(&str, Scene<'_>, bool); 4]) {
        let mut config = Config::new("xapp-1-A1-x", "xoxb-1");
        change(&mut config);
        let gate = Gate::new(&config);
        for (name, scene, admitted) in want {
            assert_eq!(gate.admits(&scene), admitted, "{name}: {config:?}");
        }
    }

    /// Alone, plain, mentioned, in a thread of ours.
    fn four(admitted: [bool; 4]) -> [(&'static str, Scene<'static>, bool); 4] {
        [
            ("private", Scene { private: true, ..CHANNEL }, admitted[0]),
            ("plain", CHANNEL, admitted[1]),
            ("mentioned", Scene { mentioned: true, ..CHANNEL }, admitted[2]),
            ("our thread", Scene { our_thread: true, ..CHANNEL }, admitted[3]),
        ]
    }

    #[test]
    fn channels_are_heard_as_the_settings_say() {
        check(|_| {}, four([true, false, true, true]));
        check(|c| c.strict_mention = true, four([true, false, true, false]));
        check(|c| c.require_mention = false, four([true, true, true, true]));
        check(|c| c.free_response_channels = vec!["C1".into()], four([true, true, true, true]));
        check(|c| c.allowed_channels = vec!["C1 ".into()], four([true, false, true, true]));
        check(|c| c.allowed_channels = vec!["C2".into()], four([true, false, false, false]));
        check(
            |c| (c.allowed_channels, c.free_response_channels) = (vec!["C2".into()], vec!["C1".into()]),
            four([true, false, false, false]),
        );
    }

    #[test]
    fn other_bots_are_heard_as_the_settings_say() {
        let bots =
            |admitted: [bool; 4]| four(admitted).map(|(n, s, a)| (n, Scene { from_bot: true, ..s }, a));
        check(|_| {}, bots([false; 4]));
        check(|c| c.allow_bots = Bots::Mentions, bots([false, false, true, false]));
        check(|c| c.allow_bots = Bots::All, bots([true, false, true, true]));
    }
}
