use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;
use tracing::{Event, Metadata, Subscriber, span};

use super::*;
use crate::home::files::testing::{JUNK, NO_HOMES, ruin};

const NOW: Millis = Millis(1_794_766_299_573);
const HOUR: Duration = Duration::from_secs(3600);
const OWN: &str = "f70ff267-5f66-42a7-a31c-68f9865f7012:31";

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn put(home: &TempDir, contents: impl AsRef<[u8]>) {
    std::fs::write(path(home.path()), contents).unwrap();
}

fn lookout(home: &TempDir) -> Lookout {
    Lookout::with_epoch(home.path(), HOUR, Some(OWN.into()))
}

fn requested(home: &TempDir) -> bool {
    lookout(home).look(NOW).is_some()
}

fn nas() -> Ask {
    Ask { principal: "nas".into(), ..Ask::default() }
}

/// Counts what is logged.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn an_empty_home_has_no_marker_and_asks_for_nothing() {
    let home = home();
    assert_eq!((read(home.path()), requested(&home)), (None, false));
}

#[test]
fn what_is_written_is_read_and_counts() {
    let home = home();
    let marker = write(home.path(), &nas(), NOW).unwrap();
    assert_eq!((marker.action.as_deref(), marker.principal.as_deref()), (Some("drain"), Some("nas")));
    assert_eq!(marker.requested_at.as_deref(), Some("2026-11-15T18:11:39.573000+00:00"));
    assert_eq!(read(home.path()), Some(marker.clone()));
    assert_eq!(Lookout::new(home.path(), HOUR).look(NOW), Some(marker));
}

#[test]
fn the_file_is_indented_private_and_signed_even_when_nobody_says_who_asks() {
    let home = home();
    write(home.path(), &Ask::default(), NOW).unwrap();
    let text = std::fs::read_to_string(path(home.path())).unwrap();
    assert!(text.starts_with("{\n  \"action\": \"drain\",\n  \"requested_at\""), "{text}");
    assert!(text.contains("\"principal\": \"drain-control\""), "{text}");
    assert_eq!(path(home.path()).metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn clearing_twice_tells_that_the_second_found_nothing() {
    let home = home();
    write(home.path(), &nas(), NOW).unwrap();
    assert!(clear(home.path()).unwrap());
    assert!(!clear(home.path()).unwrap());
    assert!(!requested(&home));
}

#[test]
fn the_marker_is_in_the_home() {
    assert_eq!(path(Path::new("/x")), Path::new("/x/.drain_request.json"));
}

#[test]
fn a_marker_that_cannot_be_parsed_has_no_contents_and_counts() {
    let home = home();
    put(&home, "{not valid json");
    assert_eq!((read(home.path()), requested(&home)), (Some(Marker::default()), true));
}

#[test]
fn a_thousand_writers_at_once_never_show_half_a_marker() {
    let home = home();
    write(home.path(), &nas(), NOW).unwrap();
    let done = AtomicBool::new(false);
    let read_all = || {
        let mut reads = 0;
        while !done.load(Ordering::Relaxed) {
            let bytes = std::fs::read(path(home.path())).unwrap();
            let value: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(value["action"], "drain");
            reads += 1;
        }
        reads
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(read_all);
        let write_one = |number: u64| {
            let ask = Ask { reason: Some("x".repeat(usize::try_from(number * 7).unwrap())), ..nas() };
            let home = home.path();
            scope.spawn(move || write(home, &ask, Millis(NOW.0 + number)).map(drop))
        };
        let writers: Vec<_> = (0..1000).map(write_one).collect();
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
        assert!(reader.join().unwrap() > 0);
    });
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn a_marker_of_junk_counts_and_is_no_error() {
    for junk in JUNK {
        let home = home();
        put(&home, junk);
        assert!(requested(&home), "{junk:?}");
        assert_eq!(std::fs::read(path(home.path())).unwrap(), junk);
    }
}

#[test]
fn a_marker_of_another_boot_is_left_alone_and_ignored_with_all_it_says() {
    let home = home();
    let text = r#"{"action":"drain","epoch":"another:1","suppress_notification":true}"#;
    put(&home, text);
    assert!(!requested(&home));
    assert_eq!(std::fs::read_to_string(path(home.path())).unwrap(), text);
    let marker = read(home.path()).unwrap();
    assert!(!marker::suppresses(&marker, Some(OWN), HOUR, NOW));
}

#[test]
fn where_either_side_does_not_know_its_boot_the_marker_counts() {
    let home = home();
    put(&home, r#"{"action":"drain"}"#);
    assert!(requested(&home));
    put(&home, r#"{"action":"drain","epoch":"another:1"}"#);
    assert!(Lookout::with_epoch(home.path(), HOUR, None).look(NOW).is_some());
}

#[test]
fn a_marker_that_nobody_renewed_is_ignored_with_one_warning_until_it_is_written_again() {
    let home = home();
    write(home.path(), &nas(), NOW.before(Duration::from_secs(61 * 60))).unwrap();
    let mut lookout = Lookout::new(home.path(), HOUR);
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        for tick in 0..5 {
            assert_eq!(lookout.look(Millis(NOW.0 + tick * 1000)), None);
        }
    });
    assert_eq!(warnings.0.load(Ordering::Relaxed), 1);
    write(home.path(), &nas(), NOW).unwrap();
    assert!(lookout.look(NOW).is_some());
}

#[test]
fn a_time_that_is_missing_or_garbled_counts() {
    for time in ["", r#","requested_at":null"#, r#","requested_at":"soon""#, r#","requested_at":7"#] {
        let home = home();
        put(&home, format!(r#"{{"action":"drain","epoch":"{OWN}"{time}}}"#));
        assert!(requested(&home), "{time}");
    }
}

#[test]
fn a_marker_that_cannot_be_read_for_the_moment_counts_as_before() {
    let home = home();
    let mut lookout = lookout(&home);
    let block = |yes: bool| {
        std::fs::remove_file(path(home.path())).ok();
        std::fs::remove_dir(path(home.path())).ok();
        if yes {
            std::fs::create_dir(path(home.path())).unwrap();
        }
    };
    block(true);
    assert_eq!(lookout.look(NOW), None);
    block(false);
    put(&home, "{}");
    assert!(lookout.look(NOW).is_some());
    block(true);
    assert!(lookout.look(NOW).is_some() && lookout.look(NOW).is_some());
    block(false);
    assert_eq!(lookout.look(NOW), None);
}

#[test]
fn nothing_in_place_of_the_marker_or_of_the_home_is_an_error() {
    let home = home();
    ruin(&path(home.path()), |what| {
        // Whatever is too large to be read is there all the same.
        let there = read(home.path()).is_some() || what == "huge";
        assert_eq!(requested(&home), there, "{what}");
    });
    for home in NO_HOMES {
        assert_eq!(read(Path::new(home)), None, "{home:?}");
        assert_eq!(Lookout::new(home, HOUR).look(NOW), None, "{home:?}");
    }
}

#[test]
fn an_epoch_has_a_boot_and_a_start_as_far_as_they_are_known() {
    for (boot, start, want) in [
        (Some("b"), Some(31), Some("b:31")),
        (Some("b"), None, Some("b:")),
        (None, Some(31), Some(":31")),
        (None, None, None),
    ] {
        assert_eq!(epoch_of(boot, start).as_deref(), want);
    }
    assert_eq!(epoch(), epoch());
}
