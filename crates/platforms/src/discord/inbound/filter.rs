//! Message filter: in private every message is for the bot, in servers the settings decide. Pure.

use std::collections::HashSet;

use petasos_core::access::Bots;

use crate::discord::Config;
use crate::discord::wire::Member;

/// Compiled settings.
#[derive(Debug)]
pub(in crate::discord) struct MessageFilter {
    bots: Bots,
    bots_require_inline_mention: bool,
    roles: HashSet<String>,
    ignore_no_mention: bool,
    allowed: ChannelList,
    ignored: ChannelList,
    free: ChannelList,
    threadless: ChannelList,
    require_mention: bool,
    thread_require_mention: bool,
    auto_thread: bool,
}

/// Channels by id, `name` or `#name`, their own or their parent's; `*` matches all.
#[derive(Debug)]
struct ChannelList(HashSet<String>);

#[derive(Debug, Clone)]
pub(in crate::discord) struct FilterInput<'a> {
    pub(in crate::discord) direct: bool,
    /// Ids and names of the channel and its parent.
    pub(in crate::discord) channel: &'a [String],
    pub(in crate::discord) thread: ThreadKind,
    pub(in crate::discord) from_bot: bool,
    pub(in crate::discord) mention: Mention,
    pub(in crate::discord) others: OtherMentions,
    pub(in crate::discord) reply: bool,
}

impl FilterInput<'_> {
    /// Whether the message addresses the bot, rather than just being in a channel it reads.
    pub(in crate::discord) fn is_addressed(&self) -> bool {
        self.direct || self.mention > Mention::None || self.thread == ThreadKind::Ours
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::discord) enum ThreadKind {
    None,
    Foreign,
    /// The bot has written in it.
    Ours,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::discord) enum Mention {
    None,
    /// Only in the message's mention list: a reply to the bot.
    Listed,
    /// In the text.
    Inline,
}

/// Other users mentioned in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::discord) enum OtherMentions {
    None,
    People,
    Bots,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::discord) enum FilterDecision {
    Drop,
    Accept,
    /// Accept and answer in a new thread.
    AcceptInThread,
}

impl MessageFilter {
    pub(in crate::discord) fn uses_roles(&self) -> bool {
        !self.roles.is_empty()
    }

    /// Discord supplies the roles; the settings name them by id.
    pub(in crate::discord) fn has_allowed_role(&self, member: Option<&Member>) -> bool {
        member.is_some_and(|member| member.roles.iter().any(|role| self.roles.contains(role)))
    }

    pub(in crate::discord) fn new(config: &Config) -> Self {
        Self {
            bots: config.allow_bots,
            roles: config.allowed_roles.iter().map(|role| role.trim().to_owned()).collect(),
            bots_require_inline_mention: config.bots_require_inline_mention,
            ignore_no_mention: config.ignore_no_mention,
            allowed: ChannelList::new(&config.allowed_channels),
            ignored: ChannelList::new(&config.ignored_channels),
            free: ChannelList::new(&config.free_response_channels),
            threadless: ChannelList::new(&config.no_thread_channels),
            require_mention: config.require_mention,
            thread_require_mention: config.thread_require_mention,
            auto_thread: config.auto_thread,
        }
    }

    pub(in crate::discord) fn decide(&self, input: &FilterInput<'_>) -> FilterDecision {
        if input.from_bot && !self.allows_bot(input) {
            return FilterDecision::Drop;
        }
        if input.direct {
            return FilterDecision::Accept;
        }
        let named = input.mention > Mention::None;
        let free = self.free.contains(input.channel);
        let for_others = match input.others {
            OtherMentions::None => false,
            OtherMentions::Bots => true,
            OtherMentions::People => self.ignore_no_mention && !free,
        };
        if (for_others && !named) || !self.allows_channel(input.channel) {
            return FilterDecision::Drop;
        }
        let continued = input.thread == ThreadKind::Ours && !self.thread_require_mention;
        if self.require_mention && !named && !free && !continued {
            return FilterDecision::Drop;
        }
        let apart = named && input.thread == ThreadKind::None && !input.reply && !free;
        if self.auto_thread && apart && !self.threadless.contains(input.channel) {
            return FilterDecision::AcceptInThread;
        }
        FilterDecision::Accept
    }

    /// Also applies to commands and buttons.
    pub(in crate::discord) fn allows_channel(&self, channel: &[String]) -> bool {
        (self.allowed.0.is_empty() || self.allowed.contains(channel)) && !self.ignored.contains(channel)
    }

    fn allows_bot(&self, input: &FilterInput<'_>) -> bool {
        let least = if self.bots_require_inline_mention { Mention::Inline } else { Mention::Listed };
        match self.bots {
            Bots::None => false,
            Bots::Mentions => input.mention >= least,
            Bots::All => !self.bots_require_inline_mention || input.mention == Mention::Inline,
        }
    }
}

impl ChannelList {
    fn new(list: &[String]) -> Self {
        let key = |entry: &String| entry.trim().trim_start_matches('#').to_lowercase();
        Self(list.iter().map(key).filter(|key| !key.is_empty()).collect())
    }

    fn contains(&self, channel: &[String]) -> bool {
        self.0.contains("*") || channel.iter().any(|key| self.0.contains(&key.to_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::FilterDecision::{Accept, AcceptInThread, Drop};
    use super::*;
    use crate::Secret;

    fn input(channel: &[String]) -> FilterInput<'_> {
        FilterInput {
            direct: false,
            channel,
            thread: ThreadKind::None,
            from_bot: false,
            mention: Mention::None,
            others: OtherMentions::None,
            reply: false,
        }
    }

    /// A message in channel 7, "general", below 3, "talk".
    #[track_caller]
    fn check(settings: fn(&mut Config), message: fn(&mut FilterInput<'_>), want: FilterDecision) {
        let mut config = Config::new(Secret::new("t"));
        settings(&mut config);
        let channel: Vec<String> = ["7", "general", "3", "talk"].map(String::from).to_vec();
        let mut input = input(&channel);
        message(&mut input);
        assert_eq!(MessageFilter::new(&config).decide(&input), want, "{input:?}");
    }

    fn usual(_: &mut Config) {}

    fn named(input: &mut FilterInput<'_>) {
        input.mention = Mention::Inline;
    }

    #[test]
    fn accepts_server_mentions_and_all_private_messages() {
        check(usual, |_| {}, Drop);
        check(usual, named, AcceptInThread);
        check(usual, |s| s.direct = true, Accept);
        check(usual, |s| s.thread = ThreadKind::Ours, Accept);
        check(usual, |s| s.thread = ThreadKind::Foreign, Drop);
        check(usual, |s| (s.thread, s.mention) = (ThreadKind::Foreign, Mention::Inline), Accept);
        check(|c| c.thread_require_mention = true, |s| s.thread = ThreadKind::Ours, Drop);
        check(|c| c.require_mention = false, |_| {}, Accept);
    }

    #[test]
    fn opens_a_thread_only_for_fresh_channel_mentions() {
        check(|c| c.auto_thread = false, named, Accept);
        check(usual, |s| (s.mention, s.reply) = (Mention::Inline, true), Accept);
        check(|c| c.no_thread_channels = vec!["#General".into()], named, Accept);
        check(|c| c.free_response_channels = vec!["7".into()], named, Accept);
    }

    #[test]
    fn drops_messages_that_mention_only_others() {
        check(|c| c.require_mention = false, |s| s.others = OtherMentions::Bots, Drop);
        check(|c| c.require_mention = false, |s| s.others = OtherMentions::People, Drop);
        check(
            |c| (c.require_mention, c.ignore_no_mention) = (false, false),
            |s| s.others = OtherMentions::People,
            Accept,
        );
        check(
            |c| c.free_response_channels = vec!["general".into()],
            |s| s.others = OtherMentions::People,
            Accept,
        );
        check(usual, |s| (s.others, s.mention) = (OtherMentions::Bots, Mention::Listed), AcceptInThread);
    }

    #[test]
    fn matches_channels_by_id_name_and_parent() {
        for key in ["7", "general", "#GENERAL", " 3 ", "talk", "*"] {
            let mut config = Config::new(Secret::new("t"));
            config.free_response_channels = vec![key.into()];
            let channel: Vec<String> = ["7", "general", "3", "talk"].map(String::from).to_vec();
            assert_eq!(MessageFilter::new(&config).decide(&input(&channel)), Accept, "{key}");
        }
        check(|c| c.allowed_channels = vec!["8".into()], named, Drop);
        check(|c| c.allowed_channels = vec!["3".into()], named, AcceptInThread);
        check(|c| c.ignored_channels = vec!["general".into()], named, Drop);
        check(|c| c.ignored_channels = vec!["general".into()], |s| s.direct = true, Accept);
    }

    #[test]
    fn accepts_other_bots_as_configured() {
        let bot = |s: &mut FilterInput<'_>| (s.from_bot, s.mention) = (true, Mention::Listed);
        check(usual, bot, Drop);
        check(usual, |s| (s.from_bot, s.direct) = (true, true), Drop);
        check(|c| c.allow_bots = Bots::Mentions, bot, AcceptInThread);
        check(|c| c.allow_bots = Bots::Mentions, |s| s.from_bot = true, Drop);
        check(|c| (c.allow_bots, c.require_mention) = (Bots::All, false), |s| s.from_bot = true, Accept);
        check(|c| (c.allow_bots, c.bots_require_inline_mention) = (Bots::All, true), bot, Drop);
        check(|c| (c.allow_bots, c.bots_require_inline_mention) = (Bots::Mentions, true), bot, Drop);
    }
}
