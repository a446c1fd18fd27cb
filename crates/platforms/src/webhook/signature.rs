//! Whether a request was made by somebody who knows the secret. Pure: the time is an argument.
//!
//! The first scheme whose header is there decides alone: whoever shows a bad signature of one kind does not get
//! another try with a weaker one.

use aws_lc_rs::{constant_time, digest, hmac};
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use petasos_core::Secret;

/// How far the clocks may differ, in seconds; older requests may have been recorded and played again.
const SKEW: u64 = 300;

/// How a request was signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// `svix-*` or `webhook-*`: id, time and body.
    Svix,
    GitHub,
    GitLab,
    /// Time and body.
    V2,
    /// The body alone: it can be played again for ever.
    V1,
}

/// A request whose signature is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signed {
    pub scheme: Scheme,
    /// The code over what the scheme signs, which no other scheme, route or spelling changes. GitLab signs nothing.
    pub code: Vec<u8>,
}

/// The scheme that decides, and what is shown for it.
pub(super) fn scheme(headers: &HeaderMap) -> Option<(Scheme, &str)> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let shown = |scheme, name| text(name).map(|shown| (scheme, shown));
    shown(Scheme::Svix, "svix-signature")
        .or_else(|| shown(Scheme::Svix, "webhook-signature"))
        // Before GitHub's, which is made like V1.
        .or_else(|| shown(Scheme::V2, "x-webhook-signature-v2"))
        .or_else(|| shown(Scheme::GitHub, "x-hub-signature-256"))
        .or_else(|| shown(Scheme::GitLab, "x-gitlab-token"))
        .or_else(|| shown(Scheme::V1, "x-webhook-signature"))
}

/// `None`: not signed, or not by somebody who knows the secret, or too long ago.
pub(super) fn verified(secret: &Secret, headers: &HeaderMap, body: &[u8], now: u64) -> Option<Signed> {
    let key = secret.expose().as_bytes();
    let (scheme, shown) = scheme(headers)?;
    let code = match scheme {
        Scheme::Svix => svix(secret, headers, shown, body, now),
        Scheme::V2 => {
            let time = headers.get("x-webhook-timestamp").and_then(|time| time.to_str().ok());
            let time = time.filter(|time| is_recent(time, now))?;
            signed(key, &[time.as_bytes(), b".", body], shown)
        }
        Scheme::GitHub => shown.strip_prefix("sha256=").and_then(|hex| signed_body(key, body, hex)),
        Scheme::GitLab => same(shown.as_bytes(), key).then(Vec::new),
        Scheme::V1 => signed_body(key, body, shown),
    };
    code.map(|code| Signed { scheme, code })
}

/// What a sender of ours puts into its headers: the scheme that cannot be played again.
pub fn sign(secret: &Secret, time: u64, body: &[u8]) -> [(&'static str, String); 2] {
    let time = time.to_string();
    let tag = tag(secret.expose().as_bytes(), &[time.as_bytes(), b".", body]);
    let hex = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    [("x-webhook-timestamp", time), ("x-webhook-signature-v2", hex)]
}

fn svix(secret: &Secret, headers: &HeaderMap, signatures: &str, body: &[u8], now: u64) -> Option<Vec<u8>> {
    let text = |name: &str| {
        let value = headers.get(format!("svix-{name}")).or_else(|| headers.get(format!("webhook-{name}")));
        value.and_then(|value| value.to_str().ok())
    };
    let (id, time) = (text("id")?, text("timestamp")?);
    let key = match secret.expose().strip_prefix("whsec_") {
        Some(encoded) => STANDARD.decode(encoded).unwrap_or_default(),
        None => secret.expose().as_bytes().to_vec(),
    };
    if key.is_empty() || !is_recent(time, now) {
        return None;
    }
    let parts: [&[u8]; 5] = [id.as_bytes(), b".", time.as_bytes(), b".", body];
    // Made once: a stranger may show thousands. While a secret is being changed there are several, one for each.
    let ours = tag(&key, &parts);
    let shown = signatures.split_whitespace().filter_map(|one| one.strip_prefix("v1,"));
    let good =
        shown.filter_map(|encoded| STANDARD.decode(encoded).ok()).any(|theirs| is_same(&ours, &theirs));
    good.then(|| ours.as_ref().to_vec())
}

/// A body that begins like what Svix and V2 sign could be one of theirs that is played again without its time.
fn signed_body(key: &[u8], body: &[u8], hex: &str) -> Option<Vec<u8>> {
    let mut parts = body.splitn(3, |byte| *byte == b'.');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let is_time = |part: &[u8]| part.len() >= 9 && part.iter().all(u8::is_ascii_digit);
    let is_id = !first.iter().any(|byte| b"{[\"=&".contains(byte));
    let timed = body.contains(&b'.') && (is_time(first) || (is_id && is_time(second)));
    if timed { None } else { signed(key, &[body], hex) }
}

fn is_recent(time: &str, now: u64) -> bool {
    time.parse::<u64>().is_ok_and(|time| time.abs_diff(now) <= SKEW)
}

fn signed(key: &[u8], parts: &[&[u8]], hex: &str) -> Option<Vec<u8>> {
    bytes(hex).filter(|theirs| is_same(&tag(key, parts), theirs))
}

fn is_same(ours: &hmac::Tag, theirs: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(ours.as_ref(), theirs).is_ok()
}

fn tag(key: &[u8], parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    parts.iter().for_each(|part| context.update(part));
    context.sign()
}

/// Compares digests, so that the time tells nothing about the length either.
pub(crate) fn same(ours: &[u8], theirs: &[u8]) -> bool {
    let digest = |bytes| digest::digest(&digest::SHA256, bytes);
    constant_time::verify_slices_are_equal(digest(ours).as_ref(), digest(theirs).as_ref()).is_ok()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let plain = hex.len().is_multiple_of(2) && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| hex.as_bytes().chunks(2).map(digits).collect()).flatten()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (HeaderName::try_from(*name).expect("a name"), HeaderValue::try_from(*value).expect("a value"))
        };
        pairs.iter().map(pair).collect()
    }

    #[track_caller]
    fn check(secret: &str, pairs: &[(&str, &str)], body: &str, now: u64, want: Option<Scheme>) {
        let found = verified(&Secret::new(secret), &headers(pairs), body.as_bytes(), now);
        assert_eq!(found.map(|signed| signed.scheme), want, "{pairs:?} at {now}");
    }

    /// From "Validating webhook deliveries" of GitHub's documentation.
    #[test]
    fn github_signs_the_body() {
        let secret = "It's a Secret to Everybody";
        let good = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        check(secret, &[("X-Hub-Signature-256", good)], "Hello, World!", 0, Some(Scheme::GitHub));
        check(secret, &[("X-Hub-Signature-256", good)], "Hello, World?", 0, None);
        check("other", &[("X-Hub-Signature-256", good)], "Hello, World!", 0, None);
        for bad in ["", "sha256=", &good["sha256=".len()..], &good[..good.len() - 2], "sha256=zz"] {
            check(secret, &[("X-Hub-Signature-256", bad)], "Hello, World!", 0, None);
        }
    }

    /// From the documentation of Svix and the reference tests of Standard Webhooks.
    #[test]
    fn svix_signs_id_time_and_body() {
        let (secret, body) = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", r#"{"test": 2432232314}"#);
        let good = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let (id, time) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330");
        for prefix in ["svix", "webhook"] {
            let (id_name, time_name) = (format!("{prefix}-id"), format!("{prefix}-timestamp"));
            let signature_name = format!("{prefix}-signature");
            let shown = |signature: &'static str| {
                [(id_name.as_str(), id), (time_name.as_str(), time), (signature_name.as_str(), signature)]
            };
            check(secret, &shown(good), body, 1_614_265_330, Some(Scheme::Svix));
            check(secret, &shown(good), body, 1_614_265_630, Some(Scheme::Svix));
            check(secret, &shown(good), body, 1_614_265_631, None);
            check(secret, &shown(good), body, 1_614_265_029, None);
            let several = "v1,Zm9v v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= \
                           v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
            check(secret, &shown(several), body, 1_614_265_330, Some(Scheme::Svix));
            check(secret, &shown("v1,Zm9v v1,"), body, 1_614_265_330, None);
            check(secret, &shown(good)[1..], body, 1_614_265_330, None);
        }
        check(
            "whsec_",
            &[("svix-id", id), ("svix-timestamp", time), ("svix-signature", good)],
            body,
            1_614_265_330,
            None,
        );
    }

    #[test]
    fn gitlab_shows_the_secret_itself() {
        check("s3cret", &[("X-Gitlab-Token", "s3cret")], "any", 0, Some(Scheme::GitLab));
        check("s3cret", &[("X-Gitlab-Token", "s3cre")], "any", 0, None);
        check("s3cret", &[("X-Gitlab-Token", "")], "any", 0, None);
    }

    #[test]
    fn what_we_sign_is_good_for_five_minutes() {
        let [time, signature] = sign(&Secret::new("s"), 1000, b"{}");
        let shown = [(time.0, time.1.as_str()), (signature.0, signature.1.as_str())];
        for (now, want) in
            [(1000, Some(Scheme::V2)), (1300, Some(Scheme::V2)), (700, Some(Scheme::V2)), (1301, None)]
        {
            check("s", &shown, "{}", now, want);
        }
        check("s", &shown, "[]", 1000, None);
        check("s", &[("x-webhook-timestamp", "1001"), shown[1]], "{}", 1000, None);
    }

    #[test]
    fn a_bad_signature_is_not_saved_by_a_weaker_good_one() {
        let v1 = tag(b"s", &[b"{}"]).as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        check("s", &[("x-webhook-signature", &v1)], "{}", 1000, Some(Scheme::V1));
        let [time, v2] = sign(&Secret::new("s"), 1000, b"{}");
        // Without its time, with an old one, and empty.
        check("s", &[(v2.0, &v2.1), ("x-webhook-signature", &v1)], "{}", 1000, None);
        check("s", &[(v2.0, &v2.1), (time.0, &time.1), ("x-webhook-signature", &v1)], "{}", 9000, None);
        check("s", &[(v2.0, ""), ("x-webhook-signature", &v1)], "{}", 1000, None);
        let github = format!("sha256={v1}");
        check("s", &[(v2.0, &v2.1), ("x-hub-signature-256", &github)], "{}", 1000, None);
        check("s", &[("x-hub-signature-256", "sha256=00"), ("x-gitlab-token", "s")], "{}", 1000, None);
        check("s", &[], "{}", 1000, None);
    }

    #[test]
    fn what_is_signed_with_its_time_is_not_good_without_it() {
        for (body, want) in [
            ("1614265330.{\"a\":1}", None),
            ("1614265330.a=1", None),
            ("msg_1.1614265330.{\"a\":1}", None),
            ("1614265330", Some(Scheme::V1)),
            ("{\"a\":\"x.1614265330.y\"}", Some(Scheme::V1)),
            ("a=x.1614265330.y", Some(Scheme::V1)),
            ("3.14", Some(Scheme::V1)),
        ] {
            let code = tag(b"s", &[body.as_bytes()]);
            let v1: String = code.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            check("s", &[("x-webhook-signature", &v1)], body, 1000, want);
        }
    }
}
