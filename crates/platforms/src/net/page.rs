//! Fetches web pages, under the rules of `download`.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::CONTENT_TYPE;

use crate::download::{Error, Fetcher};
use crate::http::{self, HttpError};

/// Longer pages are cut.
const MAX_PAGE_BYTES: usize = 4 << 20;
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Placeholder: no page is at our own server.
const NO_SERVER: &str = "https://unknown.invalid/";

#[derive(Debug)]
pub struct PageFetcher(Fetcher);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebPage {
    /// After redirects.
    pub url: String,
    /// Without parameters, in lower case; empty if unknown.
    pub mime: String,
    pub body: Vec<u8>,
    pub cut: bool,
}

impl PageFetcher {
    pub fn new() -> Result<Self, HttpError> {
        Self::with_own_server(NO_SERVER)
    }

    /// Exempts one server from the address check, for tests.
    #[doc(hidden)]
    pub fn with_own_server(base: &str) -> Result<Self, HttpError> {
        let failed = |why: String| HttpError::ConnectFailed(why);
        let base = Url::parse(base).map_err(|error| failed(error.to_string()))?;
        let own = http::client(&base, None).map_err(|error| failed(error.to_string()))?;
        Ok(Self(Fetcher::new(base, own, None)))
    }

    /// `http://` is upgraded to `https://`.
    pub async fn get(&self, url: &str) -> Result<WebPage, Error> {
        let within = tokio::time::timeout(PAGE_TIMEOUT, self.read(url.trim())).await;
        within.map_err(|_elapsed| HttpError::Timeout(PAGE_TIMEOUT))?
    }

    async fn read(&self, url: &str) -> Result<WebPage, Error> {
        let encrypted = url
            .strip_prefix("http://")
            .filter(|_| !self.0.is_own_server(url))
            .map(|rest| format!("https://{rest}"));
        let mut response = self.0.open(encrypted.as_deref().unwrap_or(url), &|_| None).await?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let mime = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let mut page = WebPage { url: response.url().to_string(), mime, body: Vec::new(), cut: false };
        while let Some(chunk) = response.chunk().await.map_err(http::http_error)? {
            let room = MAX_PAGE_BYTES - page.body.len();
            page.body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                page.cut = true;
                break;
            }
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// Serves these responses, one per connection.
    #[expect(clippy::disallowed_methods, reason = "it serves blocking sockets until the test ends")]
    fn server(answers: Vec<Vec<u8>>) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for answer in answers {
                let Ok((mut stream, _)) = listener.accept() else { return };
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                // The client may close early.
                let _ = stream.write_all(&answer);
            }
        });
        at
    }

    fn ok(kind: &str, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n");
        [head.as_bytes(), body].concat()
    }

    fn to(location: &str) -> Vec<u8> {
        format!(
            "HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .into_bytes()
    }

    #[tokio::test]
    async fn follows_redirects_and_cuts_long_pages() {
        let at = server(vec![
            to("/next"),
            ok("Text/HTML; charset=utf-8", b"<p>hi"),
            ok("text/plain", &vec![b'x'; MAX_PAGE_BYTES + 9]),
        ]);
        let pages = PageFetcher::with_own_server(&at).unwrap();
        let page = pages.get(&at).await.unwrap();
        let want = WebPage {
            url: format!("{at}next"),
            mime: "text/html".into(),
            body: b"<p>hi".to_vec(),
            cut: false,
        };
        assert_eq!(page, want);
        let long = pages.get(&at).await.unwrap();
        assert_eq!((long.body.len(), long.cut), (MAX_PAGE_BYTES, true));
    }

    #[tokio::test]
    async fn refuses_private_addresses_even_after_redirects() {
        let at = server(vec![
            to("http://169.254.169.254/latest/meta-data"),
            to("https://localhost/x"),
            to("file:///etc/passwd"),
        ]);
        let pages = PageFetcher::with_own_server(&at).unwrap();
        for _ in 0..3 {
            let error = pages.get(&at).await.unwrap_err();
            assert!(matches!(error, Error::Blocked(_)), "{error}");
        }
        let far = PageFetcher::new().unwrap();
        for url in [
            at.as_str(),
            "http://127.0.0.1/",
            "https://[::1]/",
            "https://10.0.0.1/x",
            "http://2130706433/",
            "https://metadata.google.internal/",
            "ftp://example.org/",
            "gopher://x",
            "not an address",
            "",
        ] {
            let error = far.get(url).await.unwrap_err();
            assert!(matches!(error, Error::Blocked(_)), "{url}: {error}");
        }
    }
}
