//! The first line that a bridge sends on each connection: which sandbox it speaks for, and optionally a fixed destination.

use petasos_core::Secret;

use crate::credentials::ProxyCredential;
use crate::policy::host_port::HostPort;

pub(crate) const MAX_PREAMBLE_BYTES: u64 = 1024;
const PROTOCOL: &str = "petasos-egress/1";

/// `petasos-egress/1 NAME TOKEN [HOST:PORT]`, ended by a line feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub(crate) credential: ProxyCredential,
    /// `None`: the program speaks HTTP or SOCKS and names destinations itself.
    pub(crate) to: Option<HostPort>,
}

impl Preamble {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_suffix('\n')?.split(' ');
        words.next().filter(|protocol| *protocol == PROTOCOL)?;
        let name = words.next()?.to_owned();
        let token = words.next().filter(|token| !token.contains(char::is_whitespace)).map(Secret::new)?;
        let to = words.next().map(HostPort::parse).transpose().ok()?;
        words.next().is_none().then_some(Self { credential: ProxyCredential { name, token }, to })
    }

    pub(crate) fn line(&self) -> String {
        let Self { credential, to } = self;
        let to = to.as_ref().map_or_else(String::new, |to| format!(" {to}"));
        format!("{PROTOCOL} {} {}{to}\n", credential.name, credential.token.expose())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn malformed_preambles_are_refused() {
        for line in [
            "",
            "\n",
            "petasos-egress/1 s.r t",
            "petasos-egress/1 s.r\n",
            "petasos-egress/2 s.r t\n",
            "petasos-egress/1 s.r t localhost\n",
            "petasos-egress/1 s.r t localhost:1 x\n",
            "petasos-egress/1 s.r t\n\n",
            "GET / HTTP/1.1\r\n",
        ] {
            assert_eq!(Preamble::parse(line), None, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn preambles_survive_being_written(name in "[a-z0-9.]{1,60}", token in "[0-9a-f]{0,64}", port in proptest::option::of(1_u16..)) {
            let to = port.map(|port| HostPort::new("example.org", port).unwrap());
            let preamble = Preamble { credential: ProxyCredential { name, token: Secret::new(token) }, to };
            prop_assert_eq!(Preamble::parse(&preamble.line()), Some(preamble));
        }

        #[test]
        fn parsing_never_panics(line in "[ -~\\n\\x00\\u{e9}]{0,200}") {
            let _ = Preamble::parse(&line);
        }
    }
}
