//! Credentials in the header of an HTTP request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::PROXY_AUTHORIZATION;
use petasos_core::Secret;

use crate::credentials::ProxyCredential;

/// Reads `Proxy-Authorization: Basic …`. `None` if there is none, more than one, or another scheme.
pub(super) fn basic_credential(headers: &HeaderMap) -> Option<ProxyCredential> {
    let mut all = headers.get_all(PROXY_AUTHORIZATION).iter();
    let value = all.next()?.to_str().ok()?;
    if all.next().is_some() {
        return None;
    }
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (name, token) = decoded.split_once(':')?;
    Some(ProxyCredential { name: name.to_owned(), token: Secret::new(token) })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(PROXY_AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn reads_one_basic_credential() {
        let encoded = STANDARD.encode("s.r:abc:d");
        let found = basic_credential(&headers(&[&format!("bAsIc  {encoded}")])).unwrap();
        assert_eq!((found.name.as_str(), found.token.expose()), ("s.r", "abc:d"));
        let value = format!("Basic {encoded}");
        for invalid in [
            vec![],
            vec![&value[..], &value],
            vec!["Bearer x"],
            vec!["Basic"],
            vec!["Basic !"],
            vec!["Basic YQ=="],
        ] {
            assert_eq!(basic_credential(&headers(&invalid)), None, "{invalid:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(value in "[ -~]{0,120}") {
            let _ = basic_credential(&headers(&[&value]));
        }
    }
}
