use super::*;
use crate::terminal::WatchLimits;
use crate::terminal::background::record::ProcessEvent;
use crate::terminal::testing::TerminalFixture;
use crate::tools::AsyncDelivery;

const SOON: Duration = Duration::from_secs(60);

async fn start(fixture: &TerminalFixture, command: &str, more: Value) -> Value {
    let mut arguments = json!({"command": command, "background": true});
    arguments.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    fixture.call(&fixture.ctx("1"), "terminal", arguments).await
}

async fn started(fixture: &TerminalFixture, command: &str, more: Value) -> String {
    let result = start(fixture, command, more).await;
    result["session_id"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

async fn act(fixture: &TerminalFixture, action: &str, id: &str, more: Value) -> Value {
    let mut arguments = json!({"action": action, "session_id": id});
    arguments.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    fixture.call(&fixture.ctx("1"), "process", arguments).await
}

async fn until<T>(description: &str, find: impl FnMut() -> Option<T>) -> T {
    petasos_fakes::wait::eventually_async(description, SOON, find).await
}

/// The end of a process as recorded in the ledger.
async fn recorded(fixture: &TerminalFixture, id: &str) -> crate::terminal::ProcessExit {
    until("recorded", || fixture.ledger.snapshot().known[id].end).await
}

fn is_alive(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn start_result_has_documented_keys() {
    let fixture = TerminalFixture::new();
    let plain = start(&fixture, "sleep 41", json!({})).await;
    assert_eq!(plain["output"], "Background process started");
    assert_eq!((&plain["exit_code"], &plain["error"]), (&json!(0), &Value::Null));
    assert!(is_alive(plain["pid"].as_u64().unwrap()));
    let id = plain["session_id"].as_str().unwrap();
    assert!(id.len() == 17 && id.starts_with("proc_"), "{id}");
    assert!(plain["hint"].as_str().unwrap().contains("poll") && plain.get("notify_on_complete").is_none());
    let notified =
        start(&fixture, "sleep 42", json!({"notify_on_complete": true, "watch_patterns": ["x"]})).await;
    assert_eq!(notified["notify_on_complete"], true);
    assert!(notified.get("notify_unsupported").is_none() && notified.get("hint").is_none());
    assert!(notified["watch_patterns_ignored"].is_string() && notified.get("watch_patterns").is_none());
    let watched = start(&fixture, "sleep 43", json!({"watch_patterns": ["a", "b"]})).await;
    assert_eq!(watched["watch_patterns"], json!(["a", "b"]));
    fixture.terminal.kill_all().await;
    let state = fixture.ledger.snapshot();
    assert!(
        state
            .known
            .values()
            .all(|known| known.end.is_some_and(|end| end.reason == ExitReason::KilledWithAll))
    );
    assert_eq!(state.events.len(), 1, "{:?}", state.events);
}

#[tokio::test]
async fn promises_nothing_without_async_delivery() {
    let fixture = TerminalFixture::new();
    for notification in [json!({"notify_on_complete": true}), json!({"watch_patterns": ["x"]})] {
        let mut ctx = fixture.ctx("1");
        ctx.async_delivery = AsyncDelivery::Unsupported;
        let mut arguments = json!({"command": "sleep 44", "background": true});
        arguments.as_object_mut().unwrap().extend(notification.as_object().cloned().unwrap());
        let result = fixture.call(&ctx, "terminal", arguments).await;
        assert_eq!(result["notify_on_complete"], false);
        let note = result["notify_unsupported"].as_str().unwrap();
        assert!(note.contains("poll") && note.contains("wait") && note.contains("running"), "{note}");
        assert!(result.get("hint").is_none() && result.get("watch_patterns").is_none());
        let id = result["session_id"].as_str().unwrap();
        assert_eq!(fixture.ledger.snapshot().known[id].record.notify, NotifyMode::Nothing, "no watcher");
        assert!(is_alive(result["pid"].as_u64().unwrap()));
        // The same session over another channel.
        let again = start(&fixture, "true", json!({"notify_on_complete": true})).await;
        assert_eq!(again["notify_on_complete"], true);
    }
    fixture.terminal.kill_all().await;
}

#[tokio::test]
async fn notifies_end_once_with_output() {
    let fixture = TerminalFixture::new();
    let id = started(&fixture, "echo working; echo DONE; exit 3", json!({"notify_on_complete": true})).await;
    recorded(&fixture, &id).await;
    let events = fixture.ledger.snapshot().events;
    let [ProcessEvent::Completion { session_id, exit_code, output, .. }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((session_id, *exit_code, output.as_str()), (&id, Some(3), "working\nDONE"));
    let polled = act(&fixture, "poll", &id, json!({})).await;
    assert_eq!((&polled["status"], &polled["exit_code"]), (&json!("exited"), &json!(3)));
    assert_eq!(fixture.ledger.snapshot().consumed, Vec::<String>::new(), "a poll changes nothing");
    act(&fixture, "log", &id, json!({})).await;
    assert_eq!(fixture.ledger.snapshot().consumed, [id]);
}

#[tokio::test]
async fn wait_returns_end_and_consumes_notification() {
    let fixture = TerminalFixture::new();
    let id = started(&fixture, "echo hi; sleep 0.3; exit 2", json!({"notify_on_complete": true})).await;
    let waited = act(&fixture, "wait", &id, json!({"timeout": 999})).await;
    assert_eq!(
        (&waited["status"], &waited["exit_code"], &waited["output"]),
        (&json!("exited"), &json!(2), &json!("hi"))
    );
    assert!(waited["timeout_note"].is_string(), "it was asked to wait for longer than it may");
    assert_eq!(fixture.ledger.snapshot().consumed, [id]);
    let long = started(&fixture, "echo begun; sleep 45", json!({})).await;
    let waited = act(&fixture, "wait", &long, json!({"timeout": 1})).await;
    assert_eq!((&waited["status"], &waited["output"]), (&json!("timeout"), &json!("begun")));
    fixture.terminal.kill_all().await;
}

#[tokio::test]
async fn session_sees_only_its_own_processes() {
    let fixture = TerminalFixture::new();
    let id = started(&fixture, "sleep 46", json!({})).await;
    let other = fixture.ctx("2");
    for action in ["poll", "log", "wait", "kill", "write", "submit", "close"] {
        let arguments = json!({"action": action, "session_id": id, "data": "x"});
        let answer = fixture.call(&other, "process", arguments).await;
        assert_eq!(answer["status"], "not_found", "{action}");
    }
    let listed = fixture.call(&other, "process", json!({"action": "list"})).await;
    assert_eq!(listed, json!({"processes": []}));
    let listed = act(&fixture, "list", "", json!({})).await;
    assert_eq!(listed["processes"][0]["session_id"], json!(id));
    assert_eq!(listed["processes"][0]["status"], "running");
    fixture.terminal.kill_all().await;
}

#[tokio::test]
async fn invalid_calls_return_documented_errors() {
    let fixture = TerminalFixture::new();
    let ctx = fixture.ctx("1");
    let error_of = async |arguments: Value| fixture.call(&ctx, "process", arguments).await["error"].clone();
    assert_eq!(error_of(json!({"action": "poll"})).await, "session_id is required for poll");
    assert_eq!(
        error_of(json!({"action": "dance", "session_id": "x"})).await,
        "Unknown process action: dance"
    );
    assert_eq!(error_of(json!({"action": "poll", "session_id": "x"})).await, "No process with ID x");
}

#[tokio::test]
async fn kill_ends_whole_group_without_notification() {
    let fixture = TerminalFixture::new();
    let command = "trap '' TERM; sleep 47 | sleep 48";
    let result = start(&fixture, command, json!({"notify_on_complete": true})).await;
    let id = result["session_id"].as_str().unwrap();
    let pid = result["pid"].as_u64().unwrap();
    let killed = act(&fixture, "kill", id, json!({})).await;
    assert_eq!(killed["status"], "killed");
    assert_eq!(killed["completion_reason"], "killed");
    assert_eq!(killed["termination_source"], "process.kill");
    assert_eq!(fixture.ledger.snapshot().consumed, [id]);
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
    assert_eq!(act(&fixture, "kill", id, json!({})).await["status"], "already_exited");
}

#[tokio::test]
async fn writes_and_closes_process_input() {
    let fixture = TerminalFixture::new();
    let id = started(&fixture, "cat; echo bye", json!({})).await;
    assert_eq!(
        act(&fixture, "write", &id, json!({"data": "one "})).await,
        json!({"status": "ok", "bytes_written": 4})
    );
    assert_eq!(
        act(&fixture, "submit", &id, json!({"data": "two"})).await,
        json!({"status": "ok", "bytes_written": 4})
    );
    assert_eq!(
        act(&fixture, "close", &id, json!({})).await,
        json!({"status": "ok", "message": "stdin closed"})
    );
    let waited = act(&fixture, "wait", &id, json!({})).await;
    assert_eq!((&waited["output"], &waited["exit_code"]), (&json!("one two\nbye"), &json!(0)));
}

#[tokio::test]
async fn talks_to_program_on_terminal() {
    let fixture = TerminalFixture::new();
    let id = started(&fixture, "read line; echo \"got:$line\"; cat", json!({"pty": true})).await;
    act(&fixture, "submit", &id, json!({"data": "hello"})).await;
    assert_eq!(act(&fixture, "close", &id, json!({})).await, json!({"status": "ok", "message": "EOF sent"}));
    let waited = act(&fixture, "wait", &id, json!({})).await;
    assert_eq!(waited["exit_code"], 0, "{waited}");
    assert!(waited["output"].as_str().unwrap().contains("got:hello"), "{waited}");
}

#[tokio::test]
async fn notifies_watched_line_but_not_end() {
    let fixture = TerminalFixture::new();
    let id =
        started(&fixture, "echo starting; echo server ready; sleep 1", json!({"watch_patterns": ["ready"]}))
            .await;
    let event = until("notified", || fixture.ledger.snapshot().events.first().cloned()).await;
    let ProcessEvent::WatchMatch { session_id, pattern, output, .. } = &event else { panic!("{event:?}") };
    assert_eq!((session_id, pattern.as_str(), output.as_str()), (&id, "ready", "server ready"));
    recorded(&fixture, &id).await;
    assert_eq!(fixture.ledger.snapshot().events.len(), 1);
}

/// Prints a watched line once or repeatedly, and ends when the flag file exists.
fn ready(how_often: &str, flag: &str) -> String {
    let line = if how_often == "once" { "echo READY; while" } else { "while echo READY;" };
    format!("{line} [ ! -e \"$HERMES_HOME/{flag}\" ]; do sleep 0.02; done")
}

#[tokio::test]
async fn disables_watch_that_matches_too_often() {
    let fixture = TerminalFixture::with_limits(WatchLimits {
        window: Duration::from_millis(1_200),
        ..WatchLimits::default()
    });
    let id = started(&fixture, &ready("always", "go"), json!({"watch_patterns": ["READY"]})).await;
    let kinds = || -> Vec<&'static str> {
        fixture.ledger.snapshot().events.iter().map(|event| event.kind()).collect()
    };
    until("silenced", || kinds().contains(&"watch_disabled").then_some(())).await;
    assert_eq!(
        fixture.ledger.snapshot().known[&id].record.notify,
        NotifyMode::Completion,
        "and that is remembered"
    );
    std::fs::write(fixture.home.path().join("go"), "").unwrap();
    recorded(&fixture, &id).await;
    let reported = kinds();
    let (matches, rest) = reported.split_at(reported.len() - 2);
    // A very slow machine may skip a window; more matches are reported then.
    assert!(matches.len() >= 3 && matches.iter().all(|kind| *kind == "watch_match"), "{reported:?}");
    assert_eq!(rest, ["watch_disabled", "completion"], "{reported:?}");
}

/// Starts `count` processes in as many sessions; each prints one watched line. Returns their ids.
async fn start_noisy(fixture: &TerminalFixture, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        let arguments = json!({
            "command": ready("once", &format!("go{number}")), "background": true, "watch_patterns": ["READY"],
        });
        let result = fixture.call(&fixture.ctx(&number.to_string()), "terminal", arguments).await;
        ids.push(result["session_id"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned());
    }
    ids
}

fn sessions_with(fixture: &TerminalFixture, kind: &str) -> Vec<String> {
    let events = fixture.ledger.snapshot().events;
    let named = events.iter().filter(|event| event.kind() == kind).map(|event| match event {
        ProcessEvent::Completion { session_id, .. }
        | ProcessEvent::WatchMatch { session_id, .. }
        | ProcessEvent::WatchDisabled { session_id, .. }
        | ProcessEvent::WatchOverflowTripped { session_id, .. }
        | ProcessEvent::WatchOverflowReleased { session_id, .. } => session_id.clone(),
    });
    named.collect()
}

#[tokio::test]
async fn global_watch_limit_counts_suppressed_matches() {
    let watch_limits = WatchLimits {
        burst: Duration::from_secs(60),
        pause: Duration::from_secs(3),
        ..WatchLimits::default()
    };
    let fixture = TerminalFixture::with_limits(watch_limits);
    let ids = start_noisy(&fixture, 17).await;
    let released = until("released", || {
        Some(sessions_with(&fixture, "watch_overflow_released")).filter(|it| it.len() == 2)
    })
    .await;
    let reported = sessions_with(&fixture, "watch_match");
    let tripped = sessions_with(&fixture, "watch_overflow_tripped");
    assert_eq!((reported.len(), tripped.len()), (15, 1), "{:?}", fixture.ledger.snapshot().events);
    let unreported: Vec<_> = ids.iter().filter(|id| !reported.contains(id)).cloned().collect();
    assert!(unreported.contains(&tripped[0]));
    let mut released = released;
    released.sort_by_key(|id| ids.iter().position(|known| known == id));
    assert_eq!(released, unreported);
    let events = fixture.ledger.snapshot().events;
    let missed =
        events.iter().filter(|it| matches!(it, ProcessEvent::WatchOverflowReleased { suppressed: 1, .. }));
    assert_eq!(missed.count(), 2);
    fixture.terminal.kill_all().await;
    assert_eq!(
        sessions_with(&fixture, "completion"),
        Vec::<String>::new(),
        "every session was notified already"
    );
}

#[tokio::test]
async fn reports_end_during_global_watch_pause() {
    let watch_limits = WatchLimits {
        burst: Duration::from_secs(60),
        pause: Duration::from_secs(60),
        ..WatchLimits::default()
    };
    let fixture = TerminalFixture::with_limits(watch_limits);
    let ids = start_noisy(&fixture, 16).await;
    let tripped = until("tripped", || sessions_with(&fixture, "watch_overflow_tripped").pop()).await;
    for number in 0..16 {
        std::fs::write(fixture.home.path().join(format!("go{number}")), "").unwrap();
    }
    for id in &ids {
        recorded(&fixture, id).await;
    }
    assert_eq!(sessions_with(&fixture, "completion"), [tripped]);
    assert_eq!(sessions_with(&fixture, "watch_match").len(), 15);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A process whose gateway crashed right after starting it.
fn orphaned(command: &str) -> (TerminalFixture, String) {
    let runtime = runtime();
    let fixture = TerminalFixture::new();
    let id = runtime.block_on(async {
        let id = started(&fixture, command, json!({"notify_on_complete": true})).await;
        // A program that is still loading has no command line.
        let loaded = format!("terminal/output/{id}");
        let line = |pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let ended = |id: &str| fixture.ledger.snapshot().known[id].end.is_some();
        let pid = fixture.ledger.snapshot().known[&id].identity.clone().unwrap().pid;
        until("loaded", || (line(pid).contains(&loaded) || ended(&id)).then_some(())).await;
        id
    });
    drop(runtime);
    (fixture, id)
}

#[test]
fn adopts_process_of_earlier_gateway() {
    let command = "echo begun; while [ ! -e \"$HERMES_HOME/go\" ]; do sleep 0.05; done; echo ended; exit 5";
    let (fixture, id) = orphaned(command);
    runtime().block_on(async {
        let fixture = fixture.restart().await;
        let polled = act(&fixture, "poll", &id, json!({})).await;
        assert_eq!((&polled["status"], &polled["detached"]), (&json!("running"), &json!(true)), "{polled}");
        std::fs::write(fixture.home.path().join("go"), "").unwrap();
        let end = recorded(&fixture, &id).await;
        assert_eq!((end.exit_code, end.reason), (Some(5), ExitReason::Exited));
        let events = fixture.ledger.snapshot().events;
        let [ProcessEvent::Completion { output, .. }] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(output, "begun\nended");
    });
}

#[test]
fn finds_and_kills_unrecorded_process() {
    let (fixture, id) = orphaned("sleep 49");
    let pid = fixture.ledger.forget_pid(&id);
    runtime().block_on(async {
        let fixture = fixture.restart().await;
        assert_eq!(act(&fixture, "poll", &id, json!({})).await["pid"], pid);
        assert_eq!(act(&fixture, "kill", &id, json!({})).await["status"], "killed");
        until("gone", || (!is_alive(u64::from(pid))).then_some(())).await;
    });
}

#[test]
fn reports_process_that_ended_while_away() {
    let (fixture, id) = orphaned("echo fine; exit 6");
    let left = fixture.home.path().join(format!("terminal/output/{id}.exit"));
    runtime().block_on(async {
        until("ended", || left.exists().then_some(())).await;
        let fixture = fixture.restart().await;
        let end = recorded(&fixture, &id).await;
        assert_eq!((end.exit_code, end.reason), (Some(6), ExitReason::Exited));
        assert_eq!(fixture.ledger.snapshot().events.len(), 1);
    });
}

#[test]
fn leaves_process_with_reused_pid_alone() {
    let (fixture, id) = orphaned("sleep 50");
    let mut stranger = std::process::Command::new("sleep").arg("51").spawn().unwrap();
    while std::fs::read(format!("/proc/{}/cmdline", stranger.id())).unwrap().is_empty() {
        std::thread::yield_now();
    }
    let pid = fixture.ledger.replace_pid(&id, stranger.id());
    runtime().block_on(async {
        let fixture = fixture.restart().await;
        let end = fixture.ledger.snapshot().known[&id].end;
        assert_eq!(end.map(|end| (end.exit_code, end.reason)), Some((None, ExitReason::Lost)));
        assert_eq!(act(&fixture, "kill", &id, json!({})).await["status"], "already_exited");
        fixture.terminal.kill_all().await;
    });
    assert!(stranger.try_wait().unwrap().is_none(), "untouched");
    crate::terminal::group::signal(pid, rustix::process::Signal::KILL);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn abandoned_write_does_not_hang_up_terminal() {
    let fixture = TerminalFixture::new();
    let command = "stty raw -echo; echo ready; exec sleep 60";
    let result = start(&fixture, command, json!({"pty": true, "watch_patterns": ["ready"]})).await;
    let id = result["session_id"].as_str().unwrap();
    let pid = result["pid"].as_u64().unwrap();
    until("ready", || (!fixture.ledger.snapshot().events.is_empty()).then_some(())).await;
    let brief = |action: &'static str, more: Value| {
        tokio::time::timeout(Duration::from_millis(300), act(&fixture, action, id, more))
    };
    assert!(brief("write", json!({"data": "x".repeat(1 << 20)})).await.is_err(), "the program does not read");
    assert!(brief("close", json!({})).await.is_err(), "there is no room for it");
    assert!(brief("close", json!({})).await.is_err(), "and the terminal is still there");
    assert!(is_alive(pid));
    act(&fixture, "kill", id, json!({})).await;
}
