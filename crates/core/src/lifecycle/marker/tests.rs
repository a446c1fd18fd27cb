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
fn check(marker: &Marker, own: Option<&str>, max_age: Duration, want: Standing) {
    assert_eq!(standing(marker, own, max_age, NOW), want, "{marker:?}");
    assert_eq!(
        suppresses(marker, own, max_age, NOW),
        want == Standing::Active && marker.suppress_notification
    );
}

#[test]
fn a_whole_marker_is_read_and_written_field_by_field() {
    let text = format!(
        r#"{{"action":"drain","requested_at":"2026-11-15T18:11:39.573193+00:00","principal":"nas","epoch":"{OWN}","suppress_notification":false}}"#
    );
    let marker = Marker::parse(text.as_bytes());
    assert_eq!((marker.action.as_deref(), marker.principal.as_deref()), (Some(ACTION), Some("nas")));
    assert_eq!((marker.requested(), marker.epoch.as_deref()), (Some(NOW), Some(OWN)));
    assert_eq!(serde_json::to_string(&marker).unwrap(), text);
}

#[test]
fn bytes_that_make_no_sense_are_a_marker_without_contents() {
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
fn a_field_of_the_wrong_type_is_absent_and_spoils_no_other() {
    let text = r#"{"action":1,"requested_at":1794766299.5,"principal":"nas","epoch":["x"],"suppress_notification":"yes","reason":{}}"#;
    let want = Marker { principal: Some("nas".to_string()), ..Marker::default() };
    assert_eq!(Marker::parse(text.as_bytes()), want);
}

#[test]
fn a_marker_of_another_boot_does_not_count() {
    for epoch in ["0-0:31", "f70ff267-5f66-42a7-a31c-68f9865f7012:32", "1794766299", "other"] {
        check(&of_epoch(epoch), Some(OWN), HOUR, Standing::OtherBoot);
    }
}

#[test]
fn a_boot_that_either_side_does_not_know_is_no_reason_to_ignore_it() {
    check(&of_epoch(OWN), Some(OWN), HOUR, Standing::Active);
    check(&of_epoch("other:1"), None, HOUR, Standing::Active);
    check(&Marker::default(), Some(OWN), HOUR, Standing::Active);
    for epoch in ["", " ", ":", ":31", "f70ff267-5f66-42a7-a31c-68f9865f7012:"] {
        check(&of_epoch(epoch), Some(OWN), HOUR, Standing::Active);
        check(&of_epoch(OWN), Some(epoch), HOUR, Standing::Active);
    }
}

#[test]
fn a_marker_counts_for_exactly_its_greatest_age() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    check(&of_age(minutes(60)), Some(OWN), HOUR, Standing::Active);
    check(&of_age(minutes(61)), Some(OWN), HOUR, Standing::Expired { age: minutes(61) });
    check(&of_age(minutes(61)), Some(OWN), Duration::ZERO, Standing::Active);
    check(&of_age(minutes(1)), None, minutes(0), Standing::Active);
}

#[test]
fn a_time_that_is_missing_garbled_or_ahead_counts() {
    for time in [None, Some(""), Some("yesterday"), Some("2999-01-01T00:00:00"), Some("1794762699")] {
        let marker = Marker { requested_at: time.map(Into::into), ..of_epoch(OWN) };
        check(&marker, Some(OWN), HOUR, Standing::Active);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_marker_and_those_without_contents_count(bytes: Vec<u8>) {
        let marker = Marker::parse(&bytes);
        if marker == Marker::default() {
            prop_assert_eq!(standing(&marker, Some(OWN), HOUR, NOW), Standing::Active);
        }
    }
}
