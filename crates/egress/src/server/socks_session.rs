//! The SOCKS5 conversation up to the tunnel.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::connection::{ClientConnection, ProgramStream, tunnel};
use super::socks::{
    MAX_MESSAGE_BYTES, NO_ACCEPTABLE_METHOD, NO_AUTHENTICATION, PASSWORD, Parsed, SocksError, VERSION,
    parse_greeting, parse_login, parse_request, reply,
};
use crate::credentials::{ProxyCredential, SandboxId};
use crate::policy::host_port::HostPort;

/// The conversation has ended; the program has an answer where the protocol has one.
struct Ended;

pub(super) async fn serve(connection: &ClientConnection, mut stream: ProgramStream) {
    let limit = connection.server.limits.handshake;
    let begun = timeout(limit, begin(connection, &mut stream)).await;
    let Ok(Ok((sandbox, to))) = begun else { return };
    let Some(opened) = connection.open_while_connected(&mut stream, &sandbox, &to).await else { return };
    match opened {
        Ok(server) => {
            if stream.write_all(&reply(0)).await.is_ok() {
                tunnel(&mut stream, server).await;
            }
        }
        Err(refusal) => drop(send(&mut stream, &reply(refusal.socks_reply())).await),
    }
}

async fn begin(
    connection: &ClientConnection,
    stream: &mut ProgramStream,
) -> Result<(SandboxId, HostPort), Ended> {
    let methods = read(stream, parse_greeting).await.map_err(|_| Ended)?;
    let sandbox = authenticate(connection, stream, &methods).await?;
    match read(stream, parse_request).await {
        Ok(to) => Ok((sandbox, to)),
        Err(Failure::Malformed(error)) => {
            send(stream, &reply(error.reply())).await?;
            Err(Ended)
        }
        Err(Failure::Disconnected) => Err(Ended),
    }
}

/// Behind a bridge the sandbox is known; a program may still insist on a password, which then does not matter.
async fn authenticate(
    connection: &ClientConnection,
    stream: &mut ProgramStream,
    methods: &[u8],
) -> Result<SandboxId, Ended> {
    let known = connection.authenticate(None);
    if let Ok(sandbox) = &known
        && methods.contains(&NO_AUTHENTICATION)
    {
        send(stream, &[VERSION, NO_AUTHENTICATION]).await?;
        return Ok(sandbox.clone());
    }
    if !methods.contains(&PASSWORD) {
        send(stream, &[VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Err(Ended);
    }
    send(stream, &[VERSION, PASSWORD]).await?;
    let login = read(stream, parse_login).await.map_err(|_| Ended)?;
    let credential = ProxyCredential { name: login.name, token: login.password };
    match connection.authenticate(Some(&credential)) {
        Ok(sandbox) => {
            send(stream, &[1, 0]).await?;
            Ok(sandbox)
        }
        Err(_refused) => {
            send(stream, &[1, 1]).await?;
            Err(Ended)
        }
    }
}

enum Failure {
    Malformed(SocksError),
    Disconnected,
}

/// Reads byte by byte from the buffer, so that nothing behind the message is consumed.
async fn read<T>(
    stream: &mut ProgramStream,
    parse: fn(&[u8]) -> Result<Parsed<T>, SocksError>,
) -> Result<T, Failure> {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_MESSAGE_BYTES {
        bytes.push(stream.read_u8().await.map_err(|_| Failure::Disconnected)?);
        if let Parsed::Message(message, _) = parse(&bytes).map_err(Failure::Malformed)? {
            return Ok(message);
        }
    }
    Err(Failure::Disconnected)
}

async fn send(stream: &mut ProgramStream, bytes: &[u8]) -> Result<(), Ended> {
    stream.write_all(bytes).await.map_err(|_| Ended)
}
