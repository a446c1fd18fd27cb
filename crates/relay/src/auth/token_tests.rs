use aws_lc_rs::hmac;

use super::*;

fn sign(key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec()
}

fn check(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), message, signature).is_ok()
}

const EXP: u64 = 1_767_225_900;

/// Payload, secret, expiry, token.
const VECTORS: [(&str, &str, u64, &str); 3] = [
    (
        "gw-alpha",
        "s3cr3t-key",
        EXP,
        "Z3ctYWxwaGE6MTc2NzIyNTkwMDo2MWRhMmUwYmZjZWE4NzcxYTNkOGFlZjdjNmFjZmI4MDBiZWNkMmY1MDE2MTA4ZmQyMzE5YmJmYjU5NmQyMjFl",
    ),
    (
        "gw:with:colons",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        EXP,
        "Z3c6d2l0aDpjb2xvbnM6MTc2NzIyNTkwMDpmZTgwZTE2MTUyZTBjNmM1NTViNmU3ZjUwM2Q3Y2U0YzM4ZmRkYzllMzkxZWJjY2IwMDZhYTEyY2Y0ZDlhZDI5",
    ),
    (
        "gw-ünïcode",
        "pässwörd",
        0,
        "Z3ctw7xuw69jb2RlOjA6NTU3ZWNmNWRiNzBiNjUxZDdiMDg5ODFkZWE2YTBiOTYyNDdmYjBkN2RhMjI2ZDc3MWI4MzFjYTBlZmVlYmVkMQ",
    ),
];

#[test]
fn tokens_match_reference_vectors() {
    for (payload, secret, exp, token) in VECTORS {
        assert_eq!(mint(payload, secret, exp, sign), token);
        let claim = Claim::read(token).unwrap();
        assert_eq!((claim.payload.as_str(), claim.exp), (payload, exp));
        assert_eq!(claim.verify(EXP, ["", "other", secret], check), Ok(()), "also as the second secret");
        assert_eq!(claim.verify(EXP, ["other", ""], check), Err(Refused::Unauthorized));
        assert_eq!(claim.verify(EXP, [], check), Err(Refused::Unauthorized));
        let late = if exp == 0 { Ok(()) } else { Err(Refused::Expired) };
        assert_eq!(claim.verify(EXP + 1, [secret], check), late);
    }
}

#[test]
fn upgrade_requires_fresh_token_with_minute_of_skew() {
    let (_, secret, _, token) = VECTORS[0];
    let claim = Claim::read(token).unwrap();
    for (now, want) in [
        (EXP + 60, Ok(())),
        (EXP + 61, Err(Refused::Expired)),
        (EXP - 900, Ok(())),
        (EXP - 901, Err(Refused::Unauthorized)),
    ] {
        assert_eq!(claim.admit(now, [secret], check), want, "{now}");
    }
    let (_, secret, _, for_ever) = VECTORS[2];
    assert_eq!(Claim::read(for_ever).unwrap().admit(EXP, [secret], check), Err(Refused::Unauthorized));
}

#[test]
fn ignores_only_padding_and_case_of_tokens() {
    let (payload, secret, exp, token) = VECTORS[0];
    let signed = |text: String| URL_SAFE_NO_PAD.encode(text);
    let signature = hex(&sign(secret.as_bytes(), format!("{payload}:{exp}").as_bytes()));
    let good =
        |token: &str| Claim::read(token).is_some_and(|claim| claim.verify(EXP, [secret], check).is_ok());
    let padded = |length| format!("{token:=<length$}");
    assert!(good(token) && good(&format!("{token}==")) && good(&padded(4096)));
    assert!(good(&signed(format!("{payload}:{exp}:{}", signature.to_uppercase()))));
    for bad in [
        String::new(),
        padded(4097),
        format!("{token} "),
        token.replace('Z', "*"),
        signed(format!("gw-beta:{exp}:{signature}")),
        signed(format!("{payload}:{}:{signature}", exp + 1)),
        signed(format!("{payload}: {exp}:{signature}")),
        signed(format!("{payload}:+{exp}:{signature}")),
        signed(format!("{payload}:{exp}: {}", &signature[1..])),
        signed(format!("{payload}:{exp}:{}", &signature[2..])),
        signed(format!(":{exp}:{signature}")),
        signed(signature.clone()),
    ] {
        assert!(!good(&bad), "{bad}");
    }
}

#[test]
fn parses_bearer_header() {
    assert_eq!(bearer("Bearer abc"), Some("abc"));
    assert_eq!(bearer("bearer  abc "), Some("abc"));
    for none in ["", "abc", "Basic abc", "Bearer "] {
        assert_eq!(bearer(none), None, "{none}");
    }
}
