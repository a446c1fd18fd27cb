//! Web logins, pairing, and the id of the installation.

use std::time::Duration;

use petasos_core::pairing::{CodeApproval, PairingState};
use petasos_store::{Error, PairingReply};

use crate::fixture::{Home, NOW, later, telegram};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn login_expires_and_leaves_no_token_on_disk() {
    let mut home = Home::new();
    let token = home.write(|tx| tx.create_login("laptop", HOUR, NOW));
    let good = |home: &Home, seconds| home.store.is_logged_in(token.as_str(), later(seconds)).unwrap();
    assert!(good(&home, 3599) && !good(&home, 3600));
    assert!(!home.store.is_logged_in("0000", NOW).unwrap());
    assert!(home.write(|tx| tx.revoke_login(token.as_str())));
    assert!(!good(&home, 0));
    assert_eq!(format!("{token:?}"), "Token(…)");
    let file = std::fs::read(home.path()).unwrap();
    let log = std::fs::read(format!("{}-wal", home.path().display())).unwrap();
    for bytes in [file, log] {
        assert!(!bytes.windows(64).any(|window| window == token.as_str().as_bytes()), "the token is on disk");
    }
}

#[test]
fn a_login_link_works_once_and_in_time() {
    let mut home = Home::new();
    let token = home.write(|tx| tx.create_login_link(HOUR, NOW));
    assert!(!home.write(|tx| tx.redeem_login_link(token.as_str(), later(3600))));
    assert!(home.write(|tx| tx.redeem_login_link(token.as_str(), later(10))));
    assert!(!home.write(|tx| tx.redeem_login_link(token.as_str(), later(11))));
}

#[test]
fn user_is_approved_by_the_issued_code() {
    let mut home = Home::new();
    let asked = home.write(|tx| tx.pairing_request(telegram(), "u1", Some("Ann"), NOW));
    let PairingReply::Code(code) = asked else { panic!("{asked:?}") };
    let mut home = home.reopen();
    assert_eq!(home.write(|tx| tx.pairing_request(telegram(), "u1", None, later(1))), PairingReply::Silent);
    assert_eq!(home.write(|tx| tx.pairing_approve(telegram(), "no code", later(2))), None);
    let wrong = home.write(|tx| tx.pairing_approve(telegram(), "AAAAAAAA", later(2)));
    assert!(matches!(wrong, Some(CodeApproval::Wrong { .. })), "{wrong:?}");
    let right = home.write(|tx| tx.pairing_approve(telegram(), &code.to_lowercase(), later(3)));
    assert!(matches!(right, Some(CodeApproval::Approved(_))), "{right:?}");
    assert!(home.store.pairing_state(telegram()).unwrap().is_paired("u1"));
    assert_eq!(home.store.pairing_states().unwrap().len(), 1);
    assert!(home.write(|tx| tx.pairing_revoke(telegram(), "u1")));
    assert!(!home.write(|tx| tx.pairing_revoke(telegram(), "u1")));
}

#[test]
fn unlocking_pairing_forgets_the_failed_approvals() {
    let mut home = Home::new();
    let locked =
        PairingState { failures: vec![NOW; 5], locked_until: Some(later(3600)), ..PairingState::default() };
    home.write(|tx| tx.put_pairing_state(telegram(), &locked));
    assert!(home.write(|tx| tx.pairing_unlock(telegram())));
    assert_eq!(home.store.pairing_state(telegram()).unwrap(), PairingState::default());
    assert!(!home.write(|tx| tx.pairing_unlock(telegram())), "it was not locked any more");
}

#[test]
fn silent_pairing_request_writes_nothing() {
    let mut home = Home::new();
    home.write(|tx| tx.pairing_request(telegram(), "u1", None, NOW));
    let other = home.raw();
    let version = || other.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).unwrap();
    let before = version();
    assert_eq!(home.write(|tx| tx.pairing_request(telegram(), "u1", None, later(1))), PairingReply::Silent);
    assert_eq!(version(), before);
    home.write(|tx| tx.pairing_request(telegram(), "u2", None, later(1)));
    assert_ne!(version(), before);
}

#[test]
fn unreadable_pairing_state_is_kept_and_approves_no_user() {
    let mut home = Home::new();
    let asked = home.write(|tx| tx.pairing_request(telegram(), "u1", None, NOW));
    let PairingReply::Code(code) = asked else { panic!("{asked:?}") };
    home.write(|tx| tx.pairing_approve(telegram(), &code, NOW));
    assert!(home.store.is_paired(telegram(), "u1").unwrap());
    assert!(!home.store.is_paired(telegram(), "u2").unwrap());
    home.raw().execute("UPDATE pairing SET book = 'torn'", []).unwrap();
    assert!(!home.store.is_paired(telegram(), "u1").unwrap());
    assert_eq!(home.write(|tx| tx.pairing_request(telegram(), "u1", None, NOW)), PairingReply::Silent);
    let kept: String = home.raw().query_row("SELECT book FROM pairing", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, "torn");
    assert_eq!(home.store.pairing_state(telegram()), Err(Error::Unreadable("pairing book")));
}

#[test]
fn install_id_is_permanent() {
    let mut home = Home::new();
    let id = home.write(|tx| tx.install_id());
    assert_eq!(home.reopen().write(|tx| tx.install_id()), id);
}
