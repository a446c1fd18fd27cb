use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;
use tracing::{Event, Metadata, Subscriber, span};

use super::*;
use crate::home::files::testing::{JUNK, NO_HOMES, for_each_damage};

const NOW: Millis = Millis(1_794_766_299_573);
const HOUR: Duration = Duration::from_secs(3600);
const OWN: &str = "f70ff267-5f66-42a7-a31c-68f9865f7012:31";

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn write_raw(home: &TempDir, contents: impl AsRef<[u8]>) {
    std::fs::write(path(home.path()), contents).unwrap();
}

fn reader(home: &TempDir) -> DrainMarkerReader {
    DrainMarkerReader::with_epoch(home.path(), HOUR, Some(OWN.into()))
}

fn requested(home: &TempDir) -> bool {
    reader(home).check(NOW).is_some()
}

fn nas() -> DrainRequest {
    DrainRequest { principal: "nas".into(), ..DrainRequest::default() }
}

#[derive(Clone, Default)]
struct WarningCounter(Arc<AtomicUsize>);

impl Subscriber for WarningCounter {
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
fn empty_home_has_no_marker() {
    let home = home();
    assert_eq!((read(home.path()), requested(&home)), (None, false));
}

#[test]
fn written_marker_is_valid() {
    let home = home();
    let marker = write(home.path(), &nas(), NOW).unwrap();
    assert_eq!((marker.action.as_deref(), marker.principal.as_deref()), (Some("drain"), Some("nas")));
    assert_eq!(marker.requested_at.as_deref(), Some("2026-11-15T18:11:39.573000+00:00"));
    assert_eq!(read(home.path()), Some(marker.clone()));
    assert_eq!(DrainMarkerReader::new(home.path(), HOUR).check(NOW), Some(marker));
}

#[test]
fn marker_file_is_private_and_names_default_principal() {
    let home = home();
    write(home.path(), &DrainRequest::default(), NOW).unwrap();
    let text = std::fs::read_to_string(path(home.path())).unwrap();
    assert!(text.starts_with("{\n  \"action\": \"drain\",\n  \"requested_at\""), "{text}");
    assert!(text.contains("\"principal\": \"drain-control\""), "{text}");
    assert_eq!(path(home.path()).metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn clear_reports_whether_there_was_a_marker() {
    let home = home();
    write(home.path(), &nas(), NOW).unwrap();
    assert!(clear(home.path()).unwrap());
    assert!(!clear(home.path()).unwrap());
    assert!(!requested(&home));
}

#[test]
fn marker_path_is_in_home() {
    assert_eq!(path(Path::new("/x")), Path::new("/x/.drain_request.json"));
}

#[test]
fn unparsable_marker_is_valid_and_empty() {
    let home = home();
    write_raw(&home, "{not valid json");
    assert_eq!((read(home.path()), requested(&home)), (Some(Marker::default()), true));
}

#[test]
fn concurrent_writes_never_expose_a_partial_marker() {
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
            let ask =
                DrainRequest { reason: Some("x".repeat(usize::try_from(number * 7).unwrap())), ..nas() };
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
fn junk_marker_is_valid() {
    for junk in JUNK {
        let home = home();
        write_raw(&home, junk);
        assert!(requested(&home), "{junk:?}");
        assert_eq!(std::fs::read(path(home.path())).unwrap(), junk);
    }
}

#[test]
fn ignores_and_keeps_marker_of_another_boot() {
    let home = home();
    let text = r#"{"action":"drain","epoch":"another:1","suppress_notification":true}"#;
    write_raw(&home, text);
    assert!(!requested(&home));
    assert_eq!(std::fs::read_to_string(path(home.path())).unwrap(), text);
}

#[test]
fn marker_is_valid_if_either_epoch_is_unknown() {
    let home = home();
    write_raw(&home, r#"{"action":"drain"}"#);
    assert!(requested(&home));
    write_raw(&home, r#"{"action":"drain","epoch":"another:1"}"#);
    assert!(DrainMarkerReader::with_epoch(home.path(), HOUR, None).check(NOW).is_some());
}

#[test]
fn warns_once_about_expired_marker_until_renewed() {
    let home = home();
    write(home.path(), &nas(), NOW.before(Duration::from_secs(61 * 60))).unwrap();
    let mut reader = DrainMarkerReader::new(home.path(), HOUR);
    let warnings = WarningCounter::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        for tick in 0..5 {
            assert_eq!(reader.check(Millis(NOW.0 + tick * 1000)), None);
        }
    });
    assert_eq!(warnings.0.load(Ordering::Relaxed), 1);
    write(home.path(), &nas(), NOW).unwrap();
    assert!(reader.check(NOW).is_some());
}

#[test]
fn marker_without_valid_time_never_expires() {
    for time in ["", r#","requested_at":null"#, r#","requested_at":"soon""#, r#","requested_at":7"#] {
        let home = home();
        write_raw(&home, format!(r#"{{"action":"drain","epoch":"{OWN}"{time}}}"#));
        assert!(requested(&home), "{time}");
    }
}

#[test]
fn read_error_keeps_last_marker() {
    let home = home();
    let mut reader = reader(&home);
    let block = |yes: bool| {
        std::fs::remove_file(path(home.path())).ok();
        std::fs::remove_dir(path(home.path())).ok();
        if yes {
            std::fs::create_dir(path(home.path())).unwrap();
        }
    };
    block(true);
    assert_eq!(reader.check(NOW), None);
    block(false);
    write_raw(&home, "{}");
    assert!(reader.check(NOW).is_some());
    block(true);
    assert!(reader.check(NOW).is_some() && reader.check(NOW).is_some());
    block(false);
    assert_eq!(reader.check(NOW), None);
}

#[test]
fn damaged_marker_or_home_is_no_error() {
    let home = home();
    for_each_damage(&path(home.path()), |what| {
        // A file that is too large is not read but counts as a marker.
        let there = read(home.path()).is_some() || what == "huge";
        assert_eq!(requested(&home), there, "{what}");
    });
    for home in NO_HOMES {
        assert_eq!(read(Path::new(home)), None, "{home:?}");
        assert_eq!(DrainMarkerReader::new(home, HOUR).check(NOW), None, "{home:?}");
    }
}

#[test]
fn epoch_combines_known_boot_id_and_start_time() {
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
