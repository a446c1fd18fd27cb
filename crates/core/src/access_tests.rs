//! The access table, case by case.

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

const ALLOW: Verdict = Verdict::Allow;
const SILENT: Verdict = Verdict::Deny(Refusal::Silently);
const PAIR: Verdict = Verdict::Deny(Refusal::OfferPairing);

#[track_caller]
fn check(access: &Access, source: &Source, want: Verdict) {
    assert_eq!(decide(access, source, Standing::default()), want, "{source:?}");
}

#[test]
fn nobody_is_admitted_by_default_and_a_stranger_is_offered_pairing() {
    let access = Access::default();
    check(&access, &from("telegram", ChatType::Dm, "7"), PAIR);
    check(&access, &from("telegram", ChatType::Group, "7"), SILENT);
    check(&access, &from("telegram", ChatType::Dm, ""), SILENT);
    check(&access, &from("email", ChatType::Dm, "a@b.c"), SILENT);
}

#[test]
fn with_a_list_strangers_hear_nothing() {
    let access = telegram(|it| it.users = list("1, 2"));
    check(&access, &from("telegram", ChatType::Dm, "2"), ALLOW);
    check(&access, &from("telegram", ChatType::Group, "2"), ALLOW);
    check(&access, &from("telegram", ChatType::Dm, "7"), SILENT);
    check(&access, &from("telegram", ChatType::Group, "7"), SILENT);
}

#[test]
fn channels_that_authenticate_their_callers_are_admitted() {
    for name in ["webhook", "homeassistant", "api_server", "web"] {
        check(&Access::default(), &from(name, ChatType::Dm, ""), ALLOW);
    }
}

#[test]
fn pairing_role_and_relay_add_to_the_lists() {
    let access = telegram(|it| it.users = list("1"));
    let stranger = from("telegram", ChatType::Dm, "7");
    for standing in [
        Standing { paired: true, ..Standing::default() },
        Standing { role: true, ..Standing::default() },
        Standing { upstream: true, ..Standing::default() },
    ] {
        assert_eq!(decide(&access, &stranger, standing), ALLOW, "{standing:?}");
    }
}

#[test]
fn a_chat_policy_admits_only_what_it_names() {
    let everybody = Standing { upstream: true, ..Standing::default() };
    let paired = Standing { paired: true, ..Standing::default() };
    let with = |dm: Policy| {
        telegram(|it| {
            it.users = list("1");
            it.allow_all = true;
            it.limits = Limits { dm: Some(dm), ..Limits::default() };
        })
    };
    let (listed, other) = (from("telegram", ChatType::Dm, "1"), from("telegram", ChatType::Dm, "7"));
    for (policy, source, standing, want) in [
        (Policy::Disabled, &listed, everybody, SILENT),
        (Policy::Allowlist, &listed, everybody, ALLOW),
        (Policy::Allowlist, &other, everybody, SILENT),
        (Policy::Allowlist, &other, paired, SILENT),
        (Policy::Pairing, &other, paired, ALLOW),
        (Policy::Pairing, &other, everybody, PAIR),
        (Policy::Open, &other, everybody, ALLOW),
    ] {
        assert_eq!(decide(&with(policy), source, standing), want, "{policy:?} {standing:?}");
    }
    let groups = with(Policy::Disabled);
    check(&groups, &from("telegram", ChatType::Group, "7"), ALLOW);
    let nobody = telegram(|it| it.limits = Limits { group: Some(Policy::Open), ..Limits::default() });
    check(&nobody, &from("telegram", ChatType::Group, "7"), SILENT);
}

#[test]
fn limits_of_a_platform_come_before_everything_that_admits() {
    let everybody = Standing { upstream: true, paired: true, role: true };
    let with = |limits: Limits| {
        telegram(|it| {
            it.allow_all = true;
            it.group_chats = list("*");
            it.bots = Bots::All;
            it.limits = limits;
        })
    };
    let dm = from("telegram", ChatType::Dm, "7");
    let group = from("telegram", ChatType::Group, "7");
    let thread = Source { thread_id: Some("5".into()), ..from("telegram", ChatType::Thread, "7") };
    let bot = Source { is_bot: true, ..group.clone() };
    let chats = |ids: &str| Limits { chats: Some(list(ids)), ..Limits::default() };
    let ignored = |ids: &str| Limits { ignored: list(ids), ..Limits::default() };
    let closed = |closed: Closed| Limits { closed, ..Limits::default() };
    for (limits, source, want) in [
        (Limits::default(), &group, ALLOW),
        (closed(Closed::Groups), &group, SILENT),
        (closed(Closed::Groups), &thread, SILENT),
        (closed(Closed::Groups), &dm, ALLOW),
        (closed(Closed::Everything), &dm, SILENT),
        (chats("-100"), &group, ALLOW),
        (chats("*"), &group, ALLOW),
        (chats("-5"), &group, SILENT),
        (chats("-5"), &dm, ALLOW),
        (chats(""), &group, SILENT),
        (ignored("-100"), &group, SILENT),
        (ignored("5"), &thread, SILENT),
        (ignored("5"), &group, ALLOW),
        (Limits { no_bots: true, ..Limits::default() }, &bot, SILENT),
        (Limits { no_bots: true, ..Limits::default() }, &group, ALLOW),
    ] {
        assert_eq!(decide(&with(limits.clone()), source, everybody), want, "{limits:?} {source:?}");
    }
}

#[test]
fn an_open_group_admits_even_anonymous_senders() {
    for access in [
        telegram(|it| it.group_chats = list("-100")),
        telegram(|it| it.group_chats = list("*")),
        telegram(|it| it.group_users = list("-100")),
    ] {
        check(&access, &from("telegram", ChatType::Group, ""), ALLOW);
        check(&access, &from("telegram", ChatType::Dm, "7"), SILENT);
    }
    check(&telegram(|it| it.group_chats = list("-5")), &from("telegram", ChatType::Group, "7"), SILENT);
}

#[test]
fn group_users_count_in_groups_only() {
    let access = telegram(|it| it.group_users = list("7"));
    check(&access, &from("telegram", ChatType::Group, "7"), ALLOW);
    check(&access, &from("telegram", ChatType::Dm, "7"), SILENT);
}

#[test]
fn other_bots_are_taken_if_the_platform_says_so() {
    let mut bot = from("telegram", ChatType::Group, "9");
    bot.is_bot = true;
    check(&telegram(|it| it.bots = Bots::Mentions), &bot, ALLOW);
    check(&telegram(|it| it.bots = Bots::None), &bot, SILENT);
}

#[test]
fn allow_all_of_the_gateway_yields_to_any_list() {
    let stranger = from("telegram", ChatType::Dm, "7");
    let everyone = Access { allow_all: true, ..Access::default() };
    check(&everyone, &stranger, ALLOW);
    check(&Access { users: list("1"), ..everyone }, &stranger, SILENT);
    check(&telegram(|it| it.allow_all = true), &stranger, ALLOW);
    check(&telegram(|it| it.users = list("*")), &stranger, ALLOW);
    check(&Access { users: list("7"), ..Access::default() }, &stranger, ALLOW);
}

#[test]
fn the_id_before_an_at_sign_counts() {
    let access = Access { users: list("4917"), ..Access::default() };
    check(&access, &from("whatsapp", ChatType::Dm, "4917@s.whatsapp.net"), ALLOW);
    check(&access, &from("whatsapp", ChatType::Dm, "@s.whatsapp.net"), SILENT);
}

#[test]
fn an_adapter_with_its_own_list_has_already_decided() {
    let own = |dm| telegram(|it| it.own = Some(OwnPolicy { dm, group: Policy::Disabled }));
    let stranger = from("telegram", ChatType::Dm, "7");
    check(&own(Policy::Allowlist), &stranger, ALLOW);
    check(&own(Policy::Pairing), &stranger, PAIR);
    check(&own(Policy::Disabled), &stranger, SILENT);
    check(&own(Policy::Open), &stranger, PAIR);
    check(&own(Policy::Allowlist), &from("telegram", ChatType::Group, "7"), SILENT);
}

#[test]
fn the_platform_overrules_the_gateway_on_strangers() {
    let stranger = from("telegram", ChatType::Dm, "7");
    let mut access = telegram(|it| {
        it.users = list("1");
        it.strangers = Some(Strangers::Pair);
    });
    check(&access, &stranger, PAIR);
    access.strangers = Strangers::Ignore;
    check(&access, &stranger, PAIR);
    access.platforms.clear();
    check(&access, &stranger, SILENT);
}

#[track_caller]
fn may(tiers: &Tiers, chat: ChatType, user: &str, command: &str, moment: Moment, want: bool) {
    assert_eq!(
        may_run(tiers, chat, Some(user), command, moment),
        want,
        "{user} /{command} {chat:?} {moment:?}"
    );
}

#[test]
fn others_run_only_what_is_listed_even_while_a_turn_runs() {
    let dm = Tier { admins: list("1"), commands: Some(list("/status,reset")) };
    let tiers = Tiers { dm, group: Tier::default() };
    for moment in [Moment::Idle, Moment::TurnRunning] {
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
            may(&tiers, ChatType::Dm, user, command, moment, want);
        }
    }
    may(&tiers, ChatType::Group, "2", "restart", Moment::Idle, true);
}

#[test]
fn the_command_list_of_groups_serves_direct_chats_but_their_admins_do_not() {
    let tiers = Tiers {
        dm: Tier { admins: list("1"), commands: None },
        group: Tier { admins: list("5"), commands: Some(list("usage")) },
    };
    may(&tiers, ChatType::Dm, "5", "usage", Moment::Idle, true);
    may(&tiers, ChatType::Dm, "5", "model", Moment::Idle, false);
    may(&tiers, ChatType::Group, "1", "model", Moment::Idle, false);
    may(&tiers, ChatType::Group, "1", "status", Moment::TurnRunning, true);
    may(&tiers, ChatType::Group, "1", "status", Moment::Idle, false);
}

#[test]
fn the_owner_is_named_or_the_only_one_admitted() {
    let dm = |user: &str| from("telegram", ChatType::Dm, user);
    let admins = |who: &str| Tiers { dm: Tier { admins: list(who), commands: None }, group: Tier::default() };
    let one = telegram(|it| it.users = list("7"));
    let two = telegram(|it| it.users = list("7, 8"));
    let mut elsewhere = one.clone();
    let discord = PlatformAccess { users: list("8"), ..PlatformAccess::default() };
    elsewhere.platforms.insert(Platform::parse("discord").unwrap(), discord);
    let nobody: &[String] = &[];
    let paired = list("7");
    for (what, access, tiers, source, paired, want) in [
        ("the only listed person", &one, None, dm("7"), nobody, true),
        ("one of two listed", &two, None, dm("7"), nobody, false),
        ("listed and paired are the same", &one, None, dm("7"), &paired[..], true),
        ("only paired, not listed", &Access::default(), None, dm("7"), &paired[..], false),
        ("another one", &Access::default(), None, dm("8"), &paired[..], false),
        (
            "paired beside a listed one",
            &telegram(|it| it.users = list("8")),
            None,
            dm("7"),
            &paired[..],
            false,
        ),
        ("the only one of this platform", &elsewhere, None, dm("7"), nobody, false),
        ("everyone is admitted", &telegram(|it| it.allow_all = true), None, dm("7"), nobody, false),
        ("a list of everyone", &telegram(|it| it.users = list("*")), None, dm("7"), nobody, false),
        ("a named administrator", &two, Some(admins("7")), dm("7"), nobody, true),
        ("not the administrator", &one, Some(admins("8")), dm("7"), nobody, false),
        ("everyone administers", &one, Some(admins("*")), dm("7"), nobody, false),
        ("no administrators named", &one, Some(Tiers::default()), dm("7"), nobody, true),
        ("in a group", &one, Some(admins("7")), from("telegram", ChatType::Group, "7"), nobody, false),
        ("without a name", &one, None, dm(""), nobody, false),
    ] {
        assert_eq!(is_owner(access, tiers.as_ref(), &source, paired, false), want, "{what}");
    }
    assert!(!is_owner(&one, None, &dm("7"), nobody, true), "a relay admits whom it likes");
}

#[test]
fn lasting_decisions_need_a_named_admin_or_the_owner() {
    let dm = |user: &str| from("telegram", ChatType::Dm, user);
    let group = |user: &str| from("telegram", ChatType::Group, user);
    let tier = |who: &str| Tier { admins: list(who), commands: None };
    let tiers = |dm: &str, group: &str| Some(Tiers { dm: tier(dm), group: tier(group) });
    let one = telegram(|it| it.users = list("7"));
    let open_group = telegram(|it| {
        it.users = list("7");
        it.group_chats = list("*");
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
        assert_eq!(may_decide_lastingly(access, tiers.as_ref(), &source, &[], false), want, "{what}");
    }
}
