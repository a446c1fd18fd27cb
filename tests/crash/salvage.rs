//! Damaged databases: the program starts, answers, and reports the loss.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::damage::{DatabaseFiles, damage_count};
use crate::support::{GatewayProcess, ProgramFixture, SOON, expect_json, expect_success};
use petasos_runtime::clock;

const OWNER: i64 = 900;
const CHATS: [i64; 3] = [101, 102, 103];

fn fixture() -> ProgramFixture {
    ProgramFixture::with_config(&format!("telegram:\n  home_channel: \"{OWNER}\"\n"))
}

/// Three chats with messages, then a kill: much of the data is only in the log.
fn fill_and_kill(fixture: &mut ProgramFixture) {
    fixture.start();
    for round in 0..4 {
        for chat in CHATS {
            fixture.telegram.push_text(
                chat,
                chat,
                format!("word {round} of {chat} {}", "filler ".repeat(40)),
            );
        }
        for chat in CHATS {
            fixture.wait_messages(chat, round + 1);
        }
    }
    fixture.wait_idle();
    fixture.kill();
}

/// Sets the file times to a minute ago, because damage does not change them.
fn age_files(fixture: &ProgramFixture) {
    let then = clock::file_time() - std::time::Duration::from_secs(60);
    for path in [fixture.database(), log(fixture)].into_iter().filter(|path| path.exists()) {
        fs::File::options().write(true).open(path).and_then(|file| file.set_modified(then)).expect("a time");
    }
}

fn log(fixture: &ProgramFixture) -> PathBuf {
    fixture.database().with_file_name("petasos.db-wal")
}

#[track_caller]
fn start_and_exchange(fixture: &mut ProgramFixture, chat: i64, case: &str) {
    fixture.start();
    fixture.telegram.push_text(chat, chat, "are you there");
    let found = fixture.telegram.wait_until(SOON, |state| {
        state.texts(chat).iter().any(|text| text.contains("echo: are you there")).then_some(())
    });
    assert!(found.is_some(), "{case}: {:?}", fixture.telegram.texts(chat));
}

#[test]
fn starts_and_answers_after_damage_at_random_places() {
    let mut fixture = fixture();
    fill_and_kill(&mut fixture);
    let files = DatabaseFiles::read(&fixture.database());
    for seed in 0..damage_count() {
        files.restore();
        let case = files.damage(seed);
        age_files(&fixture);
        let is_damaged = !files.are_sound();
        let chat = 2000 + i64::try_from(seed).expect("small");
        start_and_exchange(&mut fixture, chat, &case);
        let status = fixture.status();
        fixture.kill();
        let salvaged = status["salvage"]["report"].is_string();
        let doctor = expect_json(&fixture.run(&["doctor", "--repair", "--json"]));
        if is_damaged {
            assert!(salvaged || doctor["damaged"] == true, "{case}: {status} {doctor}");
        }
        let again = expect_json(&fixture.run(&["doctor", "--repair", "--json"]));
        assert_eq!(again["damaged"], false, "{case}: {again}");
        assert!(files.are_sound(), "{case}");
    }
}

/// Adds this many megabytes of transcript to the database file and checkpoints the log.
fn grow_database(fixture: &ProgramFixture, megabytes: u32) -> rusqlite::Connection {
    let raw = rusqlite::Connection::open(fixture.database()).expect("a database");
    let row =
        "INSERT INTO messages (session, role, content, at) VALUES ('old', 'user', hex(zeroblob(500000)), 1)";
    for _ in 0..megabytes {
        raw.execute(row, []).expect("a row");
    }
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("folded");
    raw
}

fn root_pages(raw: &rusqlite::Connection, table: &str) -> Vec<usize> {
    let mut read = raw.prepare("SELECT rootpage FROM sqlite_schema WHERE tbl_name = ?1").expect("sql");
    let pages = read.query_map([table], |row| row.get::<_, u32>(0)).expect("rows");
    pages.map(|row| row.expect("a number") as usize).collect()
}

fn overwrite_pages(path: &Path, pages: &[usize]) {
    // Written in place, because a gateway may be reading the other pages.
    let file = fs::File::options().write(true).open(path).expect("a file");
    for page in pages {
        file.write_all_at(&[0xff; 100], (*page as u64 - 1) * 4096).expect("written");
    }
}

#[test]
fn salvages_a_large_database_whose_damage_only_recovery_reads() {
    for table in ["turns", "inbox", "routing"] {
        let mut fixture = fixture();
        fill_and_kill(&mut fixture);
        let raw = grow_database(&fixture, 10);
        // The indexes only; all rows are sound.
        let pages = root_pages(&raw, table).split_off(1);
        raw.close().expect("closed");
        assert!(fs::metadata(fixture.database()).expect("a file").len() > 8 << 20);
        overwrite_pages(&fixture.database(), &pages);
        age_files(&fixture);
        start_and_exchange(&mut fixture, 700, table);
        let notice = fixture.wait_messages(OWNER, 1).join("\n");
        assert!(notice.contains("My database was damaged"), "{table}: {notice}");
        fixture.kill();
    }
}

#[test]
fn background_check_finds_damage_after_a_kill() {
    let mut fixture = fixture();
    fill_and_kill(&mut fixture);
    let raw = grow_database(&fixture, 10);
    let page = "SELECT pageno FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf' ORDER BY path";
    let page: u32 = raw.query_row(page, [], |row| row.get(0)).expect("a leaf");
    raw.close().expect("closed");
    fixture.start();
    fixture.telegram.push_text(101, 101, "a commit for the log");
    fixture.wait_messages(101, 5);
    fixture.kill();
    assert!(fs::metadata(log(&fixture)).expect("a log").len() > 0);
    overwrite_pages(&fixture.database(), &[page as usize]);
    age_files(&fixture);
    start_supervised(&mut fixture);
    let (code, said) = fixture.gateway.take().expect("runs").wait();
    assert_eq!(code, Some(75), "the supervisor restarts it: {said}");
    assert!(
        said.contains("checking it in the background") && said.contains("restarting to salvage"),
        "{said}"
    );
}

#[test]
fn starts_with_an_undecodable_open_turn_in_a_large_database() {
    let open = "ended_at = NULL, outcome = NULL";
    for damage in [
        format!("UPDATE turns SET {open}, state = '{{' WHERE id = 2"),
        format!("UPDATE turns SET {open}, state = CAST(x'ff7b' AS TEXT) WHERE id = 2"),
        format!("UPDATE turns SET {open}, session_key = CAST(x'ff' AS TEXT) WHERE id = 2"),
        "UPDATE inbox SET state = 'queued', outcome = NULL, settled_at = NULL, turn = NULL, \
         session_key = CAST(x'ff' AS TEXT) WHERE id = 2"
            .to_owned(),
    ] {
        let mut fixture = fixture();
        fill_and_kill(&mut fixture);
        let raw = grow_database(&fixture, 2);
        raw.execute(&damage, []).expect("damaged");
        raw.close().expect("closed");
        age_files(&fixture);
        start_and_exchange(&mut fixture, 700, &damage);
        let (code, said, _) = fixture.terminate();
        assert_eq!(code, Some(1), "a signal without a supervisor: {said}");
        // The next start lists the row.
        fixture.start();
        let notice = fixture.telegram.wait_until(SOON, |state| {
            state.texts(OWNER).iter().any(|text| text.contains("row 2")).then_some(())
        });
        assert!(notice.is_some(), "{damage}: {:?}", fixture.telegram.texts(OWNER));
        fixture.kill();
    }
}

#[test]
fn asks_the_service_manager_for_time_while_it_salvages() {
    let mut fixture = fixture();
    fill_and_kill(&mut fixture);
    damage_turn(&fixture);
    let socket = fixture.home.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(SOON)).expect("a timeout");
    fixture.launch_with(&[("NOTIFY_SOCKET", socket.to_str().expect("text"))]);
    let mut said = Vec::new();
    while said.last().is_none_or(|last| last != "READY=1") {
        let mut buffer = [0; 500];
        let length = manager.recv(&mut buffer).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        said.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    let shown = said.iter().position(|line| line == "STATUS=salvaging the damaged database: 0 %");
    let extended = said.iter().position(|line| line == "EXTEND_TIMEOUT_USEC=120000000");
    assert!(shown.is_some() && shown < extended, "{said:?}");
}

fn damage_turn(fixture: &ProgramFixture) {
    let raw = rusqlite::Connection::open(fixture.database()).expect("a database");
    raw.execute("UPDATE turns SET state = '{' WHERE id = 2", []).expect("a turn");
    raw.close().expect("closed");
    age_files(fixture);
}

#[test]
fn salvage_notifies_owner_and_appears_in_status() {
    let mut fixture = fixture();
    fill_and_kill(&mut fixture);
    damage_turn(&fixture);
    start_and_exchange(&mut fixture, 500, "a damaged turn");
    let notice = fixture.wait_messages(OWNER, 1).join("\n");
    assert!(notice.contains("My database was damaged") && notice.contains("turns: row 2"), "{notice}");
    let status = expect_success(&fixture.run(&["status"]));
    assert!(status.contains("salvage") && status.contains("turns"), "{status}");
    let doctor = crate::support::stdout(&fixture.run(&["doctor"]));
    assert!(doctor.contains("warn salvage"), "{doctor}");
    fixture.kill();
    fixture.start();
    fixture.wait_idle();
    let times = fixture.telegram.texts(OWNER).iter().filter(|text| text.contains("was damaged")).count();
    assert_eq!(times, 1, "notified more than once");
}

#[test]
fn reports_possibly_answered_messages_after_salvage() {
    let mut fixture = fixture();
    fill_and_kill(&mut fixture);
    let calls = fixture.model.requests().len();
    // The deduplication rows are lost, and Telegram delivers an old message again.
    let raw = rusqlite::Connection::open(fixture.database()).expect("a database");
    raw.execute("UPDATE turns SET state = '{' WHERE id = 2", []).expect("a turn");
    raw.execute("DELETE FROM seen", []).expect("rows");
    raw.close().expect("closed");
    fixture.telegram.push_text(101, 101, "an old question");
    fixture.start();
    let found = fixture.telegram.wait_until(SOON, |state| {
        state.texts(101).iter().any(|text| text.contains("• an old question")).then_some(())
    });
    assert!(found.is_some(), "{:?}", fixture.telegram.texts(101));
    fixture.wait_idle();
    assert_eq!(fixture.model.requests().len(), calls, "the model was called");
}

#[test]
fn repairs_only_while_no_gateway_runs() {
    let mut fixture = fixture();
    fill_and_kill(&mut fixture);
    assert!(expect_success(&fixture.run(&["doctor", "--repair"])).contains("intact"));
    let mut bytes = fs::read(fixture.database()).expect("readable");
    bytes[..16].fill(0);
    fs::write(fixture.database(), bytes).expect("writable");
    let refused = crate::support::expect_failure(&fixture.run(&["sessions", "list"]), 1);
    assert!(refused.contains("petasos doctor --repair"), "{refused}");
    let repaired = expect_success(&fixture.run(&["doctor", "--repair"]));
    assert!(repaired.contains("no rows") && repaired.contains("next: petasos run"), "{repaired}");
    fixture.start();
    let held = crate::support::expect_failure(&fixture.run(&["doctor", "--repair"]), 1);
    assert!(held.contains("another gateway is running"), "{held}");
}

/// Starts the gateway with an external supervisor and waits until it polls.
fn start_supervised(fixture: &mut ProgramFixture) {
    let mut run = fixture.command(&["run", "--external-supervisor"]);
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let polls = fixture.telegram.calls_of("getUpdates").len();
    fixture.gateway = Some(GatewayProcess::new(run.spawn().expect("petasos starts")));
    fixture
        .telegram
        .wait_until(SOON, |state| (state.calls_of("getUpdates").count() > polls).then_some(()))
        .expect("the gateway polls");
}

/// Damages the index that every claim of a message reads.
fn damage_inbox(fixture: &ProgramFixture) {
    let raw = grow_database(fixture, 0);
    let pages = root_pages(&raw, "inbox");
    raw.close().expect("closed");
    overwrite_pages(&fixture.database(), &pages);
}

#[test]
fn salvages_by_restarting_when_a_read_fails_while_running() {
    let mut fixture = fixture();
    fill_and_kill(&mut fixture);
    start_supervised(&mut fixture);
    damage_inbox(&fixture);
    fixture.telegram.push_text(600, 600, "hello");
    let (code, said) = fixture.gateway.take().expect("runs").wait();
    assert_eq!(code, Some(75), "the supervisor restarts it: {said}");
    assert!(said.contains("restarting to salvage"), "{said}");
    fixture.start();
    let notice = fixture.telegram.wait_until(SOON, |state| {
        state.texts(OWNER).iter().any(|text| text.contains("My database was damaged")).then_some(())
    });
    assert!(notice.is_some(), "{:?}", fixture.telegram.texts(OWNER));
}

#[test]
fn repeated_damage_notifies_owner_and_salvages_after_pause() {
    let mut fixture = fixture();
    fill_and_kill(&mut fixture);
    let raw = grow_database(&fixture, 0);
    raw.execute("UPDATE turns SET state = '{' WHERE id = 2", []).expect("a turn");
    raw.close().expect("closed");
    age_files(&fixture);
    start_and_exchange(&mut fixture, 500, "the first salvage");
    fixture.wait_idle();
    fixture.kill();
    // The pause of ten minutes ends in a few seconds.
    let raw = grow_database(&fixture, 0);
    let earlier =
        "UPDATE meta SET value = json_set(value, '$.at', value ->> '$.at' - 590000) WHERE key = 'salvage'";
    assert_eq!(raw.execute(earlier, []), Ok(1));
    raw.close().expect("closed");
    start_supervised(&mut fixture);
    damage_inbox(&fixture);
    fixture.telegram.push_text(600, 600, "hello");
    let notice = fixture.telegram.wait_until(SOON, |state| {
        state.texts(OWNER).iter().any(|text| text.contains("damaged again")).then_some(())
    });
    assert!(notice.is_some(), "{:?}", fixture.telegram.texts(OWNER));
    let status = fixture.status();
    assert!(status["store_trouble"].as_str().is_some_and(|it| it.contains("a restart salvages")), "{status}");
    let (code, said) = fixture.gateway.take().expect("runs").wait();
    assert_eq!(code, Some(75), "the supervisor restarts it: {said}");
    age_files(&fixture);
    start_and_exchange(&mut fixture, 700, "the second salvage");
}
