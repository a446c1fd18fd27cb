//! A connector with a damaged database: it starts, delivers, and reports the loss.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use petasos_fakes::relay::Acks;
use petasos_fakes::telegram::Fault;
use serde_json::{Value, json};

use crate::connector::{ConnectorFixture, MARK, USER, gateway_behind};
use crate::support::damage::{DatabaseFiles, damage_count};
use crate::support::{SOON, eventually, expect_failure, expect_json, expect_success, petasos};

fn database(connector: &ConnectorFixture) -> PathBuf {
    connector.home.path().join("connector.db")
}

fn raw(connector: &ConnectorFixture) -> rusqlite::Connection {
    rusqlite::Connection::open(database(connector)).expect("a database")
}

fn send_action(text: &str) -> Value {
    json!({"op": "send", "chat_id": USER.to_string(), "content": text, "reply_to": null, "metadata": {}})
}

/// Acknowledged and waiting messages and a request, then a kill: much of it is only in the log.
fn fill_and_kill(connector: &mut ConnectorFixture) {
    connector.start();
    let peer = connector.connect(Acks::All).expect("it listens");
    for number in 0..10 {
        connector.telegram.push_text(USER, USER, format!("acknowledged {number} {}", "filler ".repeat(40)));
    }
    eventually("all are delivered", || peer.read(|received| received.texts().len()) == 10);
    peer.outbound("r1", &send_action("an answer"));
    peer.wait_result("r1", SOON).expect("an answer");
    peer.cut();
    for number in 0..10 {
        connector.telegram.push_text(USER, USER, format!("waiting {number} {}", "filler ".repeat(40)));
    }
    eventually("they wait", || connector.queued() == 10);
    connector.kill();
}

fn repair(connector: &ConnectorFixture) -> Value {
    let args = ["connector", "repair", "--json"];
    expect_json(&petasos(connector.home.path(), &args).output().expect("petasos runs"))
}

/// Lost rows without which the gateway cannot authenticate.
fn lost_credentials(status: &Value) -> bool {
    let losses = status["salvage"]["losses"].as_array().into_iter().flatten();
    losses
        .into_iter()
        .any(|loss| ["gateways", "instances", "tenants"].contains(&loss["table"].as_str().expect("a name")))
}

#[test]
fn connector_starts_after_damage_at_random_places() {
    let mut connector = ConnectorFixture::new(None);
    fill_and_kill(&mut connector);
    let files = DatabaseFiles::read(&database(&connector));
    for seed in 0..damage_count() {
        files.restore();
        let case = files.damage(seed);
        let is_damaged = !files.are_sound();
        connector.start();
        let question = format!("are you there {seed}");
        connector.telegram.push_text(USER, USER, question.as_str());
        eventually(&case, || connector.telegram.pending_updates() == 0);
        let status = connector.status();
        let arrived = lost_credentials(&status) || {
            let peer = connector.connect(Acks::All).expect("it listens");
            peer.wait_until(SOON, |received| received.texts().contains(&question).then_some(())).is_some()
        };
        connector.kill();
        let found = repair(&connector);
        let listed = status["salvage"]["report"].is_string() || found["damaged"] == true;
        assert!(listed || !is_damaged, "{case}: {status} {found}");
        // A flip within a value, such as the secret, shows nowhere.
        assert!(arrived || !listed, "{case}: {status} {found}");
        assert_eq!(repair(&connector)["damaged"], false, "{case}");
        assert!(files.are_sound(), "{case}");
    }
}

#[test]
fn connector_salvages_by_restarting_in_place() {
    let mut connector = ConnectorFixture::new(None);
    connector.start();
    connector.terminate();
    // From now on with a fixed port.
    connector.start();
    let process = connector.process();
    connector.telegram.push_text(USER, USER, "before");
    eventually("it is queued", || connector.queued() == 1);
    let reader = raw(&connector);
    reader.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("checkpointed");
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'seen'";
    let root: u32 = reader.query_row(root, [], |row| row.get(0)).expect("a table");
    reader.close().expect("closed");
    // Written in place, because the connector has the file open.
    let file = fs::File::options().write(true).open(database(&connector)).expect("a file");
    file.write_all_at(&[0xff; 100], u64::from(root - 1) * 4096).expect("written");
    connector.telegram.push_text(USER, USER, "after");
    eventually("it is salvaged", || connector.status()["salvage"]["report"].is_string());
    eventually("both wait", || connector.queued() == 2);
    assert_eq!(connector.process(), process, "a supervisor sees no exit");
    let peer = connector.connect(Acks::All).expect("it listens");
    let both = peer.wait_until(SOON, |received| (received.texts() == ["before", "after"]).then_some(()));
    assert!(both.is_some(), "{:?}", peer.read(|received| received.texts()));
    let status = connector.status();
    assert_eq!((&status["store_trouble"], &status["database_error"]), (&Value::Null, &Value::Null));
    let shown = petasos(connector.home.path(), &["connector", "status"]).output().expect("petasos runs");
    assert!(expect_success(&shown).contains("rows were lost in seen"), "{status}");
    let kept = status["salvage"]["moved_to"].as_str().expect("a path");
    assert!(Path::new(kept).exists(), "{kept}");
}

#[test]
fn answer_with_a_lost_request_is_repeated_with_a_mark() {
    let mut connector = ConnectorFixture::new(None);
    connector.start();
    let mut gateway = gateway_behind(&connector, "");
    gateway.launch();
    // Shown, but the connector does not learn that.
    connector.telegram.on("sendMessage").does(Fault::HangAfter);
    connector.telegram.push_text(USER, USER, "one");
    eventually("it is shown", || connector.telegram.texts(USER) == ["echo: one"]);
    connector.kill();
    connector.telegram.clear_faults();
    let raw = raw(&connector);
    let lost = "UPDATE requests SET request = CAST(x'ff' AS TEXT)";
    assert_eq!(raw.execute(lost, []), Ok(1));
    raw.close().expect("closed");
    connector.start();
    let status = connector.status();
    assert!(status["salvage"]["consequences"].to_string().contains("possible duplicate"), "{status}");
    connector.telegram.push_text(USER, USER, "two");
    let done = connector.telegram.wait_until(SOON, |state| {
        let texts = state.texts(USER);
        (texts.len() == 3 && texts.iter().any(|it| it == "echo: two")).then_some(())
    });
    let texts = connector.telegram.texts(USER);
    assert!(done.is_some(), "{texts:?} {}", gateway.kill());
    assert!(
        texts.iter().any(|it| it.contains(MARK) && it.contains("echo: one")),
        "an unmarked copy: {texts:?}"
    );
}

#[test]
fn connector_status_survives_an_unreadable_database() {
    let mut connector = ConnectorFixture::new(None);
    connector.start();
    connector.terminate();
    let file = fs::File::options().write(true).open(database(&connector)).expect("a file");
    file.write_all_at(&[0; 16], 0).expect("written");
    let status = connector.status();
    assert!(status["database_error"].as_str().is_some_and(|it| it.contains("connector repair")), "{status}");
    assert_eq!(repair(&connector)["damaged"], true);
    let status = connector.status();
    assert_eq!((&status["database_error"], &status["instances"][0]["id"]), (&Value::Null, &json!("mine")));
}

#[test]
fn restored_backup_delivers_what_waited_and_forgets_requests() {
    let mut connector = ConnectorFixture::new(None);
    fill_and_kill(&mut connector);
    let copy = connector.home.path().join("monday");
    let backup = ["connector", "backup", "--out", copy.to_str().expect("text"), "--json"];
    let run = |args: &[&str]| petasos(connector.home.path(), args).output().expect("petasos runs");
    assert_has_rows(&expect_json(&run(&backup)));
    assert!(expect_failure(&run(&backup), 1).contains("already exists"));
    for suffix in ["", "-wal", "-shm"] {
        let file = connector.home.path().join(format!("connector.db{suffix}"));
        // The last connection removed log and shared memory.
        assert!(fs::remove_file(file).is_ok() || !suffix.is_empty());
    }
    fs::rename(&copy, database(&connector)).expect("renamed");
    connector.start();
    let peer = connector.connect(Acks::All).expect("it listens");
    eventually("what waited comes", || peer.read(|received| received.texts().len()) == 10);
    let memory = peer.read(|received| {
        received.of_type("descriptor").next().and_then(|frame| frame["descriptor"]["request_memory"].as_u64())
    });
    assert!(memory.expect("a number") < 3600, "{memory:?}");
}

#[track_caller]
fn assert_has_rows(backup: &Value) {
    assert!(backup["rows"].as_u64().is_some_and(|rows| rows > 20), "{backup}");
}
