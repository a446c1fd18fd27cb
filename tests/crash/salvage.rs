//! The real program with a damaged database: it starts, answers, and says what it lost.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{Bench, Gateway, SOON, fine, json};

const OWNER: i64 = 900;
const CHATS: [i64; 3] = [101, 102, 103];

/// Places that are tried: ten, or as many as `PETASOS_DAMAGE_PLACES` says.
fn places() -> u64 {
    std::env::var("PETASOS_DAMAGE_PLACES").ok().and_then(|it| it.parse().ok()).unwrap_or(10)
}

fn bench() -> Bench {
    Bench::with(&format!("telegram:\n  home_channel: \"{OWNER}\"\n"))
}

/// Three chats with conversations, killed: much of it is only in the log.
fn used(bench: &mut Bench) {
    bench.start();
    for round in 0..4 {
        for chat in CHATS {
            bench.telegram.push_text(chat, chat, format!("word {round} of {chat} {}", "filler ".repeat(40)));
        }
        for chat in CHATS {
            bench.wait_messages(chat, round + 1);
        }
    }
    bench.settle();
    bench.kill();
}

/// As if the last commit had been a minute ago: damage does not change the times of files.
fn age(bench: &Bench) {
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    for path in [bench.database(), log(bench)].into_iter().filter(|path| path.exists()) {
        fs::File::options().write(true).open(path).and_then(|file| file.set_modified(then)).expect("a time");
    }
}

fn log(bench: &Bench) -> PathBuf {
    bench.database().with_file_name("petasos.db-wal")
}

/// All files of a home, by name.
fn snapshot(home: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let names = ["petasos.db", "petasos.db-wal", ".petasos-db", ".petasos.db-map"];
    let there = names.map(|name| home.join(name)).into_iter().filter(|path| path.exists());
    there.map(|path| (path.clone(), fs::read(path).expect("readable"))).collect()
}

fn put_back(home: &Path, files: &[(PathBuf, Vec<u8>)]) {
    for entry in fs::read_dir(home).expect("a home").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("petasos.db") || name.starts_with(".petasos") {
            fs::remove_file(entry.path()).expect("removable");
        }
    }
    files.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("writable"));
}

/// Starts, asks something new in a new chat, and waits for the answer.
#[track_caller]
fn answers(bench: &mut Bench, chat: i64, case: &str) {
    bench.start();
    bench.telegram.push_text(chat, chat, "are you there");
    let found = bench.telegram.wait_until(SOON, |world| {
        world.texts(chat).iter().any(|text| text.contains("echo: are you there")).then_some(())
    });
    assert!(found.is_some(), "{case}: {:?}", bench.telegram.texts(chat));
}

/// The verdict of SQLite on a copy of the files.
fn is_sound(home: &Path) -> bool {
    let copy = tempfile::tempdir().expect("a directory");
    for (path, bytes) in snapshot(home) {
        fs::write(copy.path().join(path.file_name().expect("a name")), bytes).expect("writable");
    }
    let raw = rusqlite::Connection::open(copy.path().join("petasos.db")).expect("a file");
    let verdict = raw.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    verdict.is_ok_and(|verdict| verdict == "ok")
}

fn mixed(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn starts_and_answers_after_damage_at_random_places() {
    let mut bench = bench();
    used(&mut bench);
    let before = snapshot(bench.home.path());
    for seed in 0..places() {
        put_back(bench.home.path(), &before);
        let file = if seed % 2 == 0 { bench.database() } else { log(&bench) };
        let mut bytes = fs::read(&file).expect("readable");
        let place = 1 + (mixed(seed) % (bytes.len() as u64 - 1)) as usize;
        let cut = seed % 5 == 4;
        if cut {
            bytes.truncate(place);
        } else {
            bytes[place] ^= 1 << (mixed(seed + 1000) % 8);
        }
        fs::write(&file, bytes).expect("writable");
        age(&bench);
        let is_damaged = !is_sound(bench.home.path());
        let case =
            format!("seed {seed}: {} at {place} of {}", if cut { "cut" } else { "flip" }, file.display());
        let chat = 2000 + i64::try_from(seed).expect("small");
        answers(&mut bench, chat, &case);
        let status = bench.status();
        bench.kill();
        let salvaged = status["salvage"]["report"].is_string();
        let doctor = json(&bench.run(&["doctor", "--repair", "--json"]));
        if is_damaged {
            assert!(salvaged || doctor["damaged"] == true, "{case}: {status} {doctor}");
        }
        let again = json(&bench.run(&["doctor", "--repair", "--json"]));
        assert_eq!(again["damaged"], false, "{case}: {again}");
        assert!(is_sound(bench.home.path()), "{case}");
    }
}

/// Past the program: adds so many megabytes of transcript, and folds the log.
fn grow(bench: &Bench, megabytes: u32) -> rusqlite::Connection {
    let raw = rusqlite::Connection::open(bench.database()).expect("a database");
    let row =
        "INSERT INTO messages (session, role, content, at) VALUES ('old', 'user', hex(zeroblob(500000)), 1)";
    for _ in 0..megabytes {
        raw.execute(row, []).expect("a row");
    }
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("folded");
    raw
}

/// The first pages of a table and its indexes.
fn roots(raw: &rusqlite::Connection, table: &str) -> Vec<usize> {
    let mut read = raw.prepare("SELECT rootpage FROM sqlite_schema WHERE tbl_name = ?1").expect("sql");
    let roots = read.query_map([table], |row| row.get::<_, u32>(0)).expect("rows");
    roots.map(|row| row.expect("a number") as usize).collect()
}

fn spoil(path: &Path, pages: &[usize]) {
    // In place: a gateway may be reading the other pages.
    let file = fs::File::options().write(true).open(path).expect("a file");
    for page in pages {
        file.write_all_at(&[0xff; 100], (*page as u64 - 1) * 4096).expect("written");
    }
}

#[test]
fn salvages_a_large_database_whose_damage_only_recovery_reads() {
    for table in ["turns", "inbox", "routing"] {
        let mut bench = bench();
        used(&mut bench);
        let raw = grow(&bench, 10);
        // The indexes; all rows are sound.
        let pages = roots(&raw, table).split_off(1);
        raw.close().expect("closed");
        assert!(fs::metadata(bench.database()).expect("a file").len() > 8 << 20);
        spoil(&bench.database(), &pages);
        age(&bench);
        answers(&mut bench, 700, table);
        let told = bench.wait_messages(OWNER, 1).join("\n");
        assert!(told.contains("My database was damaged"), "{table}: {told}");
        bench.kill();
    }
}

#[test]
fn finds_damage_in_a_large_database_after_a_kill_while_it_answers() {
    let mut bench = bench();
    used(&mut bench);
    let raw = grow(&bench, 10);
    let page = "SELECT pageno FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf' ORDER BY path";
    let page: u32 = raw.query_row(page, [], |row| row.get(0)).expect("a leaf");
    raw.close().expect("closed");
    bench.start();
    bench.telegram.push_text(101, 101, "a commit for the log");
    bench.wait_messages(101, 5);
    bench.kill();
    assert!(fs::metadata(log(&bench)).expect("a log").len() > 0);
    spoil(&bench.database(), &[page as usize]);
    age(&bench);
    run_supervised(&mut bench);
    let (code, said) = bench.gateway.take().expect("runs").wait();
    assert_eq!(code, Some(75), "the supervisor starts it again: {said}");
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
        let mut bench = bench();
        used(&mut bench);
        let raw = grow(&bench, 2);
        raw.execute(&damage, []).expect("damaged");
        raw.close().expect("closed");
        age(&bench);
        answers(&mut bench, 700, &damage);
        let (code, said, _) = bench.terminate();
        assert_eq!(code, Some(1), "a signal without a supervisor: {said}");
        // The next start lists the row.
        bench.start();
        let told = bench.telegram.wait_until(SOON, |world| {
            world.texts(OWNER).iter().any(|text| text.contains("row 2")).then_some(())
        });
        assert!(told.is_some(), "{damage}: {:?}", bench.telegram.texts(OWNER));
        bench.kill();
    }
}

#[test]
fn asks_the_service_manager_for_time_while_it_salvages() {
    let mut bench = bench();
    used(&mut bench);
    damage_turn(&bench);
    let socket = bench.home.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(SOON)).expect("a timeout");
    bench.launch_with(&[("NOTIFY_SOCKET", socket.to_str().expect("text"))]);
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

/// One row becomes unreadable.
fn damage_turn(bench: &Bench) {
    let raw = rusqlite::Connection::open(bench.database()).expect("a database");
    raw.execute("UPDATE turns SET state = '{' WHERE id = 2", []).expect("a turn");
    raw.close().expect("closed");
    age(bench);
}

#[test]
fn tells_the_owner_and_shows_the_loss_in_status() {
    let mut bench = bench();
    used(&mut bench);
    damage_turn(&bench);
    answers(&mut bench, 500, "a damaged turn");
    let told = bench.wait_messages(OWNER, 1).join("\n");
    assert!(told.contains("My database was damaged") && told.contains("turns: row 2"), "{told}");
    let status = fine(&bench.run(&["status"]));
    assert!(status.contains("salvage") && status.contains("turns"), "{status}");
    let doctor = crate::support::stdout(&bench.run(&["doctor"]));
    assert!(doctor.contains("warn salvage"), "{doctor}");
    bench.kill();
    bench.start();
    bench.settle();
    let times = bench.telegram.texts(OWNER).iter().filter(|text| text.contains("was damaged")).count();
    assert_eq!(times, 1, "it is told once");
}

#[test]
fn reports_messages_that_may_have_been_answered_instead_of_running_them() {
    let mut bench = bench();
    used(&mut bench);
    let calls = bench.model.requests().len();
    // The knowledge of what was seen is gone, and Telegram offers an old message once more.
    let raw = rusqlite::Connection::open(bench.database()).expect("a database");
    raw.execute("UPDATE turns SET state = '{' WHERE id = 2", []).expect("a turn");
    raw.execute("DELETE FROM seen", []).expect("rows");
    raw.close().expect("closed");
    bench.telegram.push_text(101, 101, "an old question");
    bench.start();
    let found = bench.telegram.wait_until(SOON, |world| {
        world.texts(101).iter().any(|text| text.contains("• an old question")).then_some(())
    });
    assert!(found.is_some(), "{:?}", bench.telegram.texts(101));
    bench.settle();
    assert_eq!(bench.model.requests().len(), calls, "nothing ran");
}

#[test]
fn repairs_only_while_no_gateway_runs() {
    let mut bench = bench();
    used(&mut bench);
    assert!(fine(&bench.run(&["doctor", "--repair"])).contains("sound"));
    let mut bytes = fs::read(bench.database()).expect("readable");
    bytes[..16].fill(0);
    fs::write(bench.database(), bytes).expect("writable");
    let refused = crate::support::failed(&bench.run(&["sessions", "list"]), 1);
    assert!(refused.contains("petasos doctor --repair"), "{refused}");
    let repaired = fine(&bench.run(&["doctor", "--repair"]));
    assert!(repaired.contains("no rows") && repaired.contains("next: petasos run"), "{repaired}");
    bench.start();
    let held = crate::support::failed(&bench.run(&["doctor", "--repair"]), 1);
    assert!(held.contains("another gateway is running"), "{held}");
}

/// Starts it so that a restart is left to a supervisor, and waits until it polls.
fn run_supervised(bench: &mut Bench) {
    let mut run = bench.command(&["run", "--external-supervisor"]);
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let polls = bench.telegram.calls_of("getUpdates").len();
    bench.gateway = Some(Gateway::of(run.spawn().expect("petasos starts")));
    bench
        .telegram
        .wait_until(SOON, |world| (world.calls_of("getUpdates").count() > polls).then_some(()))
        .expect("it polls");
}

/// Behind the program's back: the index that every claim of a message reads leads nowhere any more.
fn damage_inbox(bench: &Bench) {
    let raw = grow(bench, 0);
    let roots = roots(&raw, "inbox");
    raw.close().expect("closed");
    spoil(&bench.database(), &roots);
}

#[test]
fn salvages_by_restarting_when_a_read_fails_while_running() {
    let mut bench = bench();
    used(&mut bench);
    run_supervised(&mut bench);
    damage_inbox(&bench);
    bench.telegram.push_text(600, 600, "hello");
    let (code, said) = bench.gateway.take().expect("runs").wait();
    assert_eq!(code, Some(75), "the supervisor starts it again: {said}");
    assert!(said.contains("restarting to salvage"), "{said}");
    bench.start();
    let told = bench.telegram.wait_until(SOON, |world| {
        world.texts(OWNER).iter().any(|text| text.contains("My database was damaged")).then_some(())
    });
    assert!(told.is_some(), "{:?}", bench.telegram.texts(OWNER));
}

#[test]
fn tells_the_owner_of_repeated_damage_and_salvages_again_after_a_pause() {
    let mut bench = bench();
    used(&mut bench);
    let raw = grow(&bench, 0);
    raw.execute("UPDATE turns SET state = '{' WHERE id = 2", []).expect("a turn");
    raw.close().expect("closed");
    age(&bench);
    answers(&mut bench, 500, "the first salvage");
    bench.settle();
    bench.kill();
    // The pause of ten minutes is over in a few seconds.
    let raw = grow(&bench, 0);
    let earlier =
        "UPDATE meta SET value = json_set(value, '$.at', value ->> '$.at' - 590000) WHERE key = 'salvage'";
    assert_eq!(raw.execute(earlier, []), Ok(1));
    raw.close().expect("closed");
    run_supervised(&mut bench);
    damage_inbox(&bench);
    bench.telegram.push_text(600, 600, "hello");
    let told = bench.telegram.wait_until(SOON, |world| {
        world.texts(OWNER).iter().any(|text| text.contains("damaged again")).then_some(())
    });
    assert!(told.is_some(), "{:?}", bench.telegram.texts(OWNER));
    let status = bench.status();
    assert!(status["store_trouble"].as_str().is_some_and(|it| it.contains("doctor --repair")), "{status}");
    let (code, said) = bench.gateway.take().expect("runs").wait();
    assert_eq!(code, Some(75), "the supervisor starts it again: {said}");
    age(&bench);
    answers(&mut bench, 700, "the second salvage");
}
