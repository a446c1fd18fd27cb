//! The configuration of a bridge, as it is written to its standard input. It contains a credential, so it is no argument.

use std::io;
use std::path::PathBuf;

use petasos_core::Secret;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::credentials::ProxyCredential;
use crate::policy::host_port::parse_port;

const MAX_BYTES: usize = 8 * 1024;
const MAX_SERVICES: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeConfig {
    /// The gateway's socket; absolute.
    pub socket: PathBuf,
    pub credential: ProxyCredential,
    /// The port of the proxy in the sandbox; 0: any.
    pub port: u16,
    /// Ports of the machine's loopback services that the sandbox reaches at the same port. Each needs a grant.
    pub services: Vec<u16>,
}

impl BridgeConfig {
    /// Lines of `key=value`, ended by an empty line. `None` if the path of the socket cannot be written on a line.
    pub fn encode(&self) -> Option<String> {
        let socket = self.socket.to_str().filter(|path| path.starts_with('/') && !path.contains('\n'))?;
        let Self { credential, port, services, .. } = self;
        let mut text = format!(
            "socket={socket}\nname={}\ntoken={}\nport={port}\n",
            credential.name,
            credential.token.expose()
        );
        for service in services {
            text.push_str(&format!("service={service}\n"));
        }
        text.push('\n');
        Some(text)
    }

    /// Reads `encode`'s output without the empty line.
    pub fn parse(text: &str) -> Result<Self, InvalidBridgeConfig> {
        let mut socket = None;
        let mut name = None;
        let mut token = None;
        let mut port = None;
        let mut services = Vec::new();
        for line in text.lines() {
            let (key, value) = line.split_once('=').ok_or(InvalidBridgeConfig::Line)?;
            match key {
                "socket" if value.starts_with('/') => socket = Some(PathBuf::from(value)),
                "name" => name = Some(value.to_owned()),
                "token" => token = Some(Secret::new(value)),
                "port" if value == "0" => port = Some(0),
                "port" => port = Some(parse_port(value).map_err(|_| InvalidBridgeConfig::Port)?),
                "service" => services.push(parse_port(value).map_err(|_| InvalidBridgeConfig::Port)?),
                _ => return Err(InvalidBridgeConfig::Line),
            }
        }
        if services.len() > MAX_SERVICES {
            return Err(InvalidBridgeConfig::Services);
        }
        let credential = ProxyCredential {
            name: name.ok_or(InvalidBridgeConfig::Missing("name"))?,
            token: token.ok_or(InvalidBridgeConfig::Missing("token"))?,
        };
        Ok(Self {
            socket: socket.ok_or(InvalidBridgeConfig::Missing("socket"))?,
            credential,
            port: port.ok_or(InvalidBridgeConfig::Missing("port"))?,
            services,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBridgeConfig {
    #[error("a line of the bridge's configuration is not one of socket=, name=, token=, port=, service=")]
    Line,
    #[error("a port of the bridge's configuration is not a number from 1 to 65535")]
    Port,
    #[error("the bridge's configuration names more than {MAX_SERVICES} services")]
    Services,
    #[error("the bridge's configuration has no {0}=")]
    Missing(&'static str),
}

/// Reads up to the empty line.
pub(super) async fn read(input: &mut (impl AsyncRead + Unpin)) -> io::Result<BridgeConfig> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\n\n") {
        if bytes.len() >= MAX_BYTES {
            return Err(invalid("the bridge's configuration is too long"));
        }
        bytes.push(input.read_u8().await?);
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| invalid("the bridge's configuration is not UTF-8"))?;
    BridgeConfig::parse(text.trim_end_matches('\n')).map_err(|error| invalid(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_configurations_name_the_mistake() {
        for (text, want) in [
            ("", InvalidBridgeConfig::Missing("name")),
            ("name=a\ntoken=b\nport=1", InvalidBridgeConfig::Missing("socket")),
            ("socket=relative", InvalidBridgeConfig::Line),
            ("port=x", InvalidBridgeConfig::Port),
            ("service=0", InvalidBridgeConfig::Port),
            ("shell=sh", InvalidBridgeConfig::Line),
            ("nothing", InvalidBridgeConfig::Line),
        ] {
            assert_eq!(BridgeConfig::parse(text), Err(want), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn configurations_survive_being_written(
            path in "/[a-z/. =]{0,40}", name in "[a-z0-9.]{1,20}", token in "[0-9a-f]{0,64}",
            port: u16, services in proptest::collection::vec(1_u16.., 0..5)
        ) {
            let credential = ProxyCredential { name, token: Secret::new(token) };
            let config = BridgeConfig { socket: path.into(), credential, port, services };
            let text = config.encode().unwrap();
            prop_assert_eq!(BridgeConfig::parse(text.trim_end_matches('\n')), Ok(config));
        }

        #[test]
        fn parsing_never_panics(text in "[a-z=\\n0-9\\x00/]{0,200}") {
            let _ = BridgeConfig::parse(&text);
        }
    }
}
