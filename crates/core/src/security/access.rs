//! The access policy: which senders may use the agent, and which commands they may run.
//!
//! One function decides for messages, buttons and busy sessions. The default is to deny, and lists add up. Internal events
//! skip this check.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::command::Name;
use crate::message::{ChatType, Platform, Source};
use crate::platform::StrangerMessages;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// All senders are allowed if there are no allowlists.
    pub allow_all: bool,
    /// Allowed on every platform.
    pub users: Vec<String>,
    /// The response to direct messages of strangers.
    pub strangers: Strangers,
    pub platforms: BTreeMap<Platform, PlatformAccess>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlatformAccess {
    pub allow_all: bool,
    pub users: Vec<String>,
    /// Allowed in groups only. An entry that starts with `-` is an older form of a chat id.
    pub group_users: Vec<String>,
    /// Groups in which all members are allowed.
    pub group_chats: Vec<String>,
    pub bots: Bots,
    pub strangers: Option<Strangers>,
    /// The adapter applies its own sender policy first.
    pub adapter_policy: Option<AdapterPolicy>,
    /// Restrictions that override every allowlist.
    pub limits: PlatformLimits,
}

/// Restrictions of a platform, checked before the allowlists and before the decision of a relay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlatformLimits {
    pub dm: Option<SenderPolicy>,
    pub group: Option<SenderPolicy>,
    pub closed: ClosedFor,
    /// Allowed group chats (ids, ids of parents, or `*`); `None`: any.
    pub chats: Option<Vec<String>>,
    /// Ids of chats, threads and servers that are ignored.
    pub ignored: Vec<String>,
    pub no_bots: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ClosedFor {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bots {
    #[default]
    None,
    /// Messages that mention this bot, as checked by the adapter.
    Mentions,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SenderPolicy {
    Open,
    Allowlist,
    Pairing,
    Disabled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdapterPolicy {
    pub dm: SenderPolicy,
    pub group: SenderPolicy,
}

/// Facts about a sender that are not part of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderTrust {
    pub paired: bool,
    /// The platform confirms an allowed role.
    pub role: bool,
    /// Received over a transport that authorises senders (the relay).
    pub upstream: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDecision {
    Allow,
    Deny(Denial),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    Silent,
    OfferPairing,
}

pub fn decide(access: &Access, source: &Source, trust: SenderTrust) -> AccessDecision {
    let none = PlatformAccess::default();
    let platform = access.platforms.get(&source.platform).unwrap_or(&none);
    if !within(&platform.limits, source) {
        return AccessDecision::Deny(Denial::Silent);
    }
    let admitted = match policy(&platform.limits, source) {
        None | Some(SenderPolicy::Open) => admitted(access, platform, source, trust),
        Some(SenderPolicy::Pairing) => trust.paired || listed(access, platform, source, trust),
        Some(SenderPolicy::Allowlist) => listed(access, platform, source, trust),
        Some(SenderPolicy::Disabled) => false,
    };
    if admitted {
        return AccessDecision::Allow;
    }
    AccessDecision::Deny(denial(access, platform, source))
}

fn within(limits: &PlatformLimits, source: &Source) -> bool {
    let closed = match limits.closed {
        ClosedFor::Nothing => false,
        ClosedFor::Groups => is_group(source.chat_type),
        ClosedFor::Everything => true,
    };
    let ids =
        [&source.chat_id, &source.parent_chat_id, &source.thread_id, &source.scope_id, &source.guild_id];
    let ignored = ids.into_iter().flatten().any(|id| limits.ignored.iter().any(|entry| entry == id));
    let other_chat = limits.chats.as_ref().filter(|_| is_group(source.chat_type)).is_some_and(|chats| {
        let mut here = [&source.chat_id, &source.parent_chat_id].into_iter().flatten();
        !here.any(|id| chats.iter().any(|entry| entry == "*" || entry == id))
    });
    !(closed || ignored || other_chat || (limits.no_bots && source.is_bot))
}

/// The sender policy for this kind of chat, if restricted.
fn policy(limits: &PlatformLimits, source: &Source) -> Option<SenderPolicy> {
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

/// Whether an allowlist names the sender or, in a group, the chat. Pairing and `allow_all` do not count.
fn listed(access: &Access, platform: &PlatformAccess, source: &Source, trust: SenderTrust) -> bool {
    if open_group(platform, source) || (source.is_bot && accepts_bots(platform.bots)) || trust.role {
        return true;
    }
    let in_group: &[String] = if source.chat_type == ChatType::Dm { &[] } else { &platform.group_users };
    let user = source.user_id.as_deref().filter(|id| !id.is_empty());
    user.is_some_and(|user| {
        [access.users.as_slice(), platform.users.as_slice(), in_group].iter().any(|list| names(list, user))
    })
}

fn admitted(access: &Access, platform: &PlatformAccess, source: &Source, trust: SenderTrust) -> bool {
    if source.platform.authenticates() || trust.upstream {
        return true;
    }
    if open_group(platform, source) || (source.is_bot && accepts_bots(platform.bots)) {
        return true;
    }
    let Some(user) = source.user_id.as_deref().filter(|id| !id.is_empty()) else {
        return false;
    };
    if platform.allow_all || trust.role || trust.paired {
        return true;
    }
    if !has_lists(access, platform) {
        return own_policy(platform, source.chat_type) == Some(SenderPolicy::Allowlist) || access.allow_all;
    }
    let in_group: &[String] = if source.chat_type == ChatType::Dm { &[] } else { &platform.group_users };
    [&access.users, &platform.users, in_group].iter().any(|list| names(list, user))
}

/// The denial for this sender. Groups are never notified.
fn denial(access: &Access, platform: &PlatformAccess, source: &Source) -> Denial {
    let anonymous = source.user_id.as_deref().is_none_or(str::is_empty);
    if source.chat_type != ChatType::Dm || anonymous {
        return Denial::Silent;
    }
    match strangers(access, platform, source.platform) {
        Strangers::Pair => Denial::OfferPairing,
        Strangers::Ignore => Denial::Silent,
    }
}

fn strangers(access: &Access, platform: &PlatformAccess, name: Platform) -> Strangers {
    // A pairing code would have no effect.
    match platform.limits.dm {
        Some(SenderPolicy::Allowlist | SenderPolicy::Disabled) => return Strangers::Ignore,
        Some(SenderPolicy::Open | SenderPolicy::Pairing) | None => {}
    }
    if let Some(configured) = platform.strangers {
        return configured;
    }
    // A global `pair` may be just the default.
    if name.stranger_messages() == StrangerMessages::Unsolicited || access.strangers == Strangers::Ignore {
        return Strangers::Ignore;
    }
    match platform.limits.dm.or(platform.adapter_policy.map(|own| own.dm)) {
        Some(SenderPolicy::Pairing) => Strangers::Pair,
        Some(SenderPolicy::Allowlist | SenderPolicy::Disabled) => Strangers::Ignore,
        Some(SenderPolicy::Open) | None if has_lists(access, platform) => Strangers::Ignore,
        Some(SenderPolicy::Open) | None => Strangers::Pair,
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

fn accepts_bots(bots: Bots) -> bool {
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

fn own_policy(platform: &PlatformAccess, chat: ChatType) -> Option<SenderPolicy> {
    platform.adapter_policy.map(|own| if chat == ChatType::Dm { own.dm } else { own.group })
}

/// Whether a list contains the user id, or its part before an `@`.
fn names(list: &[String], user: &str) -> bool {
    let bare = user.split('@').next().filter(|bare| !bare.is_empty());
    list.iter().any(|entry| entry == "*" || entry == user || Some(entry.as_str()) == bare)
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tiers {
    pub dm: Tier,
    pub group: Tier,
}

/// Without administrators, all users may run all commands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tier {
    pub admins: Vec<String>,
    /// Commands for other users besides `help` and `whoami`. `None` in a DM: the list of groups.
    pub commands: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionActivity {
    Idle,
    /// While a turn runs, `status` is allowed for all.
    TurnRunning,
}

fn is_admin(tiers: &Tiers, chat: ChatType, user: Option<&str>) -> bool {
    let admins = if chat == ChatType::Dm { &tiers.dm.admins } else { &tiers.group.admins };
    admins.is_empty() || user.is_some_and(|user| names(admins, user))
}

/// Whether a direct message is from the owner: one of the named administrators or, if none are named, the only person in
/// the allowlists of all platforms. Pairing does not make an owner, and with a second listed or paired person there is no
/// owner. `upstream`: a relay applies a policy that is unknown here.
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
    if upstream || access.allow_all || platform.allow_all || platform.adapter_policy.is_some() {
        return false;
    }
    let everywhere = access.platforms.values().flat_map(|it| it.users.iter().chain(&it.group_users));
    let mut people: Vec<&String> = access.users.iter().chain(everywhere).chain(paired).collect();
    people.sort_unstable();
    people.dedup();
    people.len() == 1 && (named(&access.users) || named(&platform.users))
}

/// Whether the author may approve commands for longer than once or switch approvals off: an administrator of this kind of
/// chat; if none is named, one of direct messages; otherwise the owner. A list with `*` names no administrator. The
/// arguments are those of `is_owner`.
pub fn may_grant_lasting_approval(
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
pub fn may_run(
    tiers: &Tiers,
    chat: ChatType,
    user: Option<&str>,
    command: &str,
    moment: SessionActivity,
) -> bool {
    let direct = chat == ChatType::Dm;
    let tier = if direct { &tiers.dm } else { &tiers.group };
    if is_admin(tiers, chat, user) {
        return true;
    }
    if matches!(Name::find(command), Some(Name::Help | Name::Whoami)) {
        return true;
    }
    if moment == SessionActivity::TurnRunning && Name::find(command) == Some(Name::Status) {
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

pub fn parse_list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(ToString::to_string).collect()
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
