use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

const OWN: &str = "f70ff267-5f66-42a7-a31c-68f9865f7012:31";
const NOW: Millis = Millis(1_794_766_299_573);
const HOUR: Duration = Duration::from_secs(3600);

fn of_epoch(epoch: &str) -> Marker {
    Marker { epoch: Some(epoch.into()), suppress_notification: true, ..Marker::default() }
}

fn of_age(age: Duration) -> Marker {
    Marker { requested_at: Some(stamp::format(NOW.before(age))), ..of_epoch(OWN) }
}

#[track_caller]
fn check(marker: &Marker, own: Option<&str>, max_age: Duration, want: MarkerStatus) {
    assert_eq!(status(marker, own, max_age, NOW), want, "{marker:?}");
}

#[test]
fn round_trips_all_fields() {
    let text = format!(
        r#"{{"action":"drain","requested_at":"2026-11-15T18:11:39.573193+00:00","principal":"nas","epoch":"{OWN}","suppress_notification":false}}"#
    );
    let marker = Marker::parse(text.as_bytes());
    assert_eq!((marker.action.as_deref(), marker.principal.as_deref()), (Some(ACTION), Some("nas")));
    assert_eq!((marker.requested(), marker.epoch.as_deref()), (Some(NOW), Some(OWN)));
    assert_eq!(serde_json::to_string(&marker).unwrap(), text);
}

#[test]
fn treats_invalid_bytes_as_a_marker_without_contents() {
    for bytes in [
        &b""[..],
        b" ",
        b"{not valid json",
        b"[1]",
        b"7",
        b"null",
        b"\"drain\"",
        b"\xff\xfe",
        b"{\"principal\":\"\xff\"}",
        b"\xef\xbb\xbf{}",
        b"{}",
        b"{} {}",
        &[b'['; 100_000],
    ] {
        assert_eq!(Marker::parse(bytes), Marker::default(), "{bytes:?}");
    }
}

#[test]
fn ignores_only_the_field_of_the_wrong_type() {
    let text = r#"{"action":1,"requested_at":1794766299.5,"principal":"nas","epoch":["x"],"suppress_notification":"yes","reason":{}}"#;
    let want = Marker { principal: Some("nas".to_string()), ..Marker::default() };
    assert_eq!(Marker::parse(text.as_bytes()), want);
}

#[test]
fn ignores_a_marker_of_another_boot() {
    for epoch in ["0-0:31", "f70ff267-5f66-42a7-a31c-68f9865f7012:32", "1794766299", "other"] {
        check(&of_epoch(epoch), Some(OWN), HOUR, MarkerStatus::OtherBoot);
    }
}

#[test]
fn accepts_a_marker_if_a_boot_is_unknown() {
    check(&of_epoch(OWN), Some(OWN), HOUR, MarkerStatus::Active);
    check(&of_epoch("other:1"), None, HOUR, MarkerStatus::Active);
    check(&Marker::default(), Some(OWN), HOUR, MarkerStatus::Active);
    for epoch in ["", " ", ":", ":31", "f70ff267-5f66-42a7-a31c-68f9865f7012:"] {
        check(&of_epoch(epoch), Some(OWN), HOUR, MarkerStatus::Active);
        check(&of_epoch(OWN), Some(epoch), HOUR, MarkerStatus::Active);
    }
}

#[test]
fn expires_after_the_maximum_age() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    check(&of_age(minutes(60)), Some(OWN), HOUR, MarkerStatus::Active);
    check(&of_age(minutes(61)), Some(OWN), HOUR, MarkerStatus::Expired { age: minutes(61) });
    check(&of_age(minutes(61)), Some(OWN), Duration::ZERO, MarkerStatus::Active);
    check(&of_age(minutes(1)), None, minutes(0), MarkerStatus::Active);
}

#[test]
fn accepts_a_missing_invalid_or_future_time() {
    for time in [None, Some(""), Some("yesterday"), Some("2999-01-01T00:00:00"), Some("1794762699")] {
        let marker = Marker { requested_at: time.map(Into::into), ..of_epoch(OWN) };
        check(&marker, Some(OWN), HOUR, MarkerStatus::Active);
    }
}

proptest! {
    #[test]
    fn accepts_any_bytes_without_contents(bytes: Vec<u8>) {
        let marker = Marker::parse(&bytes);
        if marker == Marker::default() {
            prop_assert_eq!(status(&marker, Some(OWN), HOUR, NOW), MarkerStatus::Active);
        }
    }
}
