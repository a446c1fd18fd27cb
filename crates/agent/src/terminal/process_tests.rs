use std::time::Instant;

use super::*;
use crate::terminal::Pace;
use crate::terminal::record::Event;
use crate::terminal::testing::Bench;
use crate::tools::Later;

const SOON: Duration = Duration::from_secs(60);

async fn start(bench: &Bench, command: &str, more: Value) -> Value {
    let mut arguments = json!({"command": command, "background": true});
    arguments.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    bench.call(&bench.ctx("1"), "terminal", arguments).await
}

async fn started(bench: &Bench, command: &str, more: Value) -> String {
    let result = start(bench, command, more).await;
    result["session_id"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

async fn act(bench: &Bench, action: &str, id: &str, more: Value) -> Value {
    let mut arguments = json!({"action": action, "session_id": id});
    arguments.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    bench.call(&bench.ctx("1"), "process", arguments).await
}

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for the end of a process as the ledger knows it.
async fn recorded(bench: &Bench, id: &str) -> crate::terminal::End {
    until("recorded", || bench.notes.look().known[id].end).await
}

fn lives(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_started_process_answers_with_the_documented_keys() {
    let bench = Bench::new();
    let plain = start(&bench, "sleep 41", json!({})).await;
    assert_eq!(plain["output"], "Background process started");
    assert_eq!((&plain["exit_code"], &plain["error"]), (&json!(0), &Value::Null));
    assert!(lives(plain["pid"].as_u64().unwrap()));
    let id = plain["session_id"].as_str().unwrap();
    assert!(id.len() == 17 && id.starts_with("proc_"), "{id}");
    assert!(plain["hint"].as_str().unwrap().contains("poll") && plain.get("notify_on_complete").is_none());
    let told = start(&bench, "sleep 42", json!({"notify_on_complete": true, "watch_patterns": ["x"]})).await;
    assert_eq!(told["notify_on_complete"], true);
    assert!(told.get("notify_unsupported").is_none() && told.get("hint").is_none());
    assert!(told["watch_patterns_ignored"].is_string() && told.get("watch_patterns").is_none());
    let watched = start(&bench, "sleep 43", json!({"watch_patterns": ["a", "b"]})).await;
    assert_eq!(watched["watch_patterns"], json!(["a", "b"]));
    bench.terminal.leave().await;
    let kept = bench.notes.look();
    assert!(
        kept.known.values().all(|known| known.end.is_some_and(|end| end.reason == Reason::KilledWithAll))
    );
    assert_eq!(kept.events.len(), 1, "{:?}", kept.events);
}

#[tokio::test]
async fn where_nothing_can_come_later_nothing_is_promised() {
    let bench = Bench::new();
    for wish in [json!({"notify_on_complete": true}), json!({"watch_patterns": ["x"]})] {
        let mut ctx = bench.ctx("1");
        ctx.later = Later::Unsupported;
        let mut arguments = json!({"command": "sleep 44", "background": true});
        arguments.as_object_mut().unwrap().extend(wish.as_object().cloned().unwrap());
        let result = bench.call(&ctx, "terminal", arguments).await;
        assert_eq!(result["notify_on_complete"], false);
        let note = result["notify_unsupported"].as_str().unwrap();
        assert!(note.contains("poll") && note.contains("wait") && note.contains("running"), "{note}");
        assert!(result.get("hint").is_none() && result.get("watch_patterns").is_none());
        let id = result["session_id"].as_str().unwrap();
        assert_eq!(bench.notes.look().known[id].record.promise, Promise::Nothing, "no watcher");
        assert!(lives(result["pid"].as_u64().unwrap()));
        // The same session, asked over another channel.
        let again = start(&bench, "true", json!({"notify_on_complete": true})).await;
        assert_eq!(again["notify_on_complete"], true);
    }
    bench.terminal.leave().await;
}

#[tokio::test]
async fn its_end_is_told_once_with_what_it_said() {
    let bench = Bench::new();
    let id = started(&bench, "echo working; echo DONE; exit 3", json!({"notify_on_complete": true})).await;
    recorded(&bench, &id).await;
    let events = bench.notes.look().events;
    let [Event::Completion { session_id, exit_code, output, .. }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((session_id, *exit_code, output.as_str()), (&id, Some(3), "working\nDONE"));
    let polled = act(&bench, "poll", &id, json!({})).await;
    assert_eq!((&polled["status"], &polled["exit_code"]), (&json!("exited"), &json!(3)));
    assert_eq!(bench.notes.look().consumed, Vec::<String>::new(), "a poll changes nothing");
    act(&bench, "log", &id, json!({})).await;
    assert_eq!(bench.notes.look().consumed, [id]);
}

#[tokio::test]
async fn waiting_gives_the_end_and_takes_it_from_the_queue() {
    let bench = Bench::new();
    let id = started(&bench, "echo hi; sleep 0.3; exit 2", json!({"notify_on_complete": true})).await;
    let waited = act(&bench, "wait", &id, json!({"timeout": 999})).await;
    assert_eq!(
        (&waited["status"], &waited["exit_code"], &waited["output"]),
        (&json!("exited"), &json!(2), &json!("hi"))
    );
    assert!(waited["timeout_note"].is_string(), "it was asked to wait for longer than it may");
    assert_eq!(bench.notes.look().consumed, [id]);
    let long = started(&bench, "echo begun; sleep 45", json!({})).await;
    let waited = act(&bench, "wait", &long, json!({"timeout": 1})).await;
    assert_eq!((&waited["status"], &waited["output"]), (&json!("timeout"), &json!("begun")));
    bench.terminal.leave().await;
}

#[tokio::test]
async fn a_session_sees_and_touches_only_its_own() {
    let bench = Bench::new();
    let id = started(&bench, "sleep 46", json!({})).await;
    let other = bench.ctx("2");
    for action in ["poll", "log", "wait", "kill", "write", "submit", "close"] {
        let arguments = json!({"action": action, "session_id": id, "data": "x"});
        let answer = bench.call(&other, "process", arguments).await;
        assert_eq!(answer["status"], "not_found", "{action}");
    }
    let listed = bench.call(&other, "process", json!({"action": "list"})).await;
    assert_eq!(listed, json!({"processes": []}));
    let listed = act(&bench, "list", "", json!({})).await;
    assert_eq!(listed["processes"][0]["session_id"], json!(id));
    assert_eq!(listed["processes"][0]["status"], "running");
    bench.terminal.leave().await;
}

#[tokio::test]
async fn what_is_not_asked_properly_is_answered_as_documented() {
    let bench = Bench::new();
    let ctx = bench.ctx("1");
    let ask = async |arguments: Value| bench.call(&ctx, "process", arguments).await["error"].clone();
    assert_eq!(ask(json!({"action": "poll"})).await, "session_id is required for poll");
    assert_eq!(ask(json!({"action": "dance", "session_id": "x"})).await, "Unknown process action: dance");
    assert_eq!(ask(json!({"action": "poll", "session_id": "x"})).await, "No process with ID x");
}

#[tokio::test]
async fn killing_ends_the_whole_group_and_is_no_news() {
    let bench = Bench::new();
    let command = "trap '' TERM; sleep 47 | sleep 48";
    let result = start(&bench, command, json!({"notify_on_complete": true})).await;
    let (id, pid) = (result["session_id"].as_str().unwrap(), result["pid"].as_u64().unwrap());
    let killed = act(&bench, "kill", id, json!({})).await;
    assert_eq!(killed["status"], "killed");
    assert_eq!(killed["completion_reason"], "killed");
    assert_eq!(killed["termination_source"], "process.kill");
    assert_eq!(bench.notes.look().consumed, [id]);
    let group = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let stats = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        let mut groups = stats.filter_map(|stat| {
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            Some((fields.next()? == "Z", fields.nth(1)?.parse::<u64>().ok()?))
        });
        groups.any(|(zombie, group)| group == pid && !zombie)
    };
    until("all gone", || (!group()).then_some(())).await;
    assert_eq!(act(&bench, "kill", id, json!({})).await["status"], "already_exited");
}

#[tokio::test]
async fn its_input_can_be_written_and_closed() {
    let bench = Bench::new();
    let id = started(&bench, "cat; echo bye", json!({})).await;
    assert_eq!(
        act(&bench, "write", &id, json!({"data": "one "})).await,
        json!({"status": "ok", "bytes_written": 4})
    );
    assert_eq!(
        act(&bench, "submit", &id, json!({"data": "two"})).await,
        json!({"status": "ok", "bytes_written": 4})
    );
    assert_eq!(
        act(&bench, "close", &id, json!({})).await,
        json!({"status": "ok", "message": "stdin closed"})
    );
    let waited = act(&bench, "wait", &id, json!({})).await;
    assert_eq!((&waited["output"], &waited["exit_code"]), (&json!("one two\nbye"), &json!(0)));
}

#[tokio::test]
async fn a_program_on_a_terminal_can_be_talked_to() {
    let bench = Bench::new();
    let id = started(&bench, "read line; echo \"got:$line\"; cat", json!({"pty": true})).await;
    act(&bench, "submit", &id, json!({"data": "hello"})).await;
    assert_eq!(act(&bench, "close", &id, json!({})).await, json!({"status": "ok", "message": "EOF sent"}));
    let waited = act(&bench, "wait", &id, json!({})).await;
    assert_eq!(waited["exit_code"], 0, "{waited}");
    assert!(waited["output"].as_str().unwrap().contains("got:hello"), "{waited}");
}

#[tokio::test]
async fn a_watched_line_is_told_while_it_runs_and_its_end_is_not() {
    let bench = Bench::new();
    let id =
        started(&bench, "echo starting; echo server ready; sleep 1", json!({"watch_patterns": ["ready"]}))
            .await;
    let event = until("told", || bench.notes.look().events.first().cloned()).await;
    let Event::WatchMatch { session_id, pattern, output, .. } = &event else { panic!("{event:?}") };
    assert_eq!((session_id, pattern.as_str(), output.as_str()), (&id, "ready", "server ready"));
    recorded(&bench, &id).await;
    assert_eq!(bench.notes.look().events.len(), 1);
}

/// Prints a watched line once or all the time, and ends when the file is there.
fn ready(how_often: &str, flag: &str) -> String {
    let line = if how_often == "once" { "echo READY; while" } else { "while echo READY;" };
    format!("{line} [ ! -e \"$HERMES_HOME/{flag}\" ]; do sleep 0.02; done")
}

#[tokio::test]
async fn one_that_matches_all_the_time_is_silenced_and_its_end_is_told() {
    let bench = Bench::paced(Pace { window: Duration::from_millis(1_200), ..Pace::default() });
    let id = started(&bench, &ready("always", "go"), json!({"watch_patterns": ["READY"]})).await;
    let kinds =
        || -> Vec<&'static str> { bench.notes.look().events.iter().map(|event| event.kind()).collect() };
    until("silenced", || kinds().contains(&"watch_disabled").then_some(())).await;
    assert_eq!(bench.notes.look().known[&id].record.promise, Promise::Completion, "and that is remembered");
    std::fs::write(bench.home.path().join("go"), "").unwrap();
    recorded(&bench, &id).await;
    let told = kinds();
    let (matches, rest) = told.split_at(told.len() - 2);
    // A machine that is very slow may leave a window out, and then more are told before it is enough.
    assert!(matches.len() >= 3 && matches.iter().all(|kind| *kind == "watch_match"), "{told:?}");
    assert_eq!(rest, ["watch_disabled", "completion"], "{told:?}");
}

/// So many processes of as many sessions, each of which prints a watched line once. Gives their names.
async fn loud(bench: &Bench, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        let arguments = json!({
            "command": ready("once", &format!("go{number}")), "background": true, "watch_patterns": ["READY"],
        });
        let result = bench.call(&bench.ctx(&number.to_string()), "terminal", arguments).await;
        ids.push(result["session_id"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned());
    }
    ids
}

fn of(bench: &Bench, kind: &str) -> Vec<String> {
    let events = bench.notes.look().events;
    let named = events.iter().filter(|event| event.kind() == kind).map(|event| match event {
        Event::Completion { session_id, .. }
        | Event::WatchMatch { session_id, .. }
        | Event::WatchDisabled { session_id, .. }
        | Event::WatchOverflowTripped { session_id, .. }
        | Event::WatchOverflowReleased { session_id, .. } => session_id.clone(),
    });
    named.collect()
}

#[tokio::test]
async fn all_together_are_silenced_for_a_while_and_hear_how_much_they_missed() {
    let pace = Pace { burst: Duration::from_secs(60), rest: Duration::from_secs(3), ..Pace::default() };
    let bench = Bench::paced(pace);
    let ids = loud(&bench, 17).await;
    let released =
        until("released", || Some(of(&bench, "watch_overflow_released")).filter(|it| it.len() == 2)).await;
    let (told, tripped) = (of(&bench, "watch_match"), of(&bench, "watch_overflow_tripped"));
    assert_eq!((told.len(), tripped.len()), (15, 1), "{:?}", bench.notes.look().events);
    let untold: Vec<_> = ids.iter().filter(|id| !told.contains(id)).cloned().collect();
    assert!(untold.contains(&tripped[0]));
    let mut released = released;
    released.sort_by_key(|id| ids.iter().position(|known| known == id));
    assert_eq!(released, untold);
    let events = bench.notes.look().events;
    let missed = events.iter().filter(|it| matches!(it, Event::WatchOverflowReleased { suppressed: 1, .. }));
    assert_eq!(missed.count(), 2);
    bench.terminal.leave().await;
    assert_eq!(of(&bench, "completion"), Vec::<String>::new(), "each knows all of it");
}

#[tokio::test]
async fn one_that_ends_while_all_are_silenced_is_told_that_it_ended() {
    let pace = Pace { burst: Duration::from_secs(60), rest: Duration::from_secs(60), ..Pace::default() };
    let bench = Bench::paced(pace);
    let ids = loud(&bench, 16).await;
    let tripped = until("tripped", || of(&bench, "watch_overflow_tripped").pop()).await;
    for number in 0..16 {
        std::fs::write(bench.home.path().join(format!("go{number}")), "").unwrap();
    }
    for id in &ids {
        recorded(&bench, id).await;
    }
    assert_eq!(of(&bench, "completion"), [tripped]);
    assert_eq!(of(&bench, "watch_match").len(), 15);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A gateway that starts this process and is gone from one moment to the next.
fn orphaned(command: &str) -> (Bench, String) {
    let runtime = runtime();
    let bench = Bench::new();
    let id = runtime.block_on(async {
        let id = started(&bench, command, json!({"notify_on_complete": true})).await;
        // A program that is being loaded has no command line yet.
        let loaded = format!("terminal/output/{id}");
        let line = |pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let ended = |id: &str| bench.notes.look().known[id].end.is_some();
        let pid = bench.notes.look().known[&id].who.clone().unwrap().pid;
        until("loaded", || (line(pid).contains(&loaded) || ended(&id)).then_some(())).await;
        id
    });
    drop(runtime);
    (bench, id)
}

#[test]
fn a_process_outlives_its_gateway_and_is_taken_over() {
    let command = "echo begun; while [ ! -e \"$HERMES_HOME/go\" ]; do sleep 0.05; done; echo ended; exit 5";
    let (bench, id) = orphaned(command);
    runtime().block_on(async {
        let bench = bench.reborn().await;
        let polled = act(&bench, "poll", &id, json!({})).await;
        assert_eq!((&polled["status"], &polled["detached"]), (&json!("running"), &json!(true)), "{polled}");
        std::fs::write(bench.home.path().join("go"), "").unwrap();
        let end = recorded(&bench, &id).await;
        assert_eq!((end.exit_code, end.reason), (Some(5), Reason::Exited));
        let events = bench.notes.look().events;
        let [Event::Completion { output, .. }] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(output, "begun\nended");
    });
}

#[test]
fn a_process_that_was_never_written_down_is_found_and_can_be_ended() {
    let (bench, id) = orphaned("sleep 49");
    let pid = bench.notes.forget(&id);
    runtime().block_on(async {
        let bench = bench.reborn().await;
        assert_eq!(act(&bench, "poll", &id, json!({})).await["pid"], pid);
        assert_eq!(act(&bench, "kill", &id, json!({})).await["status"], "killed");
        until("gone", || (!lives(u64::from(pid))).then_some(())).await;
    });
}

#[test]
fn one_that_ended_meanwhile_is_told_with_what_it_left() {
    let (bench, id) = orphaned("echo fine; exit 6");
    let left = bench.home.path().join(format!("terminal/output/{id}.exit"));
    runtime().block_on(async {
        until("ended", || left.exists().then_some(())).await;
        let bench = bench.reborn().await;
        let end = recorded(&bench, &id).await;
        assert_eq!((end.exit_code, end.reason), (Some(6), Reason::Exited));
        assert_eq!(bench.notes.look().events.len(), 1);
    });
}

#[test]
fn a_number_that_somebody_else_got_is_left_alone() {
    let (bench, id) = orphaned("sleep 50");
    let mut stranger = std::process::Command::new("sleep").arg("51").spawn().unwrap();
    while std::fs::read(format!("/proc/{}/cmdline", stranger.id())).unwrap().is_empty() {
        std::thread::yield_now();
    }
    let pid = bench.notes.mistake(&id, stranger.id());
    runtime().block_on(async {
        let bench = bench.reborn().await;
        let end = bench.notes.look().known[&id].end;
        assert_eq!(end.map(|end| (end.exit_code, end.reason)), Some((None, Reason::Lost)));
        assert_eq!(act(&bench, "kill", &id, json!({})).await["status"], "already_exited");
        bench.terminal.leave().await;
    });
    assert!(stranger.try_wait().unwrap().is_none(), "untouched");
    crate::terminal::group::signal(pid, rustix::process::Signal::KILL);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn a_terminal_that_takes_no_more_is_not_hung_up_by_whoever_gives_up_on_it() {
    let bench = Bench::new();
    let command = "stty raw -echo; echo ready; exec sleep 60";
    let result = start(&bench, command, json!({"pty": true, "watch_patterns": ["ready"]})).await;
    let (id, pid) = (result["session_id"].as_str().unwrap(), result["pid"].as_u64().unwrap());
    until("ready", || (!bench.notes.look().events.is_empty()).then_some(())).await;
    let brief = |action: &'static str, more: Value| {
        tokio::time::timeout(Duration::from_millis(300), act(&bench, action, id, more))
    };
    assert!(brief("write", json!({"data": "x".repeat(1 << 20)})).await.is_err(), "nobody reads it");
    assert!(brief("close", json!({})).await.is_err(), "there is no room for it");
    assert!(brief("close", json!({})).await.is_err(), "and the terminal is still there");
    assert!(lives(pid));
    act(&bench, "kill", id, json!({})).await;
}
