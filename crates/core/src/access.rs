//! Who may talk to the agent, and who may run which command.
//!
//! One function decides for messages, buttons and busy sessions alike; the default is to deny. Lists add
//! up: whoever one of them admits is admitted. Internal events never get here.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::command::Name;
use crate::message::{ChatType, Platform, Source};
use crate::platform::FromStrangers;

/// The whole policy, as configured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Everyone may talk, as long as no list says otherwise.
    pub allow_all: bool,
    /// Admitted on every platform.
    pub users: Vec<String>,
    /// What strangers get who write a direct message.
    pub strangers: Strangers,
    pub platforms: BTreeMap<Platform, PlatformAccess>,
}

/// The policy of one platform.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlatformAccess {
    pub allow_all: bool,
    pub users: Vec<String>,
    /// Admitted in groups only. An entry that starts with `-` is an older way to name a chat.
    pub group_users: Vec<String>,
    /// Groups in which everyone is admitted.
    pub group_chats: Vec<String>,
    pub bots: Bots,
    pub strangers: Option<Strangers>,
    /// The adapter admits senders by a policy of its own before we are asked.
    pub own: Option<OwnPolicy>,
    /// What is denied there whoever admits the sender.
    pub limits: Limits,
}

/// Restrictions of a platform that come before every list and before a relay's word.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    pub dm: Option<Policy>,
    pub group: Option<Policy>,
    pub closed: Closed,
    /// In groups only these chats (ids, or those of their parents; `*` for all); `None`: any.
    pub chats: Option<Vec<String>>,
    /// Chats, threads and servers (ids) in which nobody is answered.
    pub ignored: Vec<String>,
    /// Other bots are not answered.
    pub no_bots: bool,
}

/// What a platform is closed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Closed {
    #[default]
    Nothing,
    Groups,
    Everything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strangers {
    #[default]
    Pair,
    Ignore,
}

/// Which messages of other bots are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bots {
    #[default]
    None,
    /// Those that mention us; the adapter has checked that.
    Mentions,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Open,
    Allowlist,
    Pairing,
    Disabled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnPolicy {
    pub dm: Policy,
    pub group: Policy,
}

/// What is known about a sender besides the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    pub paired: bool,
    /// The platform vouches for a role that we admit.
    pub role: bool,
    /// Came over a transport that authorises senders itself (the relay).
    pub upstream: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Deny(Refusal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Silently,
    OfferPairing,
}

/// Whether a sender may talk to the agent, and what a stranger gets.
pub fn decide(access: &Access, source: &Source, standing: Standing) -> Verdict {
    let none = PlatformAccess::default();
    let platform = access.platforms.get(&source.platform).unwrap_or(&none);
    if !within(&platform.limits, source) {
        return Verdict::Deny(Refusal::Silently);
    }
    let admitted = match policy(&platform.limits, source) {
        None | Some(Policy::Open) => admitted(access, platform, source, standing),
        Some(Policy::Pairing) => standing.paired || listed(access, platform, source, standing),
        Some(Policy::Allowlist) => listed(access, platform, source, standing),
        Some(Policy::Disabled) => false,
    };
    if admitted {
        return Verdict::Allow;
    }
    Verdict::Deny(refusal(access, platform, source))
}

/// Whether the limits of a platform leave this chat open.
fn within(limits: &Limits, source: &Source) -> bool {
    let closed = match limits.closed {
        Closed::Nothing => false,
        Closed::Groups => is_group(source.chat_type),
        Closed::Everything => true,
    };
    let ids =
        [&source.chat_id, &source.parent_chat_id, &source.thread_id, &source.scope_id, &source.guild_id];
    let ignored = ids.into_iter().flatten().any(|id| limits.ignored.iter().any(|entry| entry == id));
    let elsewhere = limits.chats.as_ref().filter(|_| is_group(source.chat_type)).is_some_and(|chats| {
        let mut here = [&source.chat_id, &source.parent_chat_id].into_iter().flatten();
        !here.any(|id| chats.iter().any(|entry| entry == "*" || entry == id))
    });
    !(closed || ignored || elsewhere || (limits.no_bots && source.is_bot))
}

/// Who may write in this kind of chat, where that is limited.
fn policy(limits: &Limits, source: &Source) -> Option<Policy> {
    match source.chat_type {
        ChatType::Dm => limits.dm,
        ChatType::Group | ChatType::Forum | ChatType::Channel | ChatType::Thread => limits.group,
        ChatType::Webhook => None,
    }
}

const fn is_group(chat: ChatType) -> bool {
    match chat {
        ChatType::Group | ChatType::Forum | ChatType::Channel | ChatType::Thread => true,
        ChatType::Dm | ChatType::Webhook => false,
    }
}

/// Whether a list names the sender or, in a group, the chat. Pairing and open doors do not count.
fn listed(access: &Access, platform: &PlatformAccess, source: &Source, standing: Standing) -> bool {
    if open_group(platform, source) || (source.is_bot && takes_bots(platform.bots)) || standing.role {
        return true;
    }
    let in_group: &[String] = if source.chat_type == ChatType::Dm { &[] } else { &platform.group_users };
    let user = source.user_id.as_deref().filter(|id| !id.is_empty());
    user.is_some_and(|user| {
        [access.users.as_slice(), platform.users.as_slice(), in_group].iter().any(|list| names(list, user))
    })
}

fn admitted(access: &Access, platform: &PlatformAccess, source: &Source, standing: Standing) -> bool {
    if source.platform.authenticates() || standing.upstream {
        return true;
    }
    if open_group(platform, source) || (source.is_bot && takes_bots(platform.bots)) {
        return true;
    }
    let Some(user) = source.user_id.as_deref().filter(|id| !id.is_empty()) else {
        return false;
    };
    if platform.allow_all || standing.role || standing.paired {
        return true;
    }
    if !has_lists(access, platform) {
        return own_policy(platform, source.chat_type) == Some(Policy::Allowlist) || access.allow_all;
    }
    let in_group: &[String] = if source.chat_type == ChatType::Dm { &[] } else { &platform.group_users };
    [&access.users, &platform.users, in_group].iter().any(|list| names(list, user))
}

/// What someone gets who may not talk. A group never hears about it.
fn refusal(access: &Access, platform: &PlatformAccess, source: &Source) -> Refusal {
    let nobody = source.user_id.as_deref().is_none_or(str::is_empty);
    if source.chat_type != ChatType::Dm || nobody {
        return Refusal::Silently;
    }
    match strangers(access, platform, source.platform) {
        Strangers::Pair => Refusal::OfferPairing,
        Strangers::Ignore => Refusal::Silently,
    }
}

fn strangers(access: &Access, platform: &PlatformAccess, name: Platform) -> Strangers {
    // A code would admit nobody.
    match platform.limits.dm {
        Some(Policy::Allowlist | Policy::Disabled) => return Strangers::Ignore,
        Some(Policy::Open | Policy::Pairing) | None => {}
    }
    if let Some(said) = platform.strangers {
        return said;
    }
    // Global `pair` is also the default and says nothing.
    if name.from_strangers() == FromStrangers::Unsolicited || access.strangers == Strangers::Ignore {
        return Strangers::Ignore;
    }
    match platform.limits.dm.or(platform.own.map(|own| own.dm)) {
        Some(Policy::Pairing) => Strangers::Pair,
        Some(Policy::Allowlist | Policy::Disabled) => Strangers::Ignore,
        Some(Policy::Open) | None if has_lists(access, platform) => Strangers::Ignore,
        Some(Policy::Open) | None => Strangers::Pair,
    }
}

fn open_group(platform: &PlatformAccess, source: &Source) -> bool {
    let group = match source.chat_type {
        ChatType::Group | ChatType::Forum | ChatType::Channel => true,
        ChatType::Dm | ChatType::Thread | ChatType::Webhook => false,
    };
    let Some(chat) = source.chat_id.as_deref().filter(|_| group) else {
        return false;
    };
    let legacy = || platform.group_users.iter().any(|entry| entry.starts_with('-') && entry == chat);
    platform.group_chats.iter().any(|entry| entry == "*" || entry == chat) || legacy()
}

fn takes_bots(bots: Bots) -> bool {
    match bots {
        Bots::Mentions | Bots::All => true,
        Bots::None => false,
    }
}

fn has_lists(access: &Access, platform: &PlatformAccess) -> bool {
    [&access.users, &platform.users, &platform.group_users, &platform.group_chats]
        .iter()
        .any(|list| !list.is_empty())
}

fn own_policy(platform: &PlatformAccess, chat: ChatType) -> Option<Policy> {
    platform.own.map(|own| if chat == ChatType::Dm { own.dm } else { own.group })
}

/// Whether a list names the user: as it is, or by what stands before an `@`.
fn names(list: &[String], user: &str) -> bool {
    let bare = user.split('@').next().filter(|bare| !bare.is_empty());
    list.iter().any(|entry| entry == "*" || entry == user || Some(entry.as_str()) == bare)
}

/// Who may run which command, per kind of chat.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tiers {
    pub dm: Tier,
    pub group: Tier,
}

/// Without administrators everyone runs everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tier {
    pub admins: Vec<String>,
    /// What the others may run besides `help` and `whoami`. `None` in a DM: what the group says.
    pub commands: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Idle,
    /// While a turn runs everyone may ask for its status.
    TurnRunning,
}

/// Whether `user` may run every command in this kind of chat. Without administrators everyone may.
fn is_admin(tiers: &Tiers, chat: ChatType, user: Option<&str>) -> bool {
    let admins = if chat == ChatType::Dm { &tiers.dm.admins } else { &tiers.group.admins };
    admins.is_empty() || user.is_some_and(|user| names(admins, user))
}

/// Whether a direct message is the owner's: the author is one of the named administrators or, where none are named, the
/// only person listed in the configuration of all platforms. Pairing does not make an owner; with a second person, listed
/// or paired here, there is no owner. `upstream`: a relay admits people by a policy that is not known here.
pub fn is_owner(
    access: &Access,
    tiers: Option<&Tiers>,
    source: &Source,
    paired: &[String],
    upstream: bool,
) -> bool {
    let Some(user) = source.user_id.as_deref().filter(|user| !user.is_empty() && !source.is_bot) else {
        return false;
    };
    if source.chat_type != ChatType::Dm {
        return false;
    }
    let named = |list: &[String]| names(list, user) && list.iter().all(|entry| entry != "*");
    if let Some(tiers) = tiers.filter(|tiers| !tiers.dm.admins.is_empty()) {
        return named(&tiers.dm.admins);
    }
    let none = PlatformAccess::default();
    let platform = access.platforms.get(&source.platform).unwrap_or(&none);
    if upstream || access.allow_all || platform.allow_all || platform.own.is_some() {
        return false;
    }
    let everywhere = access.platforms.values().flat_map(|it| it.users.iter().chain(&it.group_users));
    let mut people: Vec<&String> = access.users.iter().chain(everywhere).chain(paired).collect();
    people.sort_unstable();
    people.dedup();
    people.len() == 1 && (named(&access.users) || named(&platform.users))
}

/// Whether the author may allow commands for longer than once, or switch questions off: an administrator named for this
/// kind of chat; where none is named, one of direct messages; where none is named either, the owner, in groups too. A list
/// with `*` names no administrator. The arguments are those of `is_owner`.
pub fn may_decide_lastingly(
    access: &Access,
    tiers: Option<&Tiers>,
    source: &Source,
    paired: &[String],
    upstream: bool,
) -> bool {
    let direct = Source { chat_type: ChatType::Dm, ..source.clone() };
    let group = tiers.filter(|tiers| source.chat_type != ChatType::Dm && !tiers.group.admins.is_empty());
    match group {
        Some(Tiers { group, .. }) => {
            let tiers = Tiers { dm: group.clone(), group: Tier::default() };
            is_owner(access, Some(&tiers), &direct, paired, upstream)
        }
        None => is_owner(access, tiers, &direct, paired, upstream),
    }
}

/// Whether `user` may run `command` (without slash, any alias) in this kind of chat.
pub fn may_run(tiers: &Tiers, chat: ChatType, user: Option<&str>, command: &str, moment: Moment) -> bool {
    let direct = chat == ChatType::Dm;
    let tier = if direct { &tiers.dm } else { &tiers.group };
    if is_admin(tiers, chat, user) {
        return true;
    }
    if matches!(Name::find(command), Some(Name::Help | Name::Whoami)) {
        return true;
    }
    if moment == Moment::TurnRunning && Name::find(command) == Some(Name::Status) {
        return true;
    }
    let fallback = tiers.group.commands.as_ref().filter(|_| direct);
    let listed = tier.commands.as_ref().or(fallback);
    listed.is_some_and(|commands| commands.iter().any(|entry| same_command(entry, command)))
}

fn same_command(listed: &str, asked: &str) -> bool {
    let listed = listed.trim().trim_start_matches('/');
    listed.eq_ignore_ascii_case(asked)
        || Name::find(listed).is_some_and(|name| Name::find(asked) == Some(name))
}

/// A comma-separated list as it stands in an environment variable.
pub fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(ToString::to_string).collect()
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
