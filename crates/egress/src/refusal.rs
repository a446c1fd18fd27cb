//! Why a connection is not made, in the terms of HTTP, of SOCKS and of the person who reads the program's output.

use petasos_core::net::BlockedAddress;

use crate::policy::host_port::{HostPort, InvalidHostPort};
use crate::policy::rule::{HostRule, WEB_PORTS};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A rule of the deny list matches.
    DenyList,
    /// Not in the allow list, and the mode does not ask.
    NotListed,
    /// The address is not public, and no rule names it with its port.
    Blocked(BlockedAddress),
    /// A listener of the gateway itself.
    OwnListener,
    DeniedByPerson,
    /// The person did not answer in time.
    NoAnswer,
    /// This conversation has no person who could answer.
    CannotAsk,
    TooManyQuestions,
    TooManyConnections,
    UnknownName,
    ResolverTimeout,
    ConnectFailed(std::io::ErrorKind),
    ConnectTimeout,
    /// The server did not answer in HTTP, or not in time.
    NoResponse,
    BadHostPort(InvalidHostPort),
    /// The request is not one that a proxy forwards.
    BadRequest(&'static str),
    Unauthenticated,
}

impl Refusal {
    pub fn http_status(&self) -> u16 {
        match self {
            Self::DenyList
            | Self::NotListed
            | Self::Blocked(_)
            | Self::OwnListener
            | Self::DeniedByPerson
            | Self::NoAnswer
            | Self::CannotAsk
            | Self::TooManyQuestions => 403,
            Self::BadHostPort(_) | Self::BadRequest(_) => 400,
            Self::Unauthenticated => 407,
            Self::UnknownName | Self::ConnectFailed(_) => 502,
            Self::TooManyConnections => 503,
            Self::ResolverTimeout | Self::ConnectTimeout | Self::NoResponse => 504,
        }
    }

    /// The reply code of RFC 1928.
    pub fn socks_reply(&self) -> u8 {
        const GENERAL_FAILURE: u8 = 1;
        const NOT_ALLOWED: u8 = 2;
        const HOST_UNREACHABLE: u8 = 4;
        const CONNECTION_REFUSED: u8 = 5;
        const TTL_EXPIRED: u8 = 6;
        match self {
            Self::DenyList
            | Self::NotListed
            | Self::Blocked(_)
            | Self::OwnListener
            | Self::DeniedByPerson
            | Self::NoAnswer
            | Self::CannotAsk
            | Self::TooManyQuestions
            | Self::Unauthenticated => NOT_ALLOWED,
            Self::UnknownName => HOST_UNREACHABLE,
            Self::ConnectFailed(std::io::ErrorKind::ConnectionRefused) => CONNECTION_REFUSED,
            Self::ConnectFailed(_) => HOST_UNREACHABLE,
            Self::ResolverTimeout | Self::ConnectTimeout | Self::NoResponse => TTL_EXPIRED,
            Self::TooManyConnections | Self::BadHostPort(_) | Self::BadRequest(_) => GENERAL_FAILURE,
        }
    }

    /// For the log: a fixed word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::DenyList => "deny list",
            Self::NotListed => "not listed",
            Self::Blocked(why) => why.as_str(),
            Self::OwnListener => "listener of the gateway",
            Self::DeniedByPerson => "denied by a person",
            Self::NoAnswer => "no answer in time",
            Self::CannotAsk => "no person to ask",
            Self::TooManyQuestions => "too many questions",
            Self::TooManyConnections => "too many connections",
            Self::UnknownName => "unknown name",
            Self::ResolverTimeout => "resolver timeout",
            Self::ConnectFailed(_) => "connection failed",
            Self::ConnectTimeout => "connect timeout",
            Self::NoResponse => "no response",
            Self::BadHostPort(_) => "invalid destination",
            Self::BadRequest(_) => "invalid request",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    /// For the output of the program: the reason, and how to get the permission.
    pub fn text(&self, to: Option<&HostPort>) -> String {
        let to_text = to.map_or_else(|| "this host".to_owned(), ToString::to_string);
        let rule = to.map_or_else(|| "host:port".to_owned(), |to| HostRule::covering(to).to_string());
        let named = to_text.as_str();
        match self {
            Self::DenyList => format!("{named} is on the owner's deny list (terminal.network.deny)."),
            Self::NotListed => format!(
                "{named} is not on the owner's allow list. The owner can add {rule} to terminal.network.allow. A rule without a \
                 port covers the ports {} and {}.",
                WEB_PORTS[0], WEB_PORTS[1]
            ),
            Self::Blocked(why) => format!(
                "{named} is not a public host ({why}). The owner can permit exactly {named} in terminal.network.allow."
            ),
            Self::OwnListener => {
                format!("{named} is a service of the gateway itself, which commands must not use.")
            }
            Self::DeniedByPerson => format!(
                "the user denied access to {named} in this conversation. Do not try to reach it in another way."
            ),
            Self::NoAnswer => format!(
                "the user was asked about access to {named} and did not answer in time. Silence is not consent."
            ),
            Self::CannotAsk => format!(
                "access to {named} needs consent, and there is no one to ask now. The owner can add {rule} to \
                 terminal.network.allow, or allow it from now on when a command of a chat asks."
            ),
            Self::TooManyQuestions => format!(
                "access to {named} needs consent, and too many questions are open or were asked by this command. Wait for their \
                 answers, or use fewer hosts."
            ),
            Self::TooManyConnections => {
                "too many open connections. Close some, or use fewer at a time.".to_owned()
            }
            Self::UnknownName => format!("the name of {named} cannot be resolved. Check its spelling."),
            Self::ResolverTimeout => format!("resolving the name of {named} took too long. Try again later."),
            Self::ConnectFailed(kind) => format!("the connection to {named} failed ({kind})."),
            Self::ConnectTimeout => format!("{named} did not accept the connection in time."),
            Self::NoResponse => format!("{named} did not answer the request."),
            Self::BadHostPort(error) => format!("{error}."),
            Self::BadRequest(why) => format!("{why}."),
            Self::Unauthenticated => {
                "the proxy credentials are missing or wrong. Use the address in the variable HTTPS_PROXY."
                    .to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_host_and_the_way_out() {
        let to = HostPort::parse("db.example.org:5432").ok();
        let text = Refusal::NotListed.text(to.as_ref());
        assert!(text.contains("add db.example.org:5432 to terminal.network.allow"), "{text}");
        let to = HostPort::parse("example.org:443").ok();
        let text = Refusal::CannotAsk.text(to.as_ref());
        assert!(text.contains("add example.org to terminal.network.allow"), "{text}");
        let to = HostPort::parse("192.168.1.2:80").ok();
        let text = Refusal::Blocked(BlockedAddress::Private).text(to.as_ref());
        assert!(text.contains("private address") && text.contains("exactly 192.168.1.2:80"), "{text}");
    }

    #[test]
    fn refusals_map_to_status_and_reply_codes() {
        for (refusal, status, reply) in [
            (Refusal::DeniedByPerson, 403, 2),
            (Refusal::Unauthenticated, 407, 2),
            (Refusal::ConnectFailed(std::io::ErrorKind::ConnectionRefused), 502, 5),
            (Refusal::ConnectFailed(std::io::ErrorKind::NetworkUnreachable), 502, 4),
            (Refusal::ConnectTimeout, 504, 6),
            (Refusal::TooManyConnections, 503, 1),
        ] {
            assert_eq!((refusal.http_status(), refusal.socks_reply()), (status, reply), "{refusal:?}");
        }
    }
}
