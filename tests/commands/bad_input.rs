//! Unusable input and homes: a clear error and exit code, and no loss.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{
    ProgramFixture, SOON, eventually, expect_failure, expect_success, petasos, stderr, stdout,
};
use petasos_fakes::model::Answer;
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

#[test]
fn malformed_updates_do_not_block_others() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    for nonsense in [
        json!({"message": {"chat": {"id": 9, "type": "private"}, "text": 5}}),
        json!({"message": {"chat": {"id": 9, "type": "hologram"}, "text": "hi", "message_id": 1, "date": 1}}),
        json!({"message": null}),
        json!({"telepathy": {"thought": "hi"}}),
        json!({"message": {"message_id": 2, "date": 1, "chat": "nine"}}),
        json!({}),
    ] {
        fixture.telegram.push_update(nonsense);
    }
    fixture.telegram.push_text(7, 7, "still there?");
    assert_eq!(fixture.wait_messages(7, 1), ["echo: still there?"]);
    let confirmed = fixture.telegram.wait_until(SOON, |state| (state.pending_updates() == 0).then_some(()));
    assert!(confirmed.is_some(), "the offset did not move");
}

#[test]
fn lists_and_counts_unreadable_events_without_logging_them() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    fixture.telegram.push_update(json!({ "message": { "message_id": "nine", "text": "hush" } }));
    fixture.telegram.push_text(7, 7, "hello");
    fixture.wait_messages(7, 1);
    assert_eq!(fixture.status()["unreadable"], 1);
    let listed = crate::support::expect_json(&fixture.run(&["links", "unreadable", "--json"]));
    let event = &listed[0];
    let id = event["id"].as_i64().expect("an id").to_string();
    assert_eq!((&event["platform"], &event["event"]), (&json!("telegram"), &json!("1")), "{listed}");
    assert!(!listed.to_string().contains("hush"), "{listed}");
    assert!(expect_success(&fixture.run(&["links", "unreadable", "--raw", &id])).contains("hush"));
    assert!(
        expect_failure(&fixture.run(&["links", "unreadable", "--raw", "99"]), 1)
            .contains("no unreadable event has the id 99")
    );
    assert!(stdout(&fixture.run(&["doctor"])).contains("petasos links unreadable"));
    let log = fixture.kill();
    assert!(log.contains("unreadable update stored") && !log.contains("hush"), "{log}");
    assert!(expect_success(&fixture.run(&["links", "unreadable"])).contains("telegram"), "needs no gateway");
}

#[test]
fn retries_poll_after_invalid_response() {
    let mut fixture = ProgramFixture::with_config("platforms.telegram.extra.poll_backoff_base: 0.05\n");
    fixture.start();
    fixture.telegram.push_raw_response(&b"\xff\xfe{\"ok\":true,\"result\":[\xc3\x28"[..]);
    fixture.telegram.push_raw_response(&b"<html>502 Bad Gateway</html>"[..]);
    fixture.telegram.push_raw_response(&b"{\"ok\":true,\"result\":[{\"update_id\":"[..]);
    fixture.telegram.push_text(7, 7, "hello");
    let answered = fixture.telegram.wait_until(std::time::Duration::from_secs(60), |state| {
        (state.texts(7) == ["echo: hello"]).then_some(())
    });
    assert!(answered.is_some(), "{:?}", fixture.telegram.texts(7));
}

#[test]
fn truncates_and_answers_ten_megabyte_message() {
    let mut fixture = ProgramFixture::new();
    fixture.model.respond(|request| Answer::text(format!("{} bytes", request.last_user.len())));
    fixture.start();
    fixture.telegram.push_text(7, 7, "é".repeat(5 << 20));
    let texts = fixture.wait_messages(7, 1);
    let bytes: usize = texts[0].trim_end_matches(" bytes").parse().expect("a number");
    assert!(bytes > 1 << 20 && bytes < (1 << 20) + 200, "{bytes}");
    fixture.telegram.push_text(8, 8, "x");
    assert_eq!(fixture.wait_messages(8, 1), ["1 bytes"]);
}

#[test]
fn reports_broken_yaml_with_line_and_column() {
    let home = TempDir::new().expect("a home");
    std::fs::write(home.path().join("config.yaml"), "model:\n  default: x\n  provider: [custom\n")
        .expect("config");
    let output = petasos(home.path(), &["run"]).stdin(Stdio::null()).output().expect("runs");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(
        said.contains("config.yaml:3") || said.contains("config.yaml:4") || said.contains("line "),
        "{said}"
    );
    assert!(!home.path().join("petasos.db").exists(), "a database was created");
}

#[test]
fn reports_wrong_type_and_suggests_known_key() {
    let home = TempDir::new().expect("a home");
    std::fs::write(home.path().join("config.yaml"), "modle:\n  default: x\nagent:\n  max_turns: many\n")
        .expect("config");
    let output = petasos(home.path(), &["config", "check"]).output().expect("runs");
    let said = format!("{}{}", crate::support::stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("modle") && said.contains("model"), "{said}");
    assert!(said.contains("agent.max_turns") && said.contains("many"), "{said}");
}

/// A stopped gateway with one answered message.
fn used_home() -> ProgramFixture {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    fixture.telegram.push_text(7, 7, "hello");
    fixture.wait_messages(7, 1);
    fixture.terminate();
    fixture
}

#[test]
fn leaves_newer_database_untouched() {
    let fixture = used_home();
    let database = Connection::open(fixture.database()).expect("opens");
    database.pragma_update(None, "user_version", 9999).expect("written");
    drop(database);
    // The map file of that version.
    let map = fixture.database().with_file_name(".petasos.db-map");
    std::fs::write(map, r#"{"schema":9999,"roots":{}}"#).expect("written");
    let before = std::fs::read(fixture.database()).expect("the file");
    let output = fixture.run(&["run"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("newer"), "{said}");
    assert_eq!(std::fs::read(fixture.database()).expect("the file"), before);
}

#[test]
fn keeps_a_damaged_database_aside_and_starts() {
    let mut fixture = used_home();
    let log = fixture.database().with_extension("db-wal");
    assert!(std::fs::metadata(&log).map_or(0, |log| log.len()) == 0, "a clean stop checkpoints the log");
    let mut bytes = std::fs::read(fixture.database()).expect("the file");
    let end = bytes.len().min(16 * 4096);
    bytes[4096..end].fill(0x5a);
    std::fs::write(fixture.database(), &bytes).expect("written");
    fixture.start();
    let entries = std::fs::read_dir(fixture.home.path()).expect("a home").flatten();
    let aside = entries.map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("petasos.db.damaged-") && name.ends_with('Z')
    });
    assert_eq!(std::fs::read(aside.expect("kept aside")).expect("the file"), bytes);
    assert!(fixture.status()["salvage"]["summary"].as_str().is_some_and(|it| it.contains("lost")));
}

#[test]
fn does_not_replace_missing_database() {
    let fixture = used_home();
    std::fs::remove_file(fixture.database()).expect("removed");
    let output = fixture.run(&["run"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(!fixture.database().exists());
}

#[test]
fn refuses_second_gateway_on_same_home() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let pid = fixture.gateway.as_ref().expect("running").pid();
    let output = fixture.run(&["run"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&pid.to_string()), "{said}");
    fixture.telegram.push_text(7, 7, "hello");
    assert_eq!(fixture.wait_messages(7, 1), ["echo: hello"]);
}

/// Runs the program in its own mount namespace, prepared by `setup` (a shell script that sees `$HOME_DIR`).
fn in_own_mount(fixture: &ProgramFixture, setup: &str) -> Command {
    let home = fixture.home.path();
    let kept = home.join("config.yaml");
    let config = std::fs::read_to_string(&kept).expect("config");
    let inner = petasos(home, &["run"]);
    let program = inner.get_program().to_string_lossy().into_owned();
    let script = format!("{setup}\nexec \"$PROGRAM\" run");
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-euc", &script]).env_clear();
    for (key, value) in inner.get_envs() {
        if let Some(value) = value {
            command.env(key, value);
        }
    }
    command.env("HOME_DIR", home).env("PROGRAM", program).env("CONFIG", config);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn reports_read_only_home() {
    let fixture = ProgramFixture::new();
    let setup = "mount -t tmpfs tmpfs \"$HOME_DIR\"\nprintf %s \"$CONFIG\" > \"$HOME_DIR/config.yaml\"\n\
                 mount -o remount,ro \"$HOME_DIR\"";
    let output = in_own_mount(&fixture, setup).output().expect("runs");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.to_lowercase().contains("read-only"), "{said}");
}

#[test]
fn full_disk_delays_acknowledgements_and_loses_nothing() {
    let mut fixture = ProgramFixture::new();
    fixture.model.respond(|request| Answer::text(request.last_user.chars().take(9).collect::<String>()));
    let setup = "mount -t tmpfs -o size=24m tmpfs \"$HOME_DIR\"\nprintf %s \"$CONFIG\" > \"$HOME_DIR/config.yaml\"\n\
                 dd if=/dev/zero of=\"$HOME_DIR/ballast\" bs=1k count=22500 2>/dev/null";
    let child = in_own_mount(&fixture, setup).spawn().expect("starts");
    let pid = child.id();
    fixture.gateway = Some(crate::support::GatewayProcess::new(child));
    let polling = fixture.telegram.wait_until(SOON, |state| state.calls_of("getUpdates").next().map(|_| ()));
    assert!(polling.is_some(), "never started");
    for chat in 1..=8 {
        fixture.telegram.push_text(chat, chat, format!("message {chat} {}", "x".repeat(400_000)));
    }
    // The status reports the full disk, and Telegram keeps the messages that were not stored.
    let status = eventually("the status reports the full disk", || {
        let status = status_inside(&fixture, pid);
        status["store_trouble"].as_str().is_some_and(|error| error.contains("full")).then_some(status)
    });
    assert_eq!(status["state"], "degraded", "{status}");
    assert!(fixture.telegram.pending_updates() > 0, "a message was acknowledged that is not on disk");
    std::fs::remove_file(
        Path::new("/proc")
            .join(pid.to_string())
            .join("root")
            .join(strip_root(fixture.home.path()))
            .join("ballast"),
    )
    .expect("removed");
    for chat in 1..=8 {
        let want = format!("message {chat}");
        let answered = fixture.telegram.wait_until(std::time::Duration::from_secs(90), |state| {
            (state.texts(chat).iter().any(|text| text.contains(&want))).then_some(())
        });
        assert!(answered.is_some(), "chat {chat}: {:?}", fixture.telegram.texts(chat));
    }
}

/// `petasos status --json` in the mount namespace of the gateway.
fn status_inside(fixture: &ProgramFixture, pid: u32) -> serde_json::Value {
    let inner = fixture.command(&["status", "--json"]);
    let mut command = Command::new("nsenter");
    command.args(["-t", &pid.to_string(), "-U", "-m", "--preserve-credentials"]);
    command.arg(inner.get_program()).args(inner.get_args()).env_clear();
    for (key, value) in inner.get_envs() {
        if let Some(value) = value {
            command.env(key, value);
        }
    }
    let output = command.output().expect("nsenter runs");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no status: {}", stderr(&output)))
}

fn strip_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

#[test]
fn damaged_row_does_not_affect_other_chats() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    for chat in [7, 8] {
        fixture.telegram.push_text(chat, chat, "hello");
        fixture.wait_messages(chat, 1);
    }
    fixture.wait_idle();
    fixture.kill();
    let store = Connection::open(fixture.database()).expect("a database");
    let damaged = store.execute("UPDATE routing SET entry = '{' WHERE session_key LIKE '%:7'", []);
    assert_eq!(damaged.expect("written"), 1);
    drop(store);
    fixture.start();
    fixture.telegram.push_text(8, 8, "again");
    assert_eq!(fixture.wait_messages(8, 2)[1], "echo: again");
}
