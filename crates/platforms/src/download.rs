//! A file on its way in: streamed to disk, never held in memory, never larger than agreed.
//!
//! The address of a file comes from somebody else. One at the configured server itself is as good as that
//! server; every other one, and every redirect, may only lead to the open internet (`core::net`): names are
//! resolved by `Public`, so the connection goes to the very address that was judged. A proxy resolves names itself:
//! then they are judged before it is asked, and what they mean to it a moment later is the proxy's business.

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

use crate::http::{self, Failure};
use crate::{Error as PlatformError, Secret};

/// Addresses in a row that a file may send us to.
const HOPS: usize = 3;
/// How long a file may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);
/// The slowest line that is waited for, in bytes per second.
const SLOWEST: u64 = 1 << 20;
/// No file is waited for longer, whatever length its server announces.
const LONGEST: Duration = Duration::from_secs(3600);
/// How an address begins that is the file itself.
pub const DATA: &str = "data:";
/// How much of the beginning is shown to whoever must know what it is.
const HEAD: usize = 32;

/// A file that is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fetched {
    pub size: u64,
    /// What the server calls it.
    pub mime: Option<String>,
    /// Its first bytes.
    pub head: Vec<u8>,
}

/// Why a file is not there, in words for the chat. What only the owner of this machine should read is the source.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it is larger than {} MB", most >> 20)]
    TooLarge { most: u64 },
    #[error("it is at an address that is not fetched from ({0})")]
    Barred(String),
    #[error("the platform only names it and does not keep it")]
    Elsewhere,
    #[error("the server answered {status}")]
    Status { status: u16, after: Option<Duration> },
    #[error("the server sent a page to sign in instead of the file")]
    SignIn,
    #[error("the connection to its server failed")]
    Link(#[from] Failure),
    #[error("the platform does not hand it out")]
    Asked(#[from] PlatformError),
    #[error("it cannot be kept here")]
    Disk(#[from] io::Error),
}

impl Error {
    /// Another try may have more luck.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            Self::Link(_) => true,
            Self::Asked(error) => matches!(error.fault(), Fault::Later { .. }),
            Self::TooLarge { .. } | Self::Barred(_) | Self::Elsewhere | Self::SignIn | Self::Disk(_) => false,
        }
    }

    /// How long the other end wants to be left alone.
    pub fn after(&self) -> Option<Duration> {
        match self {
            Self::Status { after, .. } => *after,
            Self::Asked(error) => match error.fault() {
                Fault::Later { after } => after,
                Fault::Refused | Fault::Fatal => None,
            },
            Self::TooLarge { .. }
            | Self::Barred(_)
            | Self::Elsewhere
            | Self::SignIn
            | Self::Link(_)
            | Self::Disk(_) => None,
        }
    }
}

/// The way to files: the configured server's own, and the open internet's.
#[derive(Debug)]
pub(crate) struct Fetcher {
    base: Url,
    /// Reaches the configured server, wherever it is.
    own: Client,
    /// Made when it is first needed: it reads the system's certificates.
    open: OnceLock<Client>,
    proxy: Option<Secret>,
    /// The hosts of all proxies that may be between us and the open internet.
    proxies: Vec<String>,
}

impl Fetcher {
    pub(crate) fn new(base: Url, own: Client, proxy: Option<Secret>) -> Self {
        let proxies = http::proxies(proxy.as_ref().map(Secret::expose));
        Self { base, own, open: OnceLock::new(), proxy, proxies }
    }

    /// The configured server.
    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    /// One try. `token` says for every address on the way what it is shown.
    pub(crate) async fn fetch(
        &self,
        url: &str,
        token: &(dyn Fn(&Url) -> Option<Secret> + Sync),
        most: u64,
        to: &mut tokio::fs::File,
    ) -> Result<Fetched, Error> {
        save(self.begin(url, token).await?, most, to).await
    }

    /// Follows an address to where something is handed out.
    pub(crate) async fn begin(
        &self,
        url: &str,
        token: &(dyn Fn(&Url) -> Option<Secret> + Sync),
    ) -> Result<Response, Error> {
        let mut url = Url::parse(url).map_err(|_| Error::Barred("it is no address".into()))?;
        for _hop in 0..=HOPS {
            let mut request = self.client(&url)?.get(url.clone());
            if !self.is_own(&url) && !self.proxies.is_empty() {
                judge(url.host_str().unwrap_or_default()).await?;
            }
            if let Some(token) = token(&url) {
                request = request.bearer_auth(token.expose());
            }
            let begun = tokio::time::timeout(PATIENCE, request.send()).await;
            let response = begun.map_err(|_| Failure::Silent(PATIENCE))?.map_err(http::failure)?;
            match response.status() {
                StatusCode::OK => return Ok(response),
                status if status.is_redirection() => url = next(&url, &response)?,
                status => {
                    let after = http::retry_after(&response);
                    return Err(Error::Status { status: status.as_u16(), after });
                }
            }
        }
        Err(Error::Barred("it leads on and on".into()))
    }

    /// Whether an address is one of the configured server.
    pub(crate) fn is_near(&self, url: &str) -> bool {
        Url::parse(url).is_ok_and(|url| self.is_own(&url))
    }

    fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    /// The client for this address, if it may be fetched from.
    fn client(&self, url: &Url) -> Result<&Client, Error> {
        if self.is_own(url) {
            return Ok(&self.own);
        }
        if url.scheme() != "https" {
            return Err(Error::Barred("it is not encrypted".into()));
        }
        let host = url.host_str().unwrap_or_default();
        net::host(host).map_err(|refused| Error::Barred(refused.to_string()))?;
        if let Some(open) = self.open.get() {
            return Ok(open);
        }
        let made =
            http::public(self.proxy.as_ref().map(Secret::expose), Arc::new(Public(self.proxies.clone())));
        let made = made.map_err(|error| Failure::Unreached(error.without_url().to_string()))?;
        Ok(self.open.get_or_init(|| made))
    }
}

/// One try at a file that is named by its address alone, whoever named it: it is in the address itself (`data:`), or at the
/// open internet.
pub async fn named(address: &str, most: u64, to: &mut tokio::fs::File) -> Result<Fetched, Error> {
    if let Some(data) = address.strip_prefix(DATA) {
        return unwrap(data, most, to).await;
    }
    let unbuilt = |error: reqwest::Error| Failure::Unreached(error.without_url().to_string());
    // No address is one of this server.
    let nowhere = Url::parse("data:,").map_err(|_| Error::Elsewhere)?;
    let own = http::common().build().map_err(unbuilt)?;
    Fetcher::new(nowhere, own, None).fetch(address, &|_| None, most, to).await
}

async fn unwrap(data: &str, most: u64, to: &mut tokio::fs::File) -> Result<Fetched, Error> {
    let broken = || Error::Barred("it cannot be read".into());
    let (about, data) = data.split_once(',').ok_or_else(broken)?;
    let mime = about.strip_suffix(";base64").ok_or_else(broken)?;
    let bytes = STANDARD.decode(data.trim()).map_err(|_| broken())?;
    let size = bytes.len() as u64;
    if size > most {
        return Err(Error::TooLarge { most });
    }
    to.write_all(&bytes).await?;
    to.flush().await?;
    Ok(Fetched { size, mime: Some(mime.to_owned()), head: bytes.into_iter().take(HEAD).collect() })
}

/// A client that reaches the open internet and nothing else, and follows nobody anywhere.
pub fn outward() -> Result<Client, reqwest::Error> {
    http::common().no_proxy().dns_resolver(Arc::new(Public(vec![]))).build()
}

/// Whether all that a name means to us is open. One that we do not know only the proxy can judge.
async fn judge(host: &str) -> Result<(), Error> {
    let Ok(mut found) = tokio::net::lookup_host((host.trim_matches(['[', ']']), 0)).await else {
        return Ok(());
    };
    let refused = found.find_map(|at| net::address(at.ip()).err());
    refused.map_or(Ok(()), |refused| Err(Error::Barred(refused.to_string())))
}

/// Where a redirect leads; an address without a host is one of the same server.
fn next(from: &Url, response: &Response) -> Result<Url, Error> {
    let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
    let to = to.and_then(|to| from.join(to).ok());
    to.ok_or_else(|| Error::Barred("it leads nowhere".into()))
}

async fn save(response: Response, most: u64, to: &mut tokio::fs::File) -> Result<Fetched, Error> {
    let announced = response.content_length();
    if announced.is_some_and(|size| size > most) {
        return Err(Error::TooLarge { most });
    }
    let within = patience(announced.unwrap_or(most.min(1 << 30)));
    let saved = tokio::time::timeout(within, copy(response, most, to)).await;
    saved.map_err(|_| Failure::Silent(within))?
}

fn patience(size: u64) -> Duration {
    LONGEST.min(PATIENCE + Duration::from_secs(size / SLOWEST))
}

async fn copy(mut response: Response, most: u64, to: &mut tokio::fs::File) -> Result<Fetched, Error> {
    let mime = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_owned);
    let mut fetched = Fetched { mime, ..Fetched::default() };
    while let Some(chunk) = response.chunk().await.map_err(http::failure)? {
        fetched.size += chunk.len() as u64;
        if fetched.size > most {
            return Err(Error::TooLarge { most });
        }
        let missing = HEAD.saturating_sub(fetched.head.len()).min(chunk.len());
        fetched.head.extend_from_slice(&chunk[..missing]);
        to.write_all(&chunk).await?;
    }
    to.flush().await?;
    Ok(fetched)
}

/// Resolves names to addresses of the open internet; a name that has others as well has only the open ones. The hosts
/// of proxies may be anywhere: the owner named them.
#[derive(Debug)]
struct Public(Vec<String>);

impl Resolve for Public {
    fn resolve(&self, name: Name) -> Resolving {
        let proxy = self.0.iter().any(|proxy| proxy == name.as_str());
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let open: Vec<SocketAddr> = found.filter(|at| proxy || net::address(at.ip()).is_ok()).collect();
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
    fn only_the_configured_server_may_be_near() {
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
    fn what_the_chat_reads_names_nothing_of_this_machine() {
        let inside = "10.0.0.7:3128: permission denied";
        for error in [
            Error::Link(Failure::Unreached(inside.into())),
            Error::Asked(PlatformError::Telegram(Failure::Lost(inside.into()).into())),
            Error::Disk(io::Error::other(inside)),
        ] {
            assert!(!error.to_string().contains("10.0.0.7"), "{error}");
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            assert!(source.contains(inside), "the log has it: {source}");
        }
    }

    #[test]
    fn no_server_can_make_us_wait_for_ever() {
        for (size, want) in
            [(0, PATIENCE), (SLOWEST * 10, PATIENCE + Duration::from_secs(10)), (u64::MAX, LONGEST)]
        {
            assert_eq!(patience(size), want, "{size}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_home_leads_nowhere() {
        let name = "localhost".parse().expect("a name");
        assert!(Public(vec![]).resolve(name).await.is_err());
    }

    #[tokio::test]
    async fn a_proxy_may_be_near_and_what_it_is_asked_for_may_not() {
        let name = "localhost".parse().expect("a name");
        assert!(Public(vec!["localhost".into()]).resolve(name).await.is_ok());
        for near in ["localhost", "127.0.0.1", "[::1]"] {
            assert!(matches!(judge(near).await, Err(Error::Barred(_))), "{near}");
        }
        assert!(judge("192.0.43.8").await.is_ok());
    }
}
