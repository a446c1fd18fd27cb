//! What the program does with what it cannot use: a clear word, an exit code, and nothing lost.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Bench, SOON, failed, fine, petasos, stderr, stdout};
use petasos_fakes::model::Answer;
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

#[test]
fn updates_that_make_no_sense_never_block_the_rest() {
    let mut bench = Bench::new();
    bench.start();
    for nonsense in [
        json!({"message": {"chat": {"id": 9, "type": "private"}, "text": 5}}),
        json!({"message": {"chat": {"id": 9, "type": "hologram"}, "text": "hi", "message_id": 1, "date": 1}}),
        json!({"message": null}),
        json!({"telepathy": {"thought": "hi"}}),
        json!({"message": {"message_id": 2, "date": 1, "chat": "nine"}}),
        json!({}),
    ] {
        bench.telegram.push_update(nonsense);
    }
    bench.telegram.push_text(7, 7, "still there?");
    assert_eq!(bench.wait_messages(7, 1), ["echo: still there?"]);
    let confirmed = bench.telegram.wait_until(SOON, |world| (world.pending_updates() == 0).then_some(()));
    assert!(confirmed.is_some(), "the offset moved past them");
}

#[test]
fn what_could_not_be_read_is_listed_counted_and_not_logged() {
    let mut bench = Bench::new();
    bench.start();
    bench.telegram.push_update(json!({ "message": { "message_id": "nine", "text": "hush" } }));
    bench.telegram.push_text(7, 7, "hello");
    bench.wait_messages(7, 1);
    assert_eq!(bench.status()["unreadable"], 1);
    let listed = crate::support::json(&bench.run(&["links", "unreadable", "--json"]));
    let (id, event) = (listed[0]["id"].as_i64().expect("an id").to_string(), &listed[0]);
    assert_eq!((&event["platform"], &event["event"]), (&json!("telegram"), &json!("1")), "{listed}");
    assert!(!listed.to_string().contains("hush"), "{listed}");
    assert!(fine(&bench.run(&["links", "unreadable", "--raw", &id])).contains("hush"));
    assert!(
        failed(&bench.run(&["links", "unreadable", "--raw", "99"]), 1).contains("no unreadable event 99")
    );
    assert!(stdout(&bench.run(&["doctor"])).contains("petasos links unreadable"));
    let log = bench.kill();
    assert!(log.contains("unreadable update set aside") && !log.contains("hush"), "{log}");
    assert!(fine(&bench.run(&["links", "unreadable"])).contains("telegram"), "needs no gateway");
}

#[test]
fn an_answer_that_is_not_json_or_not_text_is_asked_for_again() {
    let mut bench = Bench::with("platforms.telegram.extra.poll_backoff_base: 0.05\n");
    bench.start();
    bench.telegram.push_raw_answer(&b"\xff\xfe{\"ok\":true,\"result\":[\xc3\x28"[..]);
    bench.telegram.push_raw_answer(&b"<html>502 Bad Gateway</html>"[..]);
    bench.telegram.push_raw_answer(&b"{\"ok\":true,\"result\":[{\"update_id\":"[..]);
    bench.telegram.push_text(7, 7, "hello");
    let answered = bench.telegram.wait_until(std::time::Duration::from_secs(60), |world| {
        (world.texts(7) == ["echo: hello"]).then_some(())
    });
    assert!(answered.is_some(), "{:?}", bench.telegram.texts(7));
}

#[test]
fn a_message_of_ten_megabytes_is_cut_and_answered() {
    let mut bench = Bench::new();
    bench.model.respond(|request| Answer::text(format!("{} bytes", request.last_user.len())));
    bench.start();
    bench.telegram.push_text(7, 7, "é".repeat(5 << 20));
    let texts = bench.wait_messages(7, 1);
    let bytes: usize = texts[0].trim_end_matches(" bytes").parse().expect("a number");
    assert!(bytes > 1 << 20 && bytes < (1 << 20) + 200, "{bytes}");
    bench.telegram.push_text(8, 8, "x");
    assert_eq!(bench.wait_messages(8, 1), ["1 bytes"]);
}

#[test]
fn broken_yaml_is_shown_with_line_and_column() {
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
    assert!(!home.path().join("petasos.db").exists(), "nothing was begun");
}

#[test]
fn a_wrong_type_names_key_and_value_and_an_unknown_key_its_neighbour() {
    let home = TempDir::new().expect("a home");
    std::fs::write(home.path().join("config.yaml"), "modle:\n  default: x\nagent:\n  max_turns: many\n")
        .expect("config");
    let output = petasos(home.path(), &["config", "check"]).output().expect("runs");
    let said = format!("{}{}", crate::support::stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("modle") && said.contains("model"), "{said}");
    assert!(said.contains("agent.max_turns") && said.contains("many"), "{said}");
}

/// A home whose database has been used once.
fn used_home() -> Bench {
    let mut bench = Bench::new();
    bench.start();
    bench.telegram.push_text(7, 7, "hello");
    bench.wait_messages(7, 1);
    bench.terminate();
    bench
}

#[test]
fn a_database_of_a_newer_version_is_left_alone() {
    let bench = used_home();
    let database = Connection::open(bench.database()).expect("opens");
    database.pragma_update(None, "user_version", 9999).expect("written");
    drop(database);
    // As that version would have noted it.
    let map = bench.database().with_file_name(".petasos.db-map");
    std::fs::write(map, r#"{"schema":9999,"roots":{}}"#).expect("written");
    let before = std::fs::read(bench.database()).expect("the file");
    let output = bench.run(&["run"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("newer"), "{said}");
    assert_eq!(std::fs::read(bench.database()).expect("the file"), before);
}

#[test]
fn keeps_a_damaged_database_aside_and_starts() {
    let mut bench = used_home();
    let log = bench.database().with_extension("db-wal");
    assert!(
        std::fs::metadata(&log).map_or(0, |log| log.len()) == 0,
        "a clean stop folds the log into the file"
    );
    let mut bytes = std::fs::read(bench.database()).expect("the file");
    let end = bytes.len().min(16 * 4096);
    bytes[4096..end].fill(0x5a);
    std::fs::write(bench.database(), &bytes).expect("written");
    bench.start();
    let entries = std::fs::read_dir(bench.home.path()).expect("a home").flatten();
    let aside = entries.map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("petasos.db.damaged-") && name.ends_with('Z')
    });
    assert_eq!(std::fs::read(aside.expect("kept aside")).expect("the file"), bytes);
    assert!(bench.status()["salvage"]["summary"].as_str().is_some_and(|it| it.contains("lost")));
}

#[test]
fn a_database_that_has_vanished_is_not_replaced_by_an_empty_one() {
    let bench = used_home();
    std::fs::remove_file(bench.database()).expect("removed");
    let output = bench.run(&["run"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(!bench.database().exists());
}

#[test]
fn a_second_gateway_on_the_same_home_is_refused_and_the_first_goes_on() {
    let mut bench = Bench::new();
    bench.start();
    let pid = bench.gateway.as_ref().expect("running").pid();
    let output = bench.run(&["run"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&pid.to_string()), "{said}");
    bench.telegram.push_text(7, 7, "hello");
    assert_eq!(bench.wait_messages(7, 1), ["echo: hello"]);
}

/// Runs the program on a file system of its own, prepared by `setup` (a shell line that sees `$HOME_DIR`).
fn in_own_mount(bench: &Bench, setup: &str) -> Command {
    let home = bench.home.path();
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
fn a_read_only_home_is_a_clear_error() {
    let bench = Bench::new();
    let setup = "mount -t tmpfs tmpfs \"$HOME_DIR\"\nprintf %s \"$CONFIG\" > \"$HOME_DIR/config.yaml\"\n\
                 mount -o remount,ro \"$HOME_DIR\"";
    let output = in_own_mount(&bench, setup).output().expect("runs");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.to_lowercase().contains("read-only"), "{said}");
}

#[test]
fn on_a_full_disk_nothing_is_acknowledged_and_all_is_answered_once_there_is_room() {
    let mut bench = Bench::new();
    bench.model.respond(|request| Answer::text(request.last_user.chars().take(9).collect::<String>()));
    let setup = "mount -t tmpfs -o size=24m tmpfs \"$HOME_DIR\"\nprintf %s \"$CONFIG\" > \"$HOME_DIR/config.yaml\"\n\
                 dd if=/dev/zero of=\"$HOME_DIR/ballast\" bs=1k count=22500 2>/dev/null";
    let child = in_own_mount(&bench, setup).spawn().expect("starts");
    let pid = child.id();
    bench.gateway = Some(crate::support::Gateway::of(child));
    let polling = bench.telegram.wait_until(SOON, |world| world.calls_of("getUpdates").next().map(|_| ()));
    assert!(polling.is_some(), "never started");
    for chat in 1..=8 {
        bench.telegram.push_text(chat, chat, format!("message {chat} {}", "x".repeat(400_000)));
    }
    // The disk is full: that can be seen, and what we did not take stays with Telegram.
    let until = std::time::Instant::now() + SOON;
    loop {
        let status = status_inside(&bench, pid);
        if status["store_trouble"].as_str().is_some_and(|trouble| trouble.contains("full")) {
            assert_eq!(status["state"], "degraded", "{status}");
            break;
        }
        assert!(std::time::Instant::now() < until, "the full disk was never seen: {status}");
    }
    assert!(bench.telegram.pending_updates() > 0, "something was acknowledged that is not on disk");
    std::fs::remove_file(
        Path::new("/proc").join(pid.to_string()).join("root").join(strip(bench.home.path())).join("ballast"),
    )
    .expect("room again");
    for chat in 1..=8 {
        let want = format!("message {chat}");
        let answered = bench.telegram.wait_until(std::time::Duration::from_secs(90), |world| {
            (world.texts(chat).iter().any(|text| text.contains(&want))).then_some(())
        });
        assert!(answered.is_some(), "chat {chat}: {:?}", bench.telegram.texts(chat));
    }
}

/// `petasos status --json`, asked where the gateway's own mount can be seen.
fn status_inside(bench: &Bench, pid: u32) -> serde_json::Value {
    let inner = bench.command(&["status", "--json"]);
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

fn strip(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

#[test]
fn a_damaged_row_keeps_nobody_else_from_being_answered() {
    let mut bench = Bench::new();
    bench.start();
    for chat in [7, 8] {
        bench.telegram.push_text(chat, chat, "hello");
        bench.wait_messages(chat, 1);
    }
    bench.settle();
    bench.kill();
    let store = Connection::open(bench.database()).expect("a database");
    let damaged = store.execute("UPDATE routing SET entry = '{' WHERE session_key LIKE '%:7'", []);
    assert_eq!(damaged.expect("written"), 1);
    drop(store);
    bench.start();
    bench.telegram.push_text(8, 8, "again");
    assert_eq!(bench.wait_messages(8, 2)[1], "echo: again");
}
