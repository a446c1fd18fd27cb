//! Message filter: in direct messages every message is for the bot, in channels the settings decide. Pure.

use std::collections::HashSet;

use petasos_core::access::Bots;

use crate::slack::Config;

#[derive(Debug)]
pub(in crate::slack) struct MessageFilter {
    require_mention: bool,
    strict_mention: bool,
    allowed_channels: HashSet<String>,
    free_channels: HashSet<String>,
    bots: Bots,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::slack) struct FilterInput<'a> {
    pub(in crate::slack) private: bool,
    pub(in crate::slack) channel: &'a str,
    pub(in crate::slack) from_bot: bool,
    pub(in crate::slack) mentioned: bool,
    /// In a thread that the bot takes part in.
    pub(in crate::slack) own_thread: bool,
}

impl MessageFilter {
    pub(in crate::slack) fn new(config: &Config) -> Self {
        let set = |list: &[String]| list.iter().map(|entry| entry.trim().to_owned()).collect();
        Self {
            require_mention: config.require_mention,
            strict_mention: config.strict_mention,
            allowed_channels: set(&config.allowed_channels),
            free_channels: set(&config.free_response_channels),
            bots: config.allow_bots,
        }
    }

    pub(in crate::slack) fn accepts(&self, input: &FilterInput<'_>) -> bool {
        if input.from_bot && !self.accepts_bot(input) {
            return false;
        }
        if input.private {
            return true;
        }
        if !self.allowed_channels.is_empty() && !self.allowed_channels.contains(input.channel) {
            return false;
        }
        if self.free_channels.contains(input.channel) || !self.require_mention || input.mentioned {
            return true;
        }
        input.own_thread && !self.strict_mention
    }

    fn accepts_bot(&self, input: &FilterInput<'_>) -> bool {
        match self.bots {
            Bots::None => false,
            Bots::Mentions => input.mentioned,
            Bots::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: FilterInput<'static> =
        FilterInput { private: false, channel: "C1", from_bot: false, mentioned: false, own_thread: false };

    #[track_caller]
    fn check(change: impl FnOnce(&mut Config), want: [(&str, FilterInput<'_>, bool); 4]) {
        let mut config = Config::new("xapp-1-A1-x", "xoxb-1");
        change(&mut config);
        let filter = MessageFilter::new(&config);
        for (name, input, accepted) in want {
            assert_eq!(filter.accepts(&input), accepted, "{name}: {config:?}");
        }
    }

    /// Direct, plain, mentioned, in an own thread.
    fn inputs(accepted: [bool; 4]) -> [(&'static str, FilterInput<'static>, bool); 4] {
        [
            ("private", FilterInput { private: true, ..CHANNEL }, accepted[0]),
            ("plain", CHANNEL, accepted[1]),
            ("mentioned", FilterInput { mentioned: true, ..CHANNEL }, accepted[2]),
            ("own thread", FilterInput { own_thread: true, ..CHANNEL }, accepted[3]),
        ]
    }

    #[test]
    fn accepts_channel_messages_as_configured() {
        check(|_| {}, inputs([true, false, true, true]));
        check(|c| c.strict_mention = true, inputs([true, false, true, false]));
        check(|c| c.require_mention = false, inputs([true, true, true, true]));
        check(|c| c.free_response_channels = vec!["C1".into()], inputs([true, true, true, true]));
        check(|c| c.allowed_channels = vec!["C1 ".into()], inputs([true, false, true, true]));
        check(|c| c.allowed_channels = vec!["C2".into()], inputs([true, false, false, false]));
        check(
            |c| (c.allowed_channels, c.free_response_channels) = (vec!["C2".into()], vec!["C1".into()]),
            inputs([true, false, false, false]),
        );
    }

    #[test]
    fn accepts_other_bots_as_configured() {
        let bots = |accepted: [bool; 4]| {
            inputs(accepted).map(|(n, i, a)| (n, FilterInput { from_bot: true, ..i }, a))
        };
        check(|_| {}, bots([false; 4]));
        check(|c| c.allow_bots = Bots::Mentions, bots([false, false, true, false]));
        check(|c| c.allow_bots = Bots::All, bots([true, false, true, true]));
    }
}
