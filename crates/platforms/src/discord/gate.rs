//! Which messages are for us. In private all of them; in a server it depends on the settings. Pure.

use std::collections::HashSet;

use petasos_core::access::Bots;

use super::Config;
use super::wire::Member;

/// The settings, compiled.
#[derive(Debug)]
pub(super) struct Gate {
    bots: Bots,
    bots_require_inline_mention: bool,
    roles: HashSet<String>,
    ignore_no_mention: bool,
    allowed: Channels,
    ignored: Channels,
    free: Channels,
    threadless: Channels,
    require_mention: bool,
    thread_require_mention: bool,
    auto_thread: bool,
}

/// Channels by id, `name`, `#name`, or the same of the channel they belong to; `*` is every one.
#[derive(Debug)]
struct Channels(HashSet<String>);

/// What is known of a message when its addressee is decided.
#[derive(Debug, Clone)]
pub(super) struct Scene<'a> {
    pub(super) direct: bool,
    /// Ids and names of the channel and of the one it belongs to.
    pub(super) channel: &'a [String],
    pub(super) thread: Thread,
    pub(super) from_bot: bool,
    pub(super) mention: Mention,
    pub(super) others: Others,
    /// It answers a message.
    pub(super) reply: bool,
}

impl Scene<'_> {
    /// It is said to us, not only where we listen.
    pub(super) fn is_addressed(&self) -> bool {
        self.direct || self.mention > Mention::None || self.thread == Thread::Ours
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thread {
    None,
    Foreign,
    /// One in which we have spoken.
    Ours,
}

/// How the message names us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mention {
    None,
    /// Only in the list that comes with the message: a reply to us.
    Listed,
    /// In the text itself.
    Inline,
}

/// Who else is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    None,
    People,
    Bots,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Drop,
    Take,
    /// Take it, in a thread of its own.
    TakeInThread,
}

impl Gate {
    /// Some role is admitted.
    pub(super) fn knows_roles(&self) -> bool {
        !self.roles.is_empty()
    }

    /// Discord says who has which role; a role is admitted by its id.
    pub(super) fn admits_role(&self, member: Option<&Member>) -> bool {
        member.is_some_and(|member| member.roles.iter().any(|role| self.roles.contains(role)))
    }

    pub(super) fn new(config: &Config) -> Self {
        Self {
            bots: config.allow_bots,
            roles: config.allowed_roles.iter().map(|role| role.trim().to_owned()).collect(),
            bots_require_inline_mention: config.bots_require_inline_mention,
            ignore_no_mention: config.ignore_no_mention,
            allowed: Channels::new(&config.allowed_channels),
            ignored: Channels::new(&config.ignored_channels),
            free: Channels::new(&config.free_response_channels),
            threadless: Channels::new(&config.no_thread_channels),
            require_mention: config.require_mention,
            thread_require_mention: config.thread_require_mention,
            auto_thread: config.auto_thread,
        }
    }

    pub(super) fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if scene.from_bot && !self.hears_bot(scene) {
            return Verdict::Drop;
        }
        if scene.direct {
            return Verdict::Take;
        }
        let named = scene.mention > Mention::None;
        let free = self.free.list(scene.channel);
        let for_others = match scene.others {
            Others::None => false,
            Others::Bots => true,
            Others::People => self.ignore_no_mention && !free,
        };
        if (for_others && !named) || !self.opens(scene.channel) {
            return Verdict::Drop;
        }
        let continued = scene.thread == Thread::Ours && !self.thread_require_mention;
        if self.require_mention && !named && !free && !continued {
            return Verdict::Drop;
        }
        let apart = named && scene.thread == Thread::None && !scene.reply && !free;
        if self.auto_thread && apart && !self.threadless.list(scene.channel) {
            return Verdict::TakeInThread;
        }
        Verdict::Take
    }

    /// Whether anything is heard in this channel; commands and buttons ask no more.
    pub(super) fn opens(&self, channel: &[String]) -> bool {
        (self.allowed.0.is_empty() || self.allowed.list(channel)) && !self.ignored.list(channel)
    }

    fn hears_bot(&self, scene: &Scene<'_>) -> bool {
        let least = if self.bots_require_inline_mention { Mention::Inline } else { Mention::Listed };
        match self.bots {
            Bots::None => false,
            Bots::Mentions => scene.mention >= least,
            Bots::All => !self.bots_require_inline_mention || scene.mention == Mention::Inline,
        }
    }
}

impl Channels {
    fn new(list: &[String]) -> Self {
        let key = |entry: &String| entry.trim().trim_start_matches('#').to_lowercase();
        Self(list.iter().map(key).filter(|key| !key.is_empty()).collect())
    }

    fn list(&self, channel: &[String]) -> bool {
        self.0.contains("*") || channel.iter().any(|key| self.0.contains(&key.to_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Drop, Take, TakeInThread};
    use super::*;
    use crate::Secret;

    fn scene(channel: &[String]) -> Scene<'_> {
        Scene {
            direct: false,
            channel,
            thread: Thread::None,
            from_bot: false,
            mention: Mention::None,
            others: Others::None,
            reply: false,
        }
    }

    /// A message in channel 7, "general", below 3, "talk".
    #[track_caller]
    fn check(settings: fn(&mut Config), message: fn(&mut Scene<'_>), want: Verdict) {
        let mut config = Config::new(Secret::new("t"));
        settings(&mut config);
        let channel: Vec<String> = ["7", "general", "3", "talk"].map(String::from).to_vec();
        let mut scene = scene(&channel);
        message(&mut scene);
        assert_eq!(Gate::new(&config).judge(&scene), want, "{scene:?}");
    }

    fn usual(_: &mut Config) {}

    fn named(scene: &mut Scene<'_>) {
        scene.mention = Mention::Inline;
    }

    #[test]
    fn a_server_is_heard_when_it_names_us_and_private_always() {
        check(usual, |_| {}, Drop);
        check(usual, named, TakeInThread);
        check(usual, |s| s.direct = true, Take);
        check(usual, |s| s.thread = Thread::Ours, Take);
        check(usual, |s| s.thread = Thread::Foreign, Drop);
        check(usual, |s| (s.thread, s.mention) = (Thread::Foreign, Mention::Inline), Take);
        check(|c| c.thread_require_mention = true, |s| s.thread = Thread::Ours, Drop);
        check(|c| c.require_mention = false, |_| {}, Take);
    }

    #[test]
    fn a_thread_is_opened_only_where_it_helps() {
        check(|c| c.auto_thread = false, named, Take);
        check(usual, |s| (s.mention, s.reply) = (Mention::Inline, true), Take);
        check(|c| c.no_thread_channels = vec!["#General".into()], named, Take);
        check(|c| c.free_response_channels = vec!["7".into()], named, Take);
    }

    #[test]
    fn what_is_said_to_others_is_not_for_us() {
        check(|c| c.require_mention = false, |s| s.others = Others::Bots, Drop);
        check(|c| c.require_mention = false, |s| s.others = Others::People, Drop);
        check(
            |c| (c.require_mention, c.ignore_no_mention) = (false, false),
            |s| s.others = Others::People,
            Take,
        );
        check(|c| c.free_response_channels = vec!["general".into()], |s| s.others = Others::People, Take);
        check(usual, |s| (s.others, s.mention) = (Others::Bots, Mention::Listed), TakeInThread);
    }

    #[test]
    fn channels_are_known_by_id_name_and_parent() {
        for key in ["7", "general", "#GENERAL", " 3 ", "talk", "*"] {
            let mut config = Config::new(Secret::new("t"));
            config.free_response_channels = vec![key.into()];
            let channel: Vec<String> = ["7", "general", "3", "talk"].map(String::from).to_vec();
            assert_eq!(Gate::new(&config).judge(&scene(&channel)), Take, "{key}");
        }
        check(|c| c.allowed_channels = vec!["8".into()], named, Drop);
        check(|c| c.allowed_channels = vec!["3".into()], named, TakeInThread);
        check(|c| c.ignored_channels = vec!["general".into()], named, Drop);
        check(|c| c.ignored_channels = vec!["general".into()], |s| s.direct = true, Take);
    }

    #[test]
    fn other_bots_are_heard_as_far_as_allowed() {
        let bot = |s: &mut Scene<'_>| (s.from_bot, s.mention) = (true, Mention::Listed);
        check(usual, bot, Drop);
        check(usual, |s| (s.from_bot, s.direct) = (true, true), Drop);
        check(|c| c.allow_bots = Bots::Mentions, bot, TakeInThread);
        check(|c| c.allow_bots = Bots::Mentions, |s| s.from_bot = true, Drop);
        check(|c| (c.allow_bots, c.require_mention) = (Bots::All, false), |s| s.from_bot = true, Take);
        check(|c| (c.allow_bots, c.bots_require_inline_mention) = (Bots::All, true), bot, Drop);
        check(|c| (c.allow_bots, c.bots_require_inline_mention) = (Bots::Mentions, true), bot, Drop);
    }
}
