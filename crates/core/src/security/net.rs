//! SSRF protection: the addresses that a fetch on behalf of others may connect to.
//!
//! A link from a chat, a page or a model must not reach this machine, its network or cloud metadata. `check_host` judges
//! the host of a link, `check_address` the result of name resolution. Both are required for each redirect hop, and the
//! connection must use the checked address, because a second resolution may differ.
//!
//! Unknown address space is blocked: of IPv6 only the public unicast space is allowed, and an address with an embedded
//! IPv4 address is judged by that one.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockedAddress {
    /// No host, or one that resolvers and people read differently.
    Malformed,
    /// A name of this machine or its network.
    LocalName,
    Unspecified,
    Loopback,
    Private,
    /// Carrier-grade NAT (100.64.0.0/10).
    Shared,
    LinkLocal,
    /// Cloud metadata services, which hand out credentials.
    Metadata,
    Multicast,
    /// Documentation, benchmarks, protocol assignments, future use, tunnels with unknown ends.
    Reserved,
}

impl BlockedAddress {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed host",
            Self::LocalName => "local name",
            Self::Unspecified => "unspecified address",
            Self::Loopback => "loopback address",
            Self::Private => "private address",
            Self::Shared => "shared provider address",
            Self::LinkLocal => "link-local address",
            Self::Metadata => "cloud metadata address",
            Self::Multicast => "multicast or broadcast address",
            Self::Reserved => "reserved address",
        }
    }
}

impl fmt::Display for BlockedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl core::error::Error for BlockedAddress {}

pub fn check_address(ip: IpAddr) -> Result<(), BlockedAddress> {
    match ip {
        IpAddr::V4(ip) => v4(ip),
        IpAddr::V6(ip) => v6(ip),
    }
}

/// The host of a link, before its address is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParsedHost<'a> {
    Address(IpAddr),
    /// A name of this machine or its network.
    LocalName(&'a str),
    Name(&'a str),
}

/// Checks the host of a link. `Some`: an allowed address. `None`: a name, whose addresses are still to be checked.
pub fn check_host(host: &str) -> Result<Option<IpAddr>, BlockedAddress> {
    match parse_host(host)? {
        ParsedHost::Address(ip) => check_address(ip).map(|()| Some(ip)),
        ParsedHost::LocalName(_) => Err(BlockedAddress::LocalName),
        ParsedHost::Name(_) => Ok(None),
    }
}

/// Reads the host of a link; the only error is `Malformed`.
///
/// Legacy IPv4 notations (`2130706433`, `0x7f.1`, `0177.0.0.1`) are parsed as a resolver does. The host comes from a URL
/// parser; remaining escapes and non-ASCII characters are rejected. IPv6 may be in brackets.
pub fn parse_host(host: &str) -> Result<ParsedHost<'_>, BlockedAddress> {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let ip = inner.parse::<Ipv6Addr>().map_err(|_bad| BlockedAddress::Malformed)?;
        return Ok(ParsedHost::Address(IpAddr::V6(ip)));
    }
    if let Ok(ip) = host.parse::<Ipv6Addr>() {
        return Ok(ParsedHost::Address(IpAddr::V6(ip)));
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    if !is_name(name) {
        return Err(BlockedAddress::Malformed);
    }
    if ends_in_number(name) {
        let ip = legacy_v4(name).ok_or(BlockedAddress::Malformed)?;
        return Ok(ParsedHost::Address(IpAddr::V4(ip)));
    }
    Ok(if is_local_name(name) { ParsedHost::LocalName(name) } else { ParsedHost::Name(name) })
}

fn v4(ip: Ipv4Addr) -> Result<(), BlockedAddress> {
    let [a, b, c, _] = ip.octets();
    let refused = match (a, b, c) {
        // AWS and most others, AWS containers, Alibaba, Oracle, Azure
        _ if matches!(
            ip.octets(),
            [169, 254, 169, 254]
                | [169, 254, 170, 2]
                | [100, 100, 100, 200]
                | [192, 0, 0, 192]
                | [168, 63, 129, 16]
        ) =>
        {
            BlockedAddress::Metadata
        }
        (0, ..) => BlockedAddress::Unspecified,
        (127, ..) => BlockedAddress::Loopback,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => BlockedAddress::Private,
        (100, 64..=127, _) => BlockedAddress::Shared,
        (169, 254, _) => BlockedAddress::LinkLocal,
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => {
            BlockedAddress::Reserved
        }
        (224..=239, ..) | (255, 255, 255) => BlockedAddress::Multicast,
        (240..=255, ..) => BlockedAddress::Reserved,
        _ => return Ok(()),
    };
    Err(refused)
}

fn v6(ip: Ipv6Addr) -> Result<(), BlockedAddress> {
    let [a, b, c, d, e, f, g, h] = ip.segments();
    let refused = match [a, b, c, d, e, f] {
        _ if ip.is_unspecified() => BlockedAddress::Unspecified,
        _ if ip.is_loopback() => BlockedAddress::Loopback,
        // mapped, translated, NAT64: the IPv4 address is in the last 32 bits
        [0, 0, 0, 0, 0, 0xffff] | [0, 0, 0, 0, 0xffff, 0] | [0x64, 0xff9b, 0, 0, 0, 0] => {
            return v4(joined(g, h));
        }
        // 6to4: the IPv4 address follows the prefix
        [0x2002, high, low, ..] => return v4(joined(high, low)),
        [0xfd00, 0xec2, 0, 0, 0, 0] if (g, h) == (0, 0x254) => BlockedAddress::Metadata,
        [0xfc00..=0xfdff, ..] => BlockedAddress::Private,
        [0xfe80..=0xfebf, ..] => BlockedAddress::LinkLocal,
        [0xfec0..=0xfeff, ..] => BlockedAddress::Private,
        [0xff00..=0xffff, ..] => BlockedAddress::Multicast,
        // protocol assignments (Teredo, ORCHID) and documentation
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => BlockedAddress::Reserved,
        // ISATAP: the IPv4 address is in the interface id
        [0x2000..=0x3fff, _, _, _, 0 | 0x200, 0x5efe] => return v4(joined(g, h)),
        [0x2000..=0x3fff, ..] => return Ok(()),
        _ => BlockedAddress::Reserved,
    };
    Err(refused)
}

fn joined(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))
}

fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn is_local_name(name: &str) -> bool {
    const SUFFIXES: [&str; 6] = ["localhost", "local", "localdomain", "internal", "lan", "arpa"];
    let last = name.rsplit('.').next().unwrap_or(name);
    // single-label names use the search domains of the machine
    !name.contains('.') || SUFFIXES.iter().any(|suffix| last.eq_ignore_ascii_case(suffix))
}

/// Whether the host can only be an IPv4 address: no top-level domain is a number.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last.bytes().all(|byte| byte.is_ascii_digit()) || number(last).is_some()
}

/// One to four numbers, of which the last fills the remaining bytes.
fn legacy_v4(name: &str) -> Option<Ipv4Addr> {
    let count = name.split('.').count();
    if count > 4 {
        return None;
    }
    let mut bits: u64 = 0;
    for (index, part) in name.split('.').enumerate() {
        let value = number(part)?;
        let width = if index + 1 == count { 8 * (5 - count) } else { 8 };
        if value >> width != 0 {
            return None;
        }
        bits = (bits << width) | value;
    }
    u32::try_from(bits).ok().map(Ipv4Addr::from)
}

fn number(part: &str) -> Option<u64> {
    let (digits, radix) = match part.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&part[2..], 16),
        [b'0', _, ..] => (&part[1..], 8),
        _ => (part, 10),
    };
    if digits.is_empty() {
        return (radix == 16).then_some(0);
    }
    // a sign is no digit
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, radix).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Result<(), BlockedAddress>) {
        let got = match text.parse::<IpAddr>() {
            Ok(ip) => check_address(ip),
            Err(_) => check_host(text).map(|_| ()),
        };
        assert_eq!(got, want, "{text}");
        // an address is judged alike however it arrives
        if text.parse::<IpAddr>().is_ok() {
            assert_eq!(check_host(text).map(|_| ()), want, "{text} as a host");
        }
    }

    #[track_caller]
    fn refused(why: BlockedAddress, all: &[&str]) {
        for text in all {
            check(text, Err(why));
        }
    }

    #[test]
    fn allows_public_addresses_and_names() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
            "[2606:4700::1]",
            "134744072",
            "0x08.8.010.8",
            "example.org",
            "example.org.",
            "EXAMPLE.ORG",
            "xn--bcher-kva.example",
            "_dmarc.example.com",
            "1e100.net",
            "localhost.example.com",
            "internal.example.com",
        ] {
            check(text, Ok(()));
        }
    }

    #[test]
    fn blocks_loopback_in_every_notation() {
        refused(
            BlockedAddress::Loopback,
            &[
                "127.0.0.1",
                "127.255.255.255",
                "127.1",
                "127.0.1",
                "2130706433",
                "0x7f000001",
                "0x7F.1",
                "0177.0.0.1",
                "017700000001",
                "127.0.0.1.",
                "::1",
                "[::1]",
                "::ffff:127.0.0.1",
                "[::ffff:7f00:1]",
                "64:ff9b::7f00:1",
                "2002:7f00:1::",
                "::ffff:0:127.0.0.1",
            ],
        );
        refused(
            BlockedAddress::Unspecified,
            &["0.0.0.0", "0", "0x0", "0.1.2.3", "::", "[::]", "::ffff:0.0.0.0"],
        );
    }

    #[test]
    fn blocks_private_networks() {
        refused(
            BlockedAddress::Private,
            &[
                "10.0.0.1",
                "172.16.0.1",
                "172.31.255.255",
                "192.168.0.1",
                "192.168.257",
                "3232235521",
                "fc00::1",
                "fd12:3456::1",
                "fec0::1",
                "::ffff:10.0.0.1",
                "64:ff9b::a00:1",
                "2002:c0a8:1::1",
                "2a00:1::5efe:a00:1",
                "2a00:1::200:5efe:192.168.0.1",
            ],
        );
        refused(BlockedAddress::Shared, &["100.64.0.1", "100.127.255.255"]);
        refused(BlockedAddress::LinkLocal, &["169.254.0.1", "fe80::1", "febf::1"]);
    }

    #[test]
    fn blocks_cloud_metadata() {
        refused(
            BlockedAddress::Metadata,
            &[
                "169.254.169.254",
                "169.254.170.2",
                "100.100.100.200",
                "192.0.0.192",
                "168.63.129.16",
                "fd00:ec2::254",
                "2852039166",
                "0xa9fea9fe",
                "0251.0376.0251.0376",
                "::ffff:169.254.169.254",
                "64:ff9b::a9fe:a9fe",
            ],
        );
    }

    #[test]
    fn blocks_multicast_and_reserved_addresses() {
        refused(BlockedAddress::Multicast, &["224.0.0.1", "239.255.255.255", "255.255.255.255", "ff02::1"]);
        refused(
            BlockedAddress::Reserved,
            &[
                "192.0.0.1",
                "192.0.2.1",
                "192.88.99.1",
                "198.18.0.1",
                "198.19.255.255",
                "198.51.100.1",
                "203.0.113.1",
                "240.0.0.1",
                "2001:db8::1",
                "2001::1",
                "2001:20::1",
                "3fff::1",
                "100::1",
                "64:ff9b:1::1",
                "::7f00:1",
                "4000::1",
                "5f00::1",
            ],
        );
    }

    #[test]
    fn blocks_local_names() {
        refused(
            BlockedAddress::LocalName,
            &[
                "localhost",
                "LOCALHOST",
                "localhost.",
                "a.localhost",
                "printer.local",
                "metadata.google.internal",
                "router.lan",
                "nas.home.arpa",
                "intranet",
                "localhost.localdomain",
            ],
        );
    }

    #[test]
    fn blocks_malformed_hosts() {
        let long = [b'a'; 64];
        refused(
            BlockedAddress::Malformed,
            &[
                "",
                ".",
                "..",
                "a..b",
                ".example.org",
                "256.256.256.256",
                "1.2.3.4.5",
                "127.0.0.0x100",
                "4294967296",
                "08.1.1.1",
                "example.1",
                "example.0x",
                "ex%61mple.org",
                "a b",
                "user@example.org",
                "example.org:80",
                "[::1",
                "[127.0.0.1]",
                "fe80::1%eth0",
                "１２７.0.0.1",
                "１２７．０．０．１",
                "exam\u{200b}ple.org",
                core::str::from_utf8(&long).unwrap_or_default(),
            ][..],
        );
    }
}
