//! Verifies the HMAC signatures of requests. Pure: the time is an argument.
//!
//! The strongest scheme with a header decides alone: an invalid signature is not replaced by a weaker valid
//! one.

use aws_lc_rs::{constant_time, digest, hmac};
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use petasos_core::Secret;
use petasos_core::text::{hex, unhex};

/// Older requests may be replays.
const MAX_SKEW_SECONDS: u64 = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignatureScheme {
    /// `svix-*` or `webhook-*` headers; signs id, time and body.
    Svix,
    GitHub,
    GitLab,
    /// Signs time and body.
    V2,
    /// Signs the body only, so it can be replayed without limit.
    V1,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VerifiedSignature {
    pub scheme: SignatureScheme,
    /// The raw signature, independent of scheme, route and spelling. Empty for GitLab, which signs nothing.
    pub code: Vec<u8>,
}

fn deciding_scheme(headers: &HeaderMap) -> Option<(SignatureScheme, &str)> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let shown = |scheme, name| text(name).map(|shown| (scheme, shown));
    shown(SignatureScheme::Svix, "svix-signature")
        .or_else(|| shown(SignatureScheme::Svix, "webhook-signature"))
        // Before GitHub's, which is computed like V1.
        .or_else(|| shown(SignatureScheme::V2, "x-webhook-signature-v2"))
        .or_else(|| shown(SignatureScheme::GitHub, "x-hub-signature-256"))
        .or_else(|| shown(SignatureScheme::GitLab, "x-gitlab-token"))
        .or_else(|| shown(SignatureScheme::V1, "x-webhook-signature"))
}

/// `None`: no signature, an invalid one, or one that is too old.
pub(super) fn verify(
    secret: &Secret,
    headers: &HeaderMap,
    body: &[u8],
    now: u64,
) -> Option<VerifiedSignature> {
    let key = secret.expose().as_bytes();
    let (scheme, shown) = deciding_scheme(headers)?;
    let code = match scheme {
        SignatureScheme::Svix => verify_svix(secret, headers, shown, body, now),
        SignatureScheme::V2 => {
            let time = headers.get("x-webhook-timestamp").and_then(|time| time.to_str().ok());
            let time = time.filter(|time| is_recent(time, now))?;
            verify_hex(key, &[time.as_bytes(), b".", body], shown)
        }
        SignatureScheme::GitHub => shown.strip_prefix("sha256=").and_then(|hex| verify_body(key, body, hex)),
        SignatureScheme::GitLab => constant_time_eq(shown.as_bytes(), key).then(Vec::new),
        SignatureScheme::V1 => verify_body(key, body, shown),
    };
    code.map(|code| VerifiedSignature { scheme, code })
}

/// Headers of a V2 signature, for our own senders.
pub fn sign(secret: &Secret, time: u64, body: &[u8]) -> [(&'static str, String); 2] {
    let time = time.to_string();
    let tag = tag(secret.expose().as_bytes(), &[time.as_bytes(), b".", body]);
    [("x-webhook-timestamp", time), ("x-webhook-signature-v2", hex(tag.as_ref()))]
}

fn verify_svix(
    secret: &Secret,
    headers: &HeaderMap,
    signatures: &str,
    body: &[u8],
    now: u64,
) -> Option<Vec<u8>> {
    let text = |name: &str| {
        let value = headers.get(format!("svix-{name}")).or_else(|| headers.get(format!("webhook-{name}")));
        value.and_then(|value| value.to_str().ok())
    };
    let id = text("id")?;
    let time = text("timestamp")?;
    let key = match secret.expose().strip_prefix("whsec_") {
        Some(encoded) => STANDARD.decode(encoded).unwrap_or_default(),
        None => secret.expose().as_bytes().to_vec(),
    };
    if key.is_empty() || !is_recent(time, now) {
        return None;
    }
    let parts: [&[u8]; 5] = [id.as_bytes(), b".", time.as_bytes(), b".", body];
    // Computed once: a stranger may send thousands of signatures. During a secret rotation there are several.
    let ours = tag(&key, &parts);
    let shown = signatures.split_whitespace().filter_map(|one| one.strip_prefix("v1,"));
    let valid =
        shown.filter_map(|encoded| STANDARD.decode(encoded).ok()).any(|theirs| is_same(&ours, &theirs));
    valid.then(|| ours.as_ref().to_vec())
}

/// Refuses bodies that begin like the signed content of Svix or V2: they may be replays without a time.
fn verify_body(key: &[u8], body: &[u8], hex: &str) -> Option<Vec<u8>> {
    let mut parts = body.splitn(3, |byte| *byte == b'.');
    let first = parts.next().unwrap_or_default();
    let second = parts.next().unwrap_or_default();
    let is_time = |part: &[u8]| part.len() >= 9 && part.iter().all(u8::is_ascii_digit);
    let is_id = !first.iter().any(|byte| b"{[\"=&".contains(byte));
    let timed = body.contains(&b'.') && (is_time(first) || (is_id && is_time(second)));
    if timed { None } else { verify_hex(key, &[body], hex) }
}

fn is_recent(time: &str, now: u64) -> bool {
    time.parse::<u64>().is_ok_and(|time| time.abs_diff(now) <= MAX_SKEW_SECONDS)
}

fn verify_hex(key: &[u8], parts: &[&[u8]], shown: &str) -> Option<Vec<u8>> {
    unhex(shown).filter(|theirs| is_same(&tag(key, parts), theirs))
}

fn is_same(ours: &hmac::Tag, theirs: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(ours.as_ref(), theirs).is_ok()
}

fn tag(key: &[u8], parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    parts.iter().for_each(|part| context.update(part));
    context.sign()
}

/// Compares digests, so the duration does not depend on the length either.
pub(crate) fn constant_time_eq(ours: &[u8], theirs: &[u8]) -> bool {
    let digest = |bytes| digest::digest(&digest::SHA256, bytes);
    constant_time::verify_slices_are_equal(digest(ours).as_ref(), digest(theirs).as_ref()).is_ok()
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
    fn check(secret: &str, pairs: &[(&str, &str)], body: &str, now: u64, want: Option<SignatureScheme>) {
        let found = verify(&Secret::new(secret), &headers(pairs), body.as_bytes(), now);
        assert_eq!(found.map(|signature| signature.scheme), want, "{pairs:?} at {now}");
    }

    /// From "Validating webhook deliveries" of GitHub's documentation.
    #[test]
    fn verifies_github_signatures_of_the_body() {
        let secret = "It's a Secret to Everybody";
        let good = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        check(secret, &[("X-Hub-Signature-256", good)], "Hello, World!", 0, Some(SignatureScheme::GitHub));
        check(secret, &[("X-Hub-Signature-256", good)], "Hello, World?", 0, None);
        check("other", &[("X-Hub-Signature-256", good)], "Hello, World!", 0, None);
        for bad in ["", "sha256=", &good["sha256=".len()..], &good[..good.len() - 2], "sha256=zz"] {
            check(secret, &[("X-Hub-Signature-256", bad)], "Hello, World!", 0, None);
        }
    }

    /// From the documentation of Svix and the reference tests of Standard Webhooks.
    #[test]
    fn verifies_svix_signatures_of_id_time_and_body() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let body = r#"{"test": 2432232314}"#;
        let good = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let time = "1614265330";
        for prefix in ["svix", "webhook"] {
            let id_name = format!("{prefix}-id");
            let time_name = format!("{prefix}-timestamp");
            let signature_name = format!("{prefix}-signature");
            let shown = |signature: &'static str| {
                [(id_name.as_str(), id), (time_name.as_str(), time), (signature_name.as_str(), signature)]
            };
            check(secret, &shown(good), body, 1_614_265_330, Some(SignatureScheme::Svix));
            check(secret, &shown(good), body, 1_614_265_630, Some(SignatureScheme::Svix));
            check(secret, &shown(good), body, 1_614_265_631, None);
            check(secret, &shown(good), body, 1_614_265_029, None);
            let several = "v1,Zm9v v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= \
                           v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
            check(secret, &shown(several), body, 1_614_265_330, Some(SignatureScheme::Svix));
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
    fn compares_gitlab_tokens_with_the_secret() {
        check("s3cret", &[("X-Gitlab-Token", "s3cret")], "any", 0, Some(SignatureScheme::GitLab));
        check("s3cret", &[("X-Gitlab-Token", "s3cre")], "any", 0, None);
        check("s3cret", &[("X-Gitlab-Token", "")], "any", 0, None);
    }

    #[test]
    fn own_signatures_are_valid_for_five_minutes() {
        let [time, signature] = sign(&Secret::new("s"), 1000, b"{}");
        let shown = [(time.0, time.1.as_str()), (signature.0, signature.1.as_str())];
        for (now, want) in [
            (1000, Some(SignatureScheme::V2)),
            (1300, Some(SignatureScheme::V2)),
            (700, Some(SignatureScheme::V2)),
            (1301, None),
        ] {
            check("s", &shown, "{}", now, want);
        }
        check("s", &shown, "[]", 1000, None);
        check("s", &[("x-webhook-timestamp", "1001"), shown[1]], "{}", 1000, None);
    }

    #[test]
    fn invalid_signature_is_not_replaced_by_a_weaker_one() {
        let v1 = hex(tag(b"s", &[b"{}"]).as_ref());
        check("s", &[("x-webhook-signature", &v1)], "{}", 1000, Some(SignatureScheme::V1));
        let [time, v2] = sign(&Secret::new("s"), 1000, b"{}");
        // Without its time, with an old time, and empty.
        check("s", &[(v2.0, &v2.1), ("x-webhook-signature", &v1)], "{}", 1000, None);
        check("s", &[(v2.0, &v2.1), (time.0, &time.1), ("x-webhook-signature", &v1)], "{}", 9000, None);
        check("s", &[(v2.0, ""), ("x-webhook-signature", &v1)], "{}", 1000, None);
        let github = format!("sha256={v1}");
        check("s", &[(v2.0, &v2.1), ("x-hub-signature-256", &github)], "{}", 1000, None);
        check("s", &[("x-hub-signature-256", "sha256=00"), ("x-gitlab-token", "s")], "{}", 1000, None);
        check("s", &[], "{}", 1000, None);
    }

    #[test]
    fn timed_signatures_are_invalid_without_their_time() {
        for (body, want) in [
            ("1614265330.{\"a\":1}", None),
            ("1614265330.a=1", None),
            ("msg_1.1614265330.{\"a\":1}", None),
            ("1614265330", Some(SignatureScheme::V1)),
            ("{\"a\":\"x.1614265330.y\"}", Some(SignatureScheme::V1)),
            ("a=x.1614265330.y", Some(SignatureScheme::V1)),
            ("3.14", Some(SignatureScheme::V1)),
        ] {
            let code = tag(b"s", &[body.as_bytes()]);
            let v1 = hex(code.as_ref());
            check("s", &[("x-webhook-signature", &v1)], body, 1000, want);
        }
    }
}
