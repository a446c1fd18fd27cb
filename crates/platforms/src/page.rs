//! Pages of the open internet, for somebody who was given their address. The guards are `download`'s.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::CONTENT_TYPE;

use crate::download::{Error, Fetcher};
use crate::http::{self, Failure};

/// Bytes of a page; more is cut.
const MOST: usize = 4 << 20;
/// How long a page may take as a whole.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nobody's own server: every page is somebody else's.
const NOBODY: &str = "https://nobody.invalid/";

#[derive(Debug)]
pub struct Pages(Fetcher);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Where it was found in the end.
    pub url: String,
    /// Without parameters, in lower case; empty if the server does not say.
    pub mime: String,
    pub body: Vec<u8>,
    pub cut: bool,
}

impl Pages {
    pub fn new() -> Result<Self, Failure> {
        Self::near(NOBODY)
    }

    /// With one server that may be anywhere: for tests.
    #[doc(hidden)]
    pub fn near(base: &str) -> Result<Self, Failure> {
        let failed = |why: String| Failure::Unreached(why);
        let base = Url::parse(base).map_err(|error| failed(error.to_string()))?;
        let own = http::client(&base, None).map_err(|error| failed(error.to_string()))?;
        Ok(Self(Fetcher::new(base, own, None)))
    }

    /// An address without encryption is asked with it.
    pub async fn get(&self, url: &str) -> Result<Page, Error> {
        let within = tokio::time::timeout(PATIENCE, self.read(url.trim())).await;
        within.map_err(|_elapsed| Failure::Silent(PATIENCE))?
    }

    async fn read(&self, url: &str) -> Result<Page, Error> {
        let safe = url
            .strip_prefix("http://")
            .filter(|_| !self.0.is_near(url))
            .map(|rest| format!("https://{rest}"));
        let mut response = self.0.begin(safe.as_deref().unwrap_or(url), &|_| None).await?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let mime = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let mut page = Page { url: response.url().to_string(), mime, body: Vec::new(), cut: false };
        while let Some(chunk) = response.chunk().await.map_err(http::failure)? {
            let room = MOST - page.body.len();
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

    /// Answers each connection in turn with one of these.
    fn server(answers: Vec<Vec<u8>>) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for answer in answers {
                let Ok((mut stream, _)) = listener.accept() else { return };
                let mut asked = [0; 4096];
                let _ = stream.read(&mut asked);
                // A reader that has enough goes away.
                let _ = stream.write_all(&answer);
            }
        });
        at
    }

    fn ok(kind: &str, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n");
        [head.as_bytes(), body].concat()
    }

    fn to(place: &str) -> Vec<u8> {
        format!("HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .into_bytes()
    }

    #[tokio::test]
    async fn a_page_is_read_from_where_it_leads_and_cut_where_it_is_too_long() {
        let at = server(vec![
            to("/next"),
            ok("Text/HTML; charset=utf-8", b"<p>hi"),
            ok("text/plain", &vec![b'x'; MOST + 9]),
        ]);
        let pages = Pages::near(&at).unwrap();
        let page = pages.get(&at).await.unwrap();
        let want =
            Page { url: format!("{at}next"), mime: "text/html".into(), body: b"<p>hi".to_vec(), cut: false };
        assert_eq!(page, want);
        let long = pages.get(&at).await.unwrap();
        assert_eq!((long.body.len(), long.cut), (MOST, true));
    }

    #[tokio::test]
    async fn nothing_near_is_reached_not_even_by_a_detour() {
        let at = server(vec![
            to("http://169.254.169.254/latest/meta-data"),
            to("https://localhost/x"),
            to("file:///etc/passwd"),
        ]);
        let pages = Pages::near(&at).unwrap();
        for _ in 0..3 {
            let error = pages.get(&at).await.unwrap_err();
            assert!(matches!(error, Error::Barred(_)), "{error}");
        }
        let far = Pages::new().unwrap();
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
            assert!(matches!(error, Error::Barred(_)), "{url}: {error}");
        }
    }
}
