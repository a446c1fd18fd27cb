//! SOCKS5 messages (RFC 1928, RFC 1929), parsed incrementally from the bytes received so far.

use std::net::{Ipv4Addr, Ipv6Addr};

use petasos_core::Secret;

use crate::policy::host_port::{HostName, HostPort, InvalidHostPort};

pub(crate) const VERSION: u8 = 5;
pub(crate) const NO_AUTHENTICATION: u8 = 0;
pub(crate) const PASSWORD: u8 = 2;
pub(crate) const NO_ACCEPTABLE_METHOD: u8 = 0xff;
/// The longest message: a user name and a password of 255 bytes each.
pub(crate) const MAX_MESSAGE_BYTES: usize = 513;

const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const DOMAIN: u8 = 3;
const IPV6: u8 = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Parsed<T> {
    /// The message is not complete.
    Incomplete,
    /// A message, and its length.
    Message(T, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocksError {
    Version,
    Command,
    AddressType,
    HostPort(InvalidHostPort),
    NotText,
}

impl SocksError {
    /// The reply code, where the protocol has one for it.
    pub(crate) fn reply(self) -> u8 {
        match self {
            Self::Version | Self::NotText | Self::HostPort(_) => 1,
            Self::Command => 7,
            Self::AddressType => 8,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PasswordLogin {
    pub(crate) name: String,
    pub(crate) password: Secret,
}

/// The authentication methods that the client offers.
pub(crate) fn parse_greeting(bytes: &[u8]) -> Result<Parsed<Vec<u8>>, SocksError> {
    let Some(version) = bytes.first() else { return Ok(Parsed::Incomplete) };
    if *version != VERSION {
        return Err(SocksError::Version);
    }
    let Some((methods, end)) = counted(bytes, 1) else { return Ok(Parsed::Incomplete) };
    Ok(Parsed::Message(methods.to_vec(), end))
}

pub(crate) fn parse_login(bytes: &[u8]) -> Result<Parsed<PasswordLogin>, SocksError> {
    let Some(version) = bytes.first() else { return Ok(Parsed::Incomplete) };
    if *version != 1 {
        return Err(SocksError::Version);
    }
    let Some((name, at)) = counted(bytes, 1) else { return Ok(Parsed::Incomplete) };
    let Some((password, end)) = counted(bytes, at) else { return Ok(Parsed::Incomplete) };
    let login = PasswordLogin { name: text(name)?, password: Secret::new(text(password)?) };
    Ok(Parsed::Message(login, end))
}

pub(crate) fn parse_request(bytes: &[u8]) -> Result<Parsed<HostPort>, SocksError> {
    let [version, command, _reserved, kind, rest @ ..] = bytes else { return Ok(Parsed::Incomplete) };
    if *version != VERSION {
        return Err(SocksError::Version);
    }
    if *command != CONNECT {
        return Err(SocksError::Command);
    }
    let (host, at) = match *kind {
        IPV4 => match rest.first_chunk::<4>() {
            Some(octets) => (HostName::Address(Ipv4Addr::from(*octets).into()), 8),
            None => return Ok(Parsed::Incomplete),
        },
        IPV6 => match rest.first_chunk::<16>() {
            Some(octets) => (HostName::Address(Ipv6Addr::from(*octets).to_canonical()), 20),
            None => return Ok(Parsed::Incomplete),
        },
        DOMAIN => match counted(bytes, 4) {
            Some((name, at)) => (HostName::parse(&text(name)?).map_err(SocksError::HostPort)?, at),
            None => return Ok(Parsed::Incomplete),
        },
        _ => return Err(SocksError::AddressType),
    };
    let Some(port) = bytes.get(at..).and_then(|rest| rest.first_chunk::<2>()) else {
        return Ok(Parsed::Incomplete);
    };
    let port = u16::from_be_bytes(*port);
    if port == 0 {
        return Err(SocksError::HostPort(InvalidHostPort::Port));
    }
    Ok(Parsed::Message(HostPort { host, port }, at + 2))
}

/// The reply to a request. The address of our end is not revealed.
pub(crate) fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

/// The bytes behind a length byte at `at`, and the position behind them.
fn counted(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let length = usize::from(*bytes.get(at)?);
    let end = at + 1 + length;
    Some((bytes.get(at + 1..end)?, end))
}

fn text(bytes: &[u8]) -> Result<String, SocksError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| SocksError::NotText)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(kind: u8, address: &[u8], port: u16) -> Vec<u8> {
        [&[5, 1, 0, kind], address, &port.to_be_bytes()].concat()
    }

    #[track_caller]
    fn check(bytes: &[u8], want: &str) {
        let Ok(Parsed::Message(to, used)) = parse_request(bytes) else { panic!("{bytes:?} is not parsed") };
        assert_eq!((to.to_string().as_str(), used), (want, bytes.len()));
    }

    #[test]
    fn requests_name_hosts_in_three_ways() {
        check(&request(1, &[93, 184, 216, 34], 443), "93.184.216.34:443");
        check(&request(3, b"\x0bexample.org", 443), "example.org:443");
        check(&request(4, &Ipv6Addr::LOCALHOST.octets(), 80), "[::1]:80");
    }

    #[test]
    fn addresses_in_disguise_are_the_addresses() {
        check(&request(3, b"\x0a0x7f000001", 80), "127.0.0.1:80");
        check(&request(3, b"\x0a2852039166", 80), "169.254.169.254:80");
        check(&request(4, &"::ffff:127.0.0.1".parse::<Ipv6Addr>().unwrap().octets(), 80), "127.0.0.1:80");
    }

    #[test]
    fn other_commands_and_malformed_requests_are_refused() {
        for (bytes, want) in [
            (vec![5, 2, 0, 1, 1, 1, 1, 1, 0, 80], SocksError::Command),
            (vec![5, 3, 0, 1, 1, 1, 1, 1, 0, 80], SocksError::Command),
            (vec![4, 1, 0, 80], SocksError::Version),
            (vec![5, 1, 0, 2, 1], SocksError::AddressType),
            (request(1, &[1, 1, 1, 1], 0), SocksError::HostPort(InvalidHostPort::Port)),
            (request(3, b"\x00", 80), SocksError::HostPort(InvalidHostPort::Host)),
            (request(3, b"\x03a b", 80), SocksError::HostPort(InvalidHostPort::Host)),
            (request(3, b"\x02\xff\xfe", 80), SocksError::NotText),
        ] {
            assert_eq!(parse_request(&bytes), Err(want), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse_greeting(&bytes);
            let _ = parse_login(&bytes);
            let _ = parse_request(&bytes);
        }

        #[test]
        fn a_prefix_is_incomplete_and_a_suffix_is_left(
            name in "[a-z]{1,20}", password in "[ -~]{0,255}", rest in proptest::collection::vec(any::<u8>(), 0..20)
        ) {
            let length = |text: &str| u8::try_from(text.len()).unwrap();
            let head = [&[1, length(&name)], name.as_bytes(), &[length(&password)]].concat();
            let login = [&head[..], password.as_bytes()].concat();
            for length in 0..login.len() {
                prop_assert_eq!(parse_login(&login[..length]), Ok(Parsed::Incomplete));
            }
            let parsed = parse_login(&[&login[..], &rest].concat());
            let want = PasswordLogin { name, password: Secret::new(password) };
            prop_assert_eq!(parsed, Ok(Parsed::Message(want, login.len())));
        }
    }
}
