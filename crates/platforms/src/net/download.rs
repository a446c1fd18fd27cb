//! Downloads: streamed to disk, with a size limit.
//!
//! File addresses are untrusted. Addresses at the configured server are allowed; all others, and every
//! redirect, must lead to public addresses (`core::net`). `PublicResolver` resolves their names, so the
//! connection goes to the address that was checked. A proxy resolves names itself; for it they are checked
//! before the request.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use petasos_core::{Fault, net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::io::AsyncWriteExt;

use crate::http::{self, HttpError};
use crate::{Error as PlatformError, Secret};

const MAX_REDIRECTS: usize = 3;
/// Limit for the response headers.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const MIN_BYTES_PER_SECOND: u64 = 1 << 20;
/// Limit for any file, whatever length the server announces.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// Prefix of addresses that contain the file itself.
pub const DATA_SCHEME: &str = "data:";
/// Bytes kept for content detection.
const HEAD_BYTES: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fetched {
    pub size: u64,
    /// As sent by the server.
    pub mime: Option<String>,
    /// First bytes of the file.
    pub head: Vec<u8>,
}

/// Shown in the chat, so only the error's source has details of this machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it is larger than {} MB", max_size >> 20)]
    TooLarge { max_size: u64 },
    #[error("downloads from its address are not allowed ({0})")]
    Blocked(String),
    #[error("the platform does not store it")]
    NotStored,
    #[error("the server answered {status}")]
    Status { status: u16, after: Option<Duration> },
    #[error("the server sent a sign-in page instead of the file")]
    SignIn,
    #[error("the connection to its server failed")]
    Link(#[from] HttpError),
    #[error("the platform refused the download")]
    Platform(#[from] PlatformError),
    #[error("it could not be saved")]
    Disk(#[from] io::Error),
}

impl Error {
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            Self::Link(_) => true,
            Self::Platform(error) => matches!(error.fault(), Fault::Later { .. }),
            Self::TooLarge { .. } | Self::Blocked(_) | Self::NotStored | Self::SignIn | Self::Disk(_) => {
                false
            }
        }
    }

    /// The wait that the server asked for.
    pub fn after(&self) -> Option<Duration> {
        match self {
            Self::Status { after, .. } => *after,
            Self::Platform(error) => match error.fault() {
                Fault::Later { after } => after,
                Fault::Refused | Fault::Fatal => None,
            },
            Self::TooLarge { .. }
            | Self::Blocked(_)
            | Self::NotStored
            | Self::SignIn
            | Self::Link(_)
            | Self::Disk(_) => None,
        }
    }
}

/// Downloads from the configured server and from public addresses.
#[derive(Debug)]
pub(crate) struct Fetcher {
    base: Url,
    /// For the configured server, which may have a private address.
    own: Client,
    /// Built on first use: it reads the system's certificates.
    public: OnceLock<Client>,
    proxy: Option<Secret>,
    /// Proxies that requests to public addresses may use.
    proxies: Vec<String>,
}

impl Fetcher {
    pub(crate) fn new(base: Url, own: Client, proxy: Option<Secret>) -> Self {
        let proxies = http::proxy_hosts(proxy.as_ref().map(Secret::expose));
        Self { base, own, public: OnceLock::new(), proxy, proxies }
    }

    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    /// One attempt. `token` returns the bearer token for each address, redirects included.
    pub(crate) async fn fetch(
        &self,
        url: &str,
        token: &(dyn Fn(&Url) -> Option<Secret> + Sync),
        max_size: u64,
        to: &mut tokio::fs::File,
    ) -> Result<Fetched, Error> {
        save(self.open(url, token).await?, max_size, to).await
    }

    /// Follows redirects and returns the response.
    pub(crate) async fn open(
        &self,
        url: &str,
        token: &(dyn Fn(&Url) -> Option<Secret> + Sync),
    ) -> Result<Response, Error> {
        let mut url = Url::parse(url).map_err(|_| Error::Blocked("not a valid address".into()))?;
        for _hop in 0..=MAX_REDIRECTS {
            let mut request = self.client(&url)?.get(url.clone());
            if !self.is_own(&url) && !self.proxies.is_empty() {
                check_host(url.host_str().unwrap_or_default()).await?;
            }
            if let Some(token) = token(&url) {
                request = request.bearer_auth(token.expose());
            }
            let begun = tokio::time::timeout(START_TIMEOUT, request.send()).await;
            let response = begun.map_err(|_| HttpError::Timeout(START_TIMEOUT))?.map_err(http::http_error)?;
            match response.status() {
                StatusCode::OK => return Ok(response),
                status if status.is_redirection() => url = redirect_target(&url, &response)?,
                status => {
                    let after = http::retry_after(&response);
                    return Err(Error::Status { status: status.as_u16(), after });
                }
            }
        }
        Err(Error::Blocked("too many redirects".into()))
    }

    pub(crate) fn is_own_server(&self, url: &str) -> bool {
        Url::parse(url).is_ok_and(|url| self.is_own(&url))
    }

    fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    /// The client for this address, if downloads from it are allowed.
    fn client(&self, url: &Url) -> Result<&Client, Error> {
        if self.is_own(url) {
            return Ok(&self.own);
        }
        if url.scheme() != "https" {
            return Err(Error::Blocked("its address is not encrypted (https)".into()));
        }
        let host = url.host_str().unwrap_or_default();
        net::check_host(host).map_err(|refused| Error::Blocked(refused.to_string()))?;
        if let Some(open) = self.public.get() {
            return Ok(open);
        }
        let built = http::public_client(
            self.proxy.as_ref().map(Secret::expose),
            Arc::new(PublicResolver(self.proxies.clone())),
        );
        let built = built.map_err(|error| HttpError::ConnectFailed(error.without_url().to_string()))?;
        Ok(self.public.get_or_init(|| built))
    }
}

/// Downloads from a `data:` or public address. One attempt.
pub async fn fetch_url(address: &str, max_size: u64, to: &mut tokio::fs::File) -> Result<Fetched, Error> {
    if let Some(data) = address.strip_prefix(DATA_SCHEME) {
        return decode_data_url(data, max_size, to).await;
    }
    let unbuilt = |error: reqwest::Error| HttpError::ConnectFailed(error.without_url().to_string());
    // The base matches no address.
    let nowhere = Url::parse("data:,").map_err(|_| Error::NotStored)?;
    let own = http::base_builder().build().map_err(unbuilt)?;
    Fetcher::new(nowhere, own, None).fetch(address, &|_| None, max_size, to).await
}

async fn decode_data_url(data: &str, max_size: u64, to: &mut tokio::fs::File) -> Result<Fetched, Error> {
    let broken = || Error::Blocked("it cannot be read".into());
    let (about, data) = data.split_once(',').ok_or_else(broken)?;
    let mime = about.strip_suffix(";base64").ok_or_else(broken)?;
    let bytes = STANDARD.decode(data.trim()).map_err(|_| broken())?;
    let size = bytes.len() as u64;
    if size > max_size {
        return Err(Error::TooLarge { max_size });
    }
    to.write_all(&bytes).await?;
    to.flush().await?;
    Ok(Fetched { size, mime: Some(mime.to_owned()), head: bytes.into_iter().take(HEAD_BYTES).collect() })
}

/// A client for public addresses that follows no redirects.
pub fn public_only_client() -> Result<Client, reqwest::Error> {
    http::base_builder().no_proxy().dns_resolver(Arc::new(PublicResolver(vec![]))).build()
}

/// Errors if the name has an address that is not public. Names unknown here are left to the proxy.
async fn check_host(host: &str) -> Result<(), Error> {
    let Ok(mut found) = tokio::net::lookup_host((host.trim_matches(['[', ']']), 0)).await else {
        return Ok(());
    };
    let refused = found.find_map(|at| net::check_address(at.ip()).err());
    refused.map_or(Ok(()), |refused| Err(Error::Blocked(refused.to_string())))
}

/// The address in a redirect; a relative one stays at the same server.
fn redirect_target(from: &Url, response: &Response) -> Result<Url, Error> {
    let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
    let to = to.and_then(|to| from.join(to).ok());
    to.ok_or_else(|| Error::Blocked("its address leads nowhere".into()))
}

async fn save(response: Response, max_size: u64, to: &mut tokio::fs::File) -> Result<Fetched, Error> {
    let announced = response.content_length();
    if announced.is_some_and(|size| size > max_size) {
        return Err(Error::TooLarge { max_size });
    }
    let within = timeout_for(announced.unwrap_or(max_size.min(1 << 30)));
    let saved = tokio::time::timeout(within, copy(response, max_size, to)).await;
    saved.map_err(|_| HttpError::Timeout(within))?
}

fn timeout_for(size: u64) -> Duration {
    MAX_TIMEOUT.min(START_TIMEOUT + Duration::from_secs(size / MIN_BYTES_PER_SECOND))
}

async fn copy(mut response: Response, max_size: u64, to: &mut tokio::fs::File) -> Result<Fetched, Error> {
    let mime = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_owned);
    let mut fetched = Fetched { mime, ..Fetched::default() };
    while let Some(chunk) = response.chunk().await.map_err(http::http_error)? {
        fetched.size += chunk.len() as u64;
        if fetched.size > max_size {
            return Err(Error::TooLarge { max_size });
        }
        let missing = HEAD_BYTES.saturating_sub(fetched.head.len()).min(chunk.len());
        fetched.head.extend_from_slice(&chunk[..missing]);
        to.write_all(&chunk).await?;
    }
    to.flush().await?;
    Ok(fetched)
}

/// Resolves names to public addresses only. Proxy hosts are exempt: the owner configured them.
#[derive(Debug)]
struct PublicResolver(Vec<String>);

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let proxy = self.0.iter().any(|proxy| proxy == name.as_str());
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let open: Vec<SocketAddr> =
                found.filter(|at| proxy || net::check_address(at.ip()).is_ok()).collect();
            if open.is_empty() {
                return Err("the name leads to no public address".into());
            }
            Ok(Box::new(open.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetcher(base: &str) -> Fetcher {
        let base = Url::parse(base).expect("an address");
        Fetcher::new(base.clone(), http::client(&base, None).expect("a client"), None)
    }

    #[test]
    fn allows_private_addresses_only_for_the_configured_server() {
        let local = fetcher("http://127.0.0.1:8081/bot");
        let far = fetcher("https://discord.com/api/v10");
        for (fetcher, url, may) in [
            (&local, "http://127.0.0.1:8081/file/bot1/x", true),
            (&local, "http://127.0.0.1:9999/x", false),
            (&local, "http://localhost:8081/x", false),
            (&far, "https://cdn.discordapp.com/x", true),
            (&far, "http://cdn.discordapp.com/x", false),
            (&far, "https://127.0.0.1/x", false),
            (&far, "https://169.254.169.254/latest/meta-data", false),
            (&far, "https://[::1]/x", false),
            (&far, "https://10.0.0.7/x", false),
            (&far, "https://metadata.google.internal/x", false),
            (&far, "ftp://e.org/x", false),
            (&far, "file:///etc/passwd", false),
        ] {
            let url = Url::parse(url).expect("an address");
            assert_eq!(fetcher.client(&url).is_ok(), may, "{url}");
        }
    }

    #[test]
    fn hides_machine_details_from_the_chat() {
        let inside = "10.0.0.7:3128: permission denied";
        for error in [
            Error::Link(HttpError::ConnectFailed(inside.into())),
            Error::Platform(PlatformError::Telegram(HttpError::ConnectionLost(inside.into()).into())),
            Error::Disk(io::Error::other(inside)),
        ] {
            assert!(!error.to_string().contains("10.0.0.7"), "{error}");
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            assert!(source.contains(inside), "the log has it: {source}");
        }
    }

    #[test]
    fn caps_the_timeout_for_any_announced_size() {
        for (size, want) in [
            (0, START_TIMEOUT),
            (MIN_BYTES_PER_SECOND * 10, START_TIMEOUT + Duration::from_secs(10)),
            (u64::MAX, MAX_TIMEOUT),
        ] {
            assert_eq!(timeout_for(size), want, "{size}");
        }
    }

    #[tokio::test]
    async fn refuses_names_that_resolve_to_loopback() {
        let name = "localhost".parse().expect("a name");
        assert!(PublicResolver(vec![]).resolve(name).await.is_err());
    }

    #[tokio::test]
    async fn allows_a_local_proxy_but_no_local_target() {
        let name = "localhost".parse().expect("a name");
        assert!(PublicResolver(vec!["localhost".into()]).resolve(name).await.is_ok());
        for near in ["localhost", "127.0.0.1", "[::1]"] {
            assert!(matches!(check_host(near).await, Err(Error::Blocked(_))), "{near}");
        }
        assert!(check_host("192.0.43.8").await.is_ok());
    }
}
