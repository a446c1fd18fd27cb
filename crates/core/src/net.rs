//! Which addresses a fetch on somebody else's word may go to: the open internet and nothing else.
//!
//! A link from a chat, a page or a model must not reach this machine, its network or its cloud's metadata.
//! `host` judges a host as it stands in a link; `address` judges what a name resolved to. Both are needed,
//! for every hop of a redirect, and the connection must go to the very address that was judged: a name can
//! resolve to something else the second time.
//!
//! Refusing is the rule for what is unknown: of IPv6 only the space that is handed out to the public is
//! open, and an address that carries an IPv4 address is judged by what it carries.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a fetch may not go there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// No host at all, or one that a resolver and a person would read differently.
    Malformed,
    /// A name that only means something on this machine or its network.
    LocalName,
    Unspecified,
    Loopback,
    Private,
    /// The provider's network between its customers and the internet (100.64.0.0/10).
    Shared,
    LinkLocal,
    /// Where clouds hand out credentials to whoever asks from inside.
    Metadata,
    Multicast,
    /// Documentation, benchmarks, protocol assignments, the future, tunnels that end nobody knows where.
    Reserved,
}

impl Refused {
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

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl core::error::Error for Refused {}

/// May a fetch connect to this address?
pub fn address(ip: IpAddr) -> Result<(), Refused> {
    match ip {
        IpAddr::V4(ip) => v4(ip),
        IpAddr::V6(ip) => v6(ip),
    }
}

/// May a fetch go to this host of a link? `Some`: it was an address, and it is open. `None`: it is a name, and
/// what it resolves to is still to be judged.
///
/// Old spellings of IPv4 (`2130706433`, `0x7f.1`, `0177.0.0.1`) are read as a resolver reads them. The host
/// comes from a URL parser, so escapes and other alphabets have been dealt with: what is left of them here
/// is refused. IPv6 may stand in brackets.
pub fn host(host: &str) -> Result<Option<IpAddr>, Refused> {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let ip = inner.parse::<Ipv6Addr>().map_err(|_bad| Refused::Malformed)?;
        return v6(ip).map(|()| Some(IpAddr::V6(ip)));
    }
    if let Ok(ip) = host.parse::<Ipv6Addr>() {
        return v6(ip).map(|()| Some(IpAddr::V6(ip)));
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    if !is_name(name) {
        return Err(Refused::Malformed);
    }
    if ends_in_number(name) {
        let ip = old_v4(name).ok_or(Refused::Malformed)?;
        return v4(ip).map(|()| Some(IpAddr::V4(ip)));
    }
    if is_local_name(name) {
        return Err(Refused::LocalName);
    }
    Ok(None)
}

fn v4(ip: Ipv4Addr) -> Result<(), Refused> {
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
            Refused::Metadata
        }
        (0, ..) => Refused::Unspecified,
        (127, ..) => Refused::Loopback,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Refused::Private,
        (100, 64..=127, _) => Refused::Shared,
        (169, 254, _) => Refused::LinkLocal,
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => {
            Refused::Reserved
        }
        (224..=239, ..) | (255, 255, 255) => Refused::Multicast,
        (240..=255, ..) => Refused::Reserved,
        _ => return Ok(()),
    };
    Err(refused)
}

fn v6(ip: Ipv6Addr) -> Result<(), Refused> {
    let [a, b, c, d, e, f, g, h] = ip.segments();
    let refused = match [a, b, c, d, e, f] {
        _ if ip.is_unspecified() => Refused::Unspecified,
        _ if ip.is_loopback() => Refused::Loopback,
        // mapped, translated, NAT64: the last 32 bits are where it goes
        [0, 0, 0, 0, 0, 0xffff] | [0, 0, 0, 0, 0xffff, 0] | [0x64, 0xff9b, 0, 0, 0, 0] => {
            return v4(joined(g, h));
        }
        // 6to4: the 32 bits after the prefix
        [0x2002, high, low, ..] => return v4(joined(high, low)),
        [0xfd00, 0xec2, 0, 0, 0, 0] if (g, h) == (0, 0x254) => Refused::Metadata,
        [0xfc00..=0xfdff, ..] => Refused::Private,
        [0xfe80..=0xfebf, ..] => Refused::LinkLocal,
        [0xfec0..=0xfeff, ..] => Refused::Private,
        [0xff00..=0xffff, ..] => Refused::Multicast,
        // protocol assignments with Teredo and ORCHID among them, and the two spaces of documentation
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Refused::Reserved,
        // ISATAP names the inner IPv4 address in the interface part
        [0x2000..=0x3fff, _, _, _, 0 | 0x200, 0x5efe] => return v4(joined(g, h)),
        [0x2000..=0x3fff, ..] => return Ok(()),
        _ => Refused::Reserved,
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
    // a bare word is looked up in the machine's own search domains
    !name.contains('.') || SUFFIXES.iter().any(|suffix| last.eq_ignore_ascii_case(suffix))
}

/// Such a host is an IPv4 address or nothing: no top-level domain is a number.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last.bytes().all(|byte| byte.is_ascii_digit()) || number(last).is_some()
}

/// One to four numbers, the last of which fills all bytes that are left.
fn old_v4(name: &str) -> Option<Ipv4Addr> {
    let count = name.split('.').count();
    if count > 4 {
        return None;
    }
    let mut bits: u64 = 0;
    for (place, part) in name.split('.').enumerate() {
        let value = number(part)?;
        let width = if place + 1 == count { 8 * (5 - count) } else { 8 };
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
    fn check(text: &str, want: Result<(), Refused>) {
        let got = match text.parse::<IpAddr>() {
            Ok(ip) => address(ip),
            Err(_) => host(text).map(|_| ()),
        };
        assert_eq!(got, want, "{text}");
        // an address is judged alike however it arrives
        if text.parse::<IpAddr>().is_ok() {
            assert_eq!(host(text).map(|_| ()), want, "{text} as a host");
        }
    }

    #[track_caller]
    fn refused(why: Refused, all: &[&str]) {
        for text in all {
            check(text, Err(why));
        }
    }

    #[test]
    fn the_open_internet_is_allowed() {
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
    fn this_machine_is_refused_in_every_spelling() {
        refused(
            Refused::Loopback,
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
        refused(Refused::Unspecified, &["0.0.0.0", "0", "0x0", "0.1.2.3", "::", "[::]", "::ffff:0.0.0.0"]);
    }

    #[test]
    fn its_network_is_refused() {
        refused(
            Refused::Private,
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
        refused(Refused::Shared, &["100.64.0.1", "100.127.255.255"]);
        refused(Refused::LinkLocal, &["169.254.0.1", "fe80::1", "febf::1"]);
    }

    #[test]
    fn the_metadata_of_clouds_is_refused() {
        refused(
            Refused::Metadata,
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
    fn what_is_nobodys_is_refused() {
        refused(Refused::Multicast, &["224.0.0.1", "239.255.255.255", "255.255.255.255", "ff02::1"]);
        refused(
            Refused::Reserved,
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
    fn local_names_are_refused() {
        refused(
            Refused::LocalName,
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
    fn what_is_no_host_is_refused() {
        let long = [b'a'; 64];
        refused(
            Refused::Malformed,
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
