use super::*;

fn platform(name: &str) -> Platform {
    Platform::parse(name).unwrap()
}

fn from(name: &str, chat: ChatType, user: &str) -> Source {
    let mut source = Source::new(platform(name), chat, if chat == ChatType::Dm { user } else { "-100" });
    source.user_id = Some(user.into()).filter(|id: &String| !id.is_empty());
    source
}

fn telegram(change: impl FnOnce(&mut PlatformAccess)) -> Access {
    let mut it = PlatformAccess::default();
    change(&mut it);
    Access { platforms: [(platform("telegram"), it)].into(), ..Access::default() }
}

const ALLOW: AccessDecision = AccessDecision::Allow;
const SILENT: AccessDecision = AccessDecision::Deny(Denial::Silent);
const PAIR: AccessDecision = AccessDecision::Deny(Denial::OfferPairing);

#[track_caller]
fn check(access: &Access, source: &Source, want: AccessDecision) {
    assert_eq!(decide(access, source, SenderTrust::default()), want, "{source:?}");
}

#[test]
fn denies_by_default_and_offers_strangers_pairing() {
    let access = Access::default();
    check(&access, &from("telegram", ChatType::Dm, "7"), PAIR);
    check(&access, &from("telegram", ChatType::Group, "7"), SILENT);
    check(&access, &from("telegram", ChatType::Dm, ""), SILENT);
    check(&access, &from("email", ChatType::Dm, "a@b.c"), SILENT);
}

#[test]
fn denies_strangers_silently_if_there_is_a_list() {
    let access = telegram(|it| it.users = parse_list("1, 2"));
    check(&access, &from("telegram", ChatType::Dm, "2"), ALLOW);
    check(&access, &from("telegram", ChatType::Group, "2"), ALLOW);
    check(&access, &from("telegram", ChatType::Dm, "7"), SILENT);
    check(&access, &from("telegram", ChatType::Group, "7"), SILENT);
}

#[test]
fn allows_channels_that_authenticate_callers() {
    for name in ["webhook", "homeassistant", "api_server", "web"] {
        check(&Access::default(), &from(name, ChatType::Dm, ""), ALLOW);
    }
}

#[test]
fn allows_paired_role_and_relay_senders() {
    let access = telegram(|it| it.users = parse_list("1"));
    let stranger = from("telegram", ChatType::Dm, "7");
    for trust in [
        SenderTrust { paired: true, ..SenderTrust::default() },
        SenderTrust { role: true, ..SenderTrust::default() },
        SenderTrust { upstream: true, ..SenderTrust::default() },
    ] {
        assert_eq!(decide(&access, &stranger, trust), ALLOW, "{trust:?}");
    }
}

#[test]
fn sender_policy_limits_who_is_allowed() {
    let trusted = SenderTrust { upstream: true, ..SenderTrust::default() };
    let paired = SenderTrust { paired: true, ..SenderTrust::default() };
    let with = |dm: SenderPolicy| {
        telegram(|it| {
            it.users = parse_list("1");
            it.allow_all = true;
            it.limits = PlatformLimits { dm: Some(dm), ..PlatformLimits::default() };
        })
    };
    let listed = from("telegram", ChatType::Dm, "1");
    let other = from("telegram", ChatType::Dm, "7");
    for (policy, source, trust, want) in [
        (SenderPolicy::Disabled, &listed, trusted, SILENT),
        (SenderPolicy::Allowlist, &listed, trusted, ALLOW),
        (SenderPolicy::Allowlist, &other, trusted, SILENT),
        (SenderPolicy::Allowlist, &other, paired, SILENT),
        (SenderPolicy::Pairing, &other, paired, ALLOW),
        (SenderPolicy::Pairing, &other, trusted, PAIR),
        (SenderPolicy::Open, &other, trusted, ALLOW),
    ] {
        assert_eq!(decide(&with(policy), source, trust), want, "{policy:?} {trust:?}");
    }
    let groups = with(SenderPolicy::Disabled);
    check(&groups, &from("telegram", ChatType::Group, "7"), ALLOW);
    let closed = telegram(|it| {
        it.limits = PlatformLimits { group: Some(SenderPolicy::Open), ..PlatformLimits::default() }
    });
    check(&closed, &from("telegram", ChatType::Group, "7"), SILENT);
}

#[test]
fn platform_limits_override_all_permissions() {
    let trusted = SenderTrust { upstream: true, paired: true, role: true };
    let with = |limits: PlatformLimits| {
        telegram(|it| {
            it.allow_all = true;
            it.group_chats = parse_list("*");
            it.bots = Bots::All;
            it.limits = limits;
        })
    };
    let dm = from("telegram", ChatType::Dm, "7");
    let group = from("telegram", ChatType::Group, "7");
    let thread = Source { thread_id: Some("5".into()), ..from("telegram", ChatType::Thread, "7") };
    let bot = Source { is_bot: true, ..group.clone() };
    let chats = |ids: &str| PlatformLimits { chats: Some(parse_list(ids)), ..PlatformLimits::default() };
    let ignored = |ids: &str| PlatformLimits { ignored: parse_list(ids), ..PlatformLimits::default() };
    let closed = |closed: ClosedFor| PlatformLimits { closed, ..PlatformLimits::default() };
    for (limits, source, want) in [
        (PlatformLimits::default(), &group, ALLOW),
        (closed(ClosedFor::Groups), &group, SILENT),
        (closed(ClosedFor::Groups), &thread, SILENT),
        (closed(ClosedFor::Groups), &dm, ALLOW),
        (closed(ClosedFor::Everything), &dm, SILENT),
        (chats("-100"), &group, ALLOW),
        (chats("*"), &group, ALLOW),
        (chats("-5"), &group, SILENT),
        (chats("-5"), &dm, ALLOW),
        (chats(""), &group, SILENT),
        (ignored("-100"), &group, SILENT),
        (ignored("5"), &thread, SILENT),
        (ignored("5"), &group, ALLOW),
        (PlatformLimits { no_bots: true, ..PlatformLimits::default() }, &bot, SILENT),
        (PlatformLimits { no_bots: true, ..PlatformLimits::default() }, &group, ALLOW),
    ] {
        assert_eq!(decide(&with(limits.clone()), source, trusted), want, "{limits:?} {source:?}");
    }
}

#[test]
fn allows_anonymous_senders_in_open_groups() {
    for access in [
        telegram(|it| it.group_chats = parse_list("-100")),
        telegram(|it| it.group_chats = parse_list("*")),
        telegram(|it| it.group_users = parse_list("-100")),
    ] {
        check(&access, &from("telegram", ChatType::Group, ""), ALLOW);
        check(&access, &from("telegram", ChatType::Dm, "7"), SILENT);
    }
    check(&telegram(|it| it.group_chats = parse_list("-5")), &from("telegram", ChatType::Group, "7"), SILENT);
}

#[test]
fn applies_group_users_in_groups_only() {
    let access = telegram(|it| it.group_users = parse_list("7"));
    check(&access, &from("telegram", ChatType::Group, "7"), ALLOW);
    check(&access, &from("telegram", ChatType::Dm, "7"), SILENT);
}

#[test]
fn allows_bots_if_the_platform_is_configured_so() {
    let mut bot = from("telegram", ChatType::Group, "9");
    bot.is_bot = true;
    check(&telegram(|it| it.bots = Bots::Mentions), &bot, ALLOW);
    check(&telegram(|it| it.bots = Bots::None), &bot, SILENT);
}

#[test]
fn any_list_overrides_allow_all() {
    let stranger = from("telegram", ChatType::Dm, "7");
    let everyone = Access { allow_all: true, ..Access::default() };
    check(&everyone, &stranger, ALLOW);
    check(&Access { users: parse_list("1"), ..everyone }, &stranger, SILENT);
    check(&telegram(|it| it.allow_all = true), &stranger, ALLOW);
    check(&telegram(|it| it.users = parse_list("*")), &stranger, ALLOW);
    check(&Access { users: parse_list("7"), ..Access::default() }, &stranger, ALLOW);
}

#[test]
fn matches_the_id_before_an_at_sign() {
    let access = Access { users: parse_list("4917"), ..Access::default() };
    check(&access, &from("whatsapp", ChatType::Dm, "4917@s.whatsapp.net"), ALLOW);
    check(&access, &from("whatsapp", ChatType::Dm, "@s.whatsapp.net"), SILENT);
}

#[test]
fn trusts_the_allowlist_of_the_adapter() {
    let own =
        |dm| telegram(|it| it.adapter_policy = Some(AdapterPolicy { dm, group: SenderPolicy::Disabled }));
    let stranger = from("telegram", ChatType::Dm, "7");
    check(&own(SenderPolicy::Allowlist), &stranger, ALLOW);
    check(&own(SenderPolicy::Pairing), &stranger, PAIR);
    check(&own(SenderPolicy::Disabled), &stranger, SILENT);
    check(&own(SenderPolicy::Open), &stranger, PAIR);
    check(&own(SenderPolicy::Allowlist), &from("telegram", ChatType::Group, "7"), SILENT);
}

#[test]
fn prefers_the_platforms_policy_for_strangers() {
    let stranger = from("telegram", ChatType::Dm, "7");
    let mut access = telegram(|it| {
        it.users = parse_list("1");
        it.strangers = Some(Strangers::Pair);
    });
    check(&access, &stranger, PAIR);
    access.strangers = Strangers::Ignore;
    check(&access, &stranger, PAIR);
    access.platforms.clear();
    check(&access, &stranger, SILENT);
}

#[track_caller]
fn may(tiers: &Tiers, chat: ChatType, user: &str, command: &str, activity: SessionActivity, want: bool) {
    assert_eq!(
        may_run(tiers, chat, Some(user), command, activity),
        want,
        "{user} /{command} {chat:?} {activity:?}"
    );
}

#[test]
fn limits_other_users_to_listed_commands() {
    let dm = Tier { admins: parse_list("1"), commands: Some(parse_list("/status,reset")) };
    let tiers = Tiers { dm, group: Tier::default() };
    for activity in [SessionActivity::Idle, SessionActivity::TurnRunning] {
        for (user, command, want) in [
            ("1", "restart", true),
            ("2", "restart", false),
            ("2", "status", true),
            ("2", "help", true),
            ("2", "commands", true),
            ("2", "whoami", true),
            ("2", "new", true),
            ("2", "model", false),
        ] {
            may(&tiers, ChatType::Dm, user, command, activity, want);
        }
    }
    may(&tiers, ChatType::Group, "2", "restart", SessionActivity::Idle, true);
}

#[test]
fn uses_group_commands_but_not_group_admins_in_dms() {
    let tiers = Tiers {
        dm: Tier { admins: parse_list("1"), commands: None },
        group: Tier { admins: parse_list("5"), commands: Some(parse_list("usage")) },
    };
    may(&tiers, ChatType::Dm, "5", "usage", SessionActivity::Idle, true);
    may(&tiers, ChatType::Dm, "5", "model", SessionActivity::Idle, false);
    may(&tiers, ChatType::Group, "1", "model", SessionActivity::Idle, false);
    may(&tiers, ChatType::Group, "1", "status", SessionActivity::TurnRunning, true);
    may(&tiers, ChatType::Group, "1", "status", SessionActivity::Idle, false);
}

#[test]
fn recognises_the_owner() {
    let dm = |user: &str| from("telegram", ChatType::Dm, user);
    let admins =
        |who: &str| Tiers { dm: Tier { admins: parse_list(who), commands: None }, group: Tier::default() };
    let one = telegram(|it| it.users = parse_list("7"));
    let two = telegram(|it| it.users = parse_list("7, 8"));
    let mut elsewhere = one.clone();
    let discord = PlatformAccess { users: parse_list("8"), ..PlatformAccess::default() };
    elsewhere.platforms.insert(Platform::parse("discord").unwrap(), discord);
    let none: &[String] = &[];
    let paired = parse_list("7");
    for (what, access, tiers, source, paired, want) in [
        ("the only listed person", &one, None, dm("7"), none, true),
        ("one of two listed", &two, None, dm("7"), none, false),
        ("listed and paired are the same", &one, None, dm("7"), &paired[..], true),
        ("only paired, not listed", &Access::default(), None, dm("7"), &paired[..], false),
        ("another one", &Access::default(), None, dm("8"), &paired[..], false),
        (
            "paired beside a listed one",
            &telegram(|it| it.users = parse_list("8")),
            None,
            dm("7"),
            &paired[..],
            false,
        ),
        ("the only one of this platform", &elsewhere, None, dm("7"), none, false),
        ("everyone is admitted", &telegram(|it| it.allow_all = true), None, dm("7"), none, false),
        ("a list of everyone", &telegram(|it| it.users = parse_list("*")), None, dm("7"), none, false),
        ("a named administrator", &two, Some(admins("7")), dm("7"), none, true),
        ("not the administrator", &one, Some(admins("8")), dm("7"), none, false),
        ("everyone administers", &one, Some(admins("*")), dm("7"), none, false),
        ("no administrators named", &one, Some(Tiers::default()), dm("7"), none, true),
        ("in a group", &one, Some(admins("7")), from("telegram", ChatType::Group, "7"), none, false),
        ("without a name", &one, None, dm(""), none, false),
    ] {
        assert_eq!(is_owner(access, tiers.as_ref(), &source, paired, false), want, "{what}");
    }
    assert!(!is_owner(&one, None, &dm("7"), none, true), "a relay applies its own policy");
}

#[test]
fn lasting_approvals_need_an_admin_or_the_owner() {
    let dm = |user: &str| from("telegram", ChatType::Dm, user);
    let group = |user: &str| from("telegram", ChatType::Group, user);
    let tier = |who: &str| Tier { admins: parse_list(who), commands: None };
    let tiers = |dm: &str, group: &str| Some(Tiers { dm: tier(dm), group: tier(group) });
    let one = telegram(|it| it.users = parse_list("7"));
    let open_group = telegram(|it| {
        it.users = parse_list("7");
        it.group_chats = parse_list("*");
    });
    let everyone = Access { allow_all: true, ..Access::default() };
    for (what, access, tiers, source, want) in [
        ("admin of direct messages", &everyone, tiers("1", ""), dm("1"), true),
        ("guest beside an admin", &everyone, tiers("1", ""), dm("7"), false),
        ("admin of groups", &everyone, tiers("1", "2"), group("2"), true),
        (
            "admin of direct messages where groups have their own",
            &everyone,
            tiers("1", "2"),
            group("1"),
            false,
        ),
        ("admin of direct messages where groups have none", &everyone, tiers("1", ""), group("1"), true),
        ("guest of a group without admins of its own", &everyone, tiers("1", ""), group("7"), false),
        ("admin of groups in a direct message", &everyone, tiers("", "2"), dm("2"), false),
        ("no admins, everyone admitted", &everyone, None, dm("7"), false),
        ("no admins, everyone admitted, in a group", &everyone, None, group("7"), false),
        ("the owner", &one, None, dm("7"), true),
        ("the owner, no admins named", &one, tiers("", ""), dm("7"), true),
        ("the owner in a group", &open_group, None, group("7"), true),
        ("a guest of the owner's group", &open_group, None, group("8"), false),
        ("a list of everyone", &one, tiers("*", "*"), group("7"), false),
        ("without a name", &one, tiers("1", "1"), group(""), false),
    ] {
        assert_eq!(may_grant_lasting_approval(access, tiers.as_ref(), &source, &[], false), want, "{what}");
    }
}
