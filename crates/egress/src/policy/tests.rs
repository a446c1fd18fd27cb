use super::*;

fn to(authority: &str) -> HostPort {
    HostPort::parse(authority).unwrap_or_else(|error| panic!("{authority}: {error}"))
}

fn policy(unlisted: UnlistedHosts) -> NetworkPolicy {
    let rules = |all: &[&str]| all.iter().map(|rule| rule.parse().unwrap()).collect();
    NetworkPolicy {
        unlisted,
        allow: rules(&[
            "*.listed.org",
            "git.corp:443",
            "db.listed.org:5432",
            "127.0.0.1:3000",
            "169.254.169.254:81",
        ]),
        deny: rules(&["evil.listed.org", "127.0.0.1:3001", "9.9.9.9"]),
        own_ports: vec![8642],
    }
}

#[track_caller]
fn check(unlisted: UnlistedHosts, authority: &str, want: Verdict) {
    assert_eq!(policy(unlisted).judge(&to(authority)), want, "{unlisted:?} {authority}");
}

#[track_caller]
fn check_in_every_mode(authority: &str, want: Verdict) {
    for unlisted in [UnlistedHosts::Ask, UnlistedHosts::Deny, UnlistedHosts::Allow] {
        check(unlisted, authority, want.clone());
    }
}

fn blocked(why: BlockedAddress) -> Verdict {
    Verdict::Refused(Refusal::Blocked(why))
}

#[test]
fn rules_are_the_same_in_every_mode() {
    check_in_every_mode("a.listed.org:443", Verdict::Allowed(AddressScope::Public));
    check_in_every_mode("db.listed.org:5432", Verdict::Allowed(AddressScope::Listed));
    check_in_every_mode("git.corp:443", Verdict::Allowed(AddressScope::Listed));
    check_in_every_mode("localhost:3000", Verdict::Allowed(AddressScope::Listed));
    check_in_every_mode("evil.listed.org:443", Verdict::Refused(Refusal::DenyList));
    check_in_every_mode("localhost:3001", Verdict::Refused(Refusal::DenyList));
}

#[test]
fn internal_destinations_are_refused_in_every_mode() {
    for authority in ["10.0.0.1:443", "192.168.257:80", "[fd00::1]:443", "[::ffff:10.0.0.1]:443"] {
        check_in_every_mode(authority, blocked(BlockedAddress::Private));
    }
    for authority in ["169.254.169.254:80", "2852039166:80", "0xa9fea9fe:80", "[::ffff:a9fe:a9fe]:80"] {
        check_in_every_mode(authority, blocked(BlockedAddress::Metadata));
    }
    for authority in ["metadata.google.internal:80", "printer.local:631", "intranet:80", "git.corp.lan:443"] {
        check_in_every_mode(authority, blocked(BlockedAddress::LocalName));
    }
    for authority in ["127.0.0.1:8642", "localhost:8642", "[::1]:8642", "0177.0.0.1:8642"] {
        check_in_every_mode(authority, Verdict::Refused(Refusal::OwnListener));
    }
}

#[test]
fn unlisted_hosts_follow_the_mode() {
    for (unlisted, web, ssh, loopback) in [
        (
            UnlistedHosts::Ask,
            Verdict::NeedsApproval(AddressScope::Public),
            Verdict::NeedsApproval(AddressScope::Public),
            Verdict::NeedsApproval(AddressScope::Loopback),
        ),
        (
            UnlistedHosts::Deny,
            Verdict::Refused(Refusal::NotListed),
            Verdict::Refused(Refusal::NotListed),
            blocked(BlockedAddress::Loopback),
        ),
        (
            UnlistedHosts::Allow,
            Verdict::Allowed(AddressScope::Public),
            Verdict::Refused(Refusal::NotListed),
            blocked(BlockedAddress::Loopback),
        ),
    ] {
        check(unlisted, "example.org:443", web.clone());
        check(unlisted, "1.1.1.1:80", web);
        check(unlisted, "example.org:22", ssh);
        check(unlisted, "localhost:5432", loopback);
    }
}

#[track_caller]
fn resolved(authority: &str, scope: AddressScope, ip: &str, owner: AddressOwner, want: Result<(), Refusal>) {
    let got = policy(UnlistedHosts::Ask).check_resolved(&to(authority), scope, ip.parse().unwrap(), owner);
    assert_eq!(got, want, "{authority} ({scope:?}) at {ip}, {owner:?}");
}

#[test]
fn public_names_reach_public_addresses_only() {
    use AddressOwner::{Other, ThisMachine};
    let public = AddressScope::Public;
    resolved("example.org:443", public, "1.1.1.1", Other, Ok(()));
    resolved("example.org:443", public, "9.9.9.9", Other, Err(Refusal::DenyList));
    for (ip, why) in [
        ("10.0.0.1", BlockedAddress::Private),
        ("169.254.169.254", BlockedAddress::Metadata),
        ("127.0.0.1", BlockedAddress::Loopback),
        ("::1", BlockedAddress::Loopback),
        ("::ffff:127.0.0.1", BlockedAddress::Loopback),
        ("0.0.0.0", BlockedAddress::Unspecified),
        ("fe80::1", BlockedAddress::LinkLocal),
    ] {
        resolved("example.org:443", public, ip, Other, Err(Refusal::Blocked(why)));
    }
    resolved(
        "example.org:443",
        public,
        "1.1.1.1",
        ThisMachine,
        Err(Refusal::Blocked(BlockedAddress::Loopback)),
    );
    resolved("example.org:8642", public, "1.1.1.1", ThisMachine, Err(Refusal::OwnListener));
}

#[test]
fn listed_names_reach_private_networks_but_not_this_machine() {
    use AddressOwner::{Other, ThisMachine};
    let listed = AddressScope::Listed;
    resolved("git.corp:443", listed, "10.0.0.1", Other, Ok(()));
    resolved("git.corp:443", listed, "100.64.0.1", Other, Ok(()));
    for (ip, why) in [
        ("127.0.0.1", BlockedAddress::Loopback),
        ("169.254.169.254", BlockedAddress::Metadata),
        ("169.254.1.1", BlockedAddress::LinkLocal),
    ] {
        resolved("git.corp:443", listed, ip, Other, Err(Refusal::Blocked(why)));
    }
    resolved("git.corp:443", listed, "1.1.1.1", ThisMachine, Err(Refusal::Blocked(BlockedAddress::Loopback)));
    resolved("169.254.169.254:81", listed, "169.254.169.254", Other, Ok(()));
}

#[test]
fn approved_loopback_services_stay_at_their_address() {
    let loopback = AddressScope::Loopback;
    resolved("localhost:5432", loopback, "127.0.0.1", AddressOwner::ThisMachine, Ok(()));
    resolved("localhost:8642", loopback, "127.0.0.1", AddressOwner::ThisMachine, Err(Refusal::OwnListener));
    resolved(
        "localhost:5432",
        loopback,
        "10.0.0.1",
        AddressOwner::Other,
        Err(Refusal::Blocked(BlockedAddress::Private)),
    );
}
