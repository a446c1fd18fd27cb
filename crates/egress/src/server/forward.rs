//! Forwards one plain HTTP request over a connection of its own.
//!
//! The request is parsed and written anew, so its framing at the server is ours and not the program's, and no second request can
//! follow on that connection. Ambiguous framing is refused nevertheless.

use std::sync::PoisonError;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;

use super::authentication::basic_credential;
use super::connection::{ClientConnection, ServerStream};
use super::http::{ProxyBody, RefusedRequest};
use crate::policy::host_port::{HostPort, parse_port};
use crate::refusal::Refusal;

const HTTP_PORT: u16 = 80;

pub(super) async fn forward(
    connection: &ClientConnection,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, RefusedRequest> {
    let sandbox = connection.authenticate(basic_credential(request.headers()).as_ref())?;
    check_framing(request.headers())?;
    let to = destination(request.uri())?;
    let opened = connection.open(&sandbox, &to).await;
    let with_host = |refusal| RefusedRequest { refusal, to: Some(to.clone()) };
    let server = opened.map_err(with_host)?;
    exchange(connection, server, rewritten(request, &to)).await.map_err(with_host)
}

/// Only absolute `http` addresses are forwarded; `https` needs a tunnel.
fn destination(uri: &Uri) -> Result<HostPort, Refusal> {
    let scheme = uri.scheme_str().ok_or(Refusal::BadRequest(
        "this is a proxy: send a request for http://host/path, or CONNECT host:port",
    ))?;
    if scheme != "http" {
        return Err(Refusal::BadRequest("only http addresses are forwarded: use CONNECT for others"));
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err(Refusal::BadRequest(
            "the address contains a user name: send it in the header Authorization",
        ));
    }
    let host = uri.host().unwrap_or_default();
    let port = match authority.strip_prefix(host).and_then(|rest| rest.strip_prefix(':')) {
        Some(port) => parse_port(port).map_err(Refusal::BadHostPort)?,
        None => HTTP_PORT,
    };
    HostPort::new(host, port).map_err(Refusal::BadHostPort)
}

/// Refuses repeated and unknown framing. A length beside `chunked` has been removed by the parser, as RFC 9112 demands.
fn check_framing(headers: &HeaderMap) -> Result<(), Refusal> {
    let count = |name| headers.get_all(name).iter().count();
    if count(CONTENT_LENGTH) > 1 || count(HOST) > 1 {
        return Err(Refusal::BadRequest("the header Content-Length or Host is repeated"));
    }
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let first = encodings.next();
    let is_chunked = first.is_none_or(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !is_chunked || encodings.next().is_some() {
        return Err(Refusal::BadRequest("the only supported Transfer-Encoding is chunked"));
    }
    Ok(())
}

/// The request as the server gets it: path only, `Host` of the address that was authorised, no headers for the proxy.
fn rewritten(request: Request<Incoming>, to: &HostPort) -> Request<Incoming> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse().unwrap_or_default();
    parts.version = Version::HTTP_11;
    strip_connection_headers(&mut parts.headers);
    // We have answered it ourselves.
    parts.headers.remove(EXPECT);
    let host = if to.port == HTTP_PORT { to.host.to_string() } else { to.to_string() };
    if let Ok(host) = HeaderValue::from_str(&host) {
        parts.headers.insert(HOST, host);
    }
    parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Request::from_parts(parts, body)
}

/// Removes headers that are meant for the next hop only.
fn strip_connection_headers(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let fixed =
        [CONNECTION, PROXY_AUTHORIZATION, PROXY_AUTHENTICATE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
    let unregistered = ["keep-alive", "proxy-connection"].map(HeaderName::from_static);
    for name in listed.into_iter().chain(fixed).chain(unregistered) {
        headers.remove(name);
    }
}

async fn exchange(
    connection: &ClientConnection,
    server: ServerStream,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, Refusal> {
    let mut client = hyper::client::conn::http1::Builder::new();
    client.preserve_header_case(true);
    let (mut sender, driver) =
        client.handshake(TokioIo::new(server)).await.map_err(|_| Refusal::NoResponse)?;
    {
        let mut drivers = connection.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        while drivers.try_join_next().is_some() {}
        petasos_runtime::spawn_into(&mut drivers, async move {
            // The request or the response body has the error.
            let _ended = driver.await;
        });
    }
    let response = sender.send_request(request).await.map_err(|_| Refusal::NoResponse)?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Refusal::NoResponse);
    }
    let (mut parts, body) = response.into_parts();
    strip_connection_headers(&mut parts.headers);
    Ok(Response::from_parts(parts, body.boxed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_absolute_http_addresses_are_forwarded() {
        for (uri, want) in [
            ("http://example.org/a?b", Some("example.org:80")),
            ("http://EXAMPLE.org:8080", Some("example.org:8080")),
            ("http://[::1]:81/", Some("[::1]:81")),
            ("http://2130706433/", Some("127.0.0.1:80")),
            ("https://example.org/", None),
            ("ftp://example.org/", None),
            ("/a", None),
            ("example.org:80", None),
            ("http://user@example.org/", None),
            ("http://example.org:/", None),
            ("http://example.org:0/", None),
            ("http://example.org:99999/", None),
        ] {
            let parsed = uri.parse::<Uri>().ok().and_then(|uri| destination(&uri).ok());
            assert_eq!(parsed.map(|to| to.to_string()).as_deref(), want, "{uri}");
        }
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        for (all, want) in [
            (headers(&[]), true),
            (headers(&[("content-length", "1"), ("host", "a")]), true),
            (headers(&[("transfer-encoding", "Chunked")]), true),
            (headers(&[("content-length", "1"), ("content-length", "1")]), false),
            (headers(&[("transfer-encoding", "gzip, chunked")]), false),
            (headers(&[("transfer-encoding", "chunked"), ("transfer-encoding", "identity")]), false),
            (headers(&[("host", "a"), ("host", "b")]), false),
        ] {
            assert_eq!(check_framing(&all).is_ok(), want, "{all:?}");
        }
    }

    #[test]
    fn headers_for_the_proxy_do_not_reach_the_server() {
        let mut all = headers(&[
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("proxy-authorization", "Basic secret"),
            ("proxy-connection", "keep-alive"),
            ("upgrade", "websocket"),
            ("te", "trailers"),
            ("authorization", "Bearer kept"),
        ]);
        strip_connection_headers(&mut all);
        assert_eq!(all, headers(&[("authorization", "Bearer kept")]));
    }
}
