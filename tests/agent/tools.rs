//! Commands of the agent: isolation between sessions, kills, and completion reports.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{ProgramFixture, SOON, assert_took_at_most, eventually, user_text, wait_for_file};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, ChatRequest, Point};
use petasos_runtime::clock;
use serde_json::{Value, json};

// Approvals are off: commands write into the home on purpose.
const CONFIG: &str = "approvals:\n  mode: 'off'\nterminal:\n  enabled: true\n  sandbox: 'off'\n  login_shell: false\n  daemon_term_grace_seconds: 0.3\n\
                      display:\n  busy_input_mode: queue\n  busy_ack_enabled: false\n";

fn fixture() -> ProgramFixture {
    let mut fixture = ProgramFixture::with_config(CONFIG);
    fixture.model.respond(scripted_answer);
    fixture.start();
    fixture
}

/// `terminal {…}` and `process {…}` call that tool; other text is echoed.
fn scripted_answer(request: &ChatRequest) -> Answer {
    let said = user_text(&request.last_user);
    if request.messages().last().is_some_and(|row| row["role"] == "tool") {
        return Answer::text("done");
    }
    let asked = said.split_once(' ').filter(|(tool, _)| ["terminal", "process"].contains(tool));
    match asked.and_then(|(tool, arguments)| Some((tool, serde_json::from_str(arguments).ok()?))) {
        Some((tool, arguments)) => Answer::tool(tool, arguments),
        None => Answer::text(format!("heard: {said}")),
    }
}

fn tool_results(fixture: &ProgramFixture, input: &str) -> Vec<Value> {
    let requests = fixture.model.requests();
    let about = requests.iter().filter(|request| user_text(&request.last_user) == input);
    let last =
        about.filter_map(|request| request.messages().last().filter(|row| row["role"] == "tool").cloned());
    last.map(|row| serde_json::from_str(row["content"].as_str().expect("a text")).expect("JSON")).collect()
}

/// Calls a tool in this chat and waits for the end of the turn.
#[track_caller]
fn call_tool(fixture: &ProgramFixture, chat: i64, tool: &str, arguments: Value) -> Value {
    let done = || fixture.telegram.texts(chat).iter().filter(|text| *text == "done").count();
    // Every input is unique.
    let before = done();
    let mut arguments = arguments;
    arguments["nonce"] = json!(format!("{chat}-{before}"));
    let input = format!("{tool} {arguments}");
    fixture.telegram.push_text(chat, chat, input.clone());
    eventually("done", || done() > before);
    tool_results(fixture, &input)
        .pop()
        .unwrap_or_else(|| panic!("no result: {:?}", fixture.telegram.texts(chat)))
}

fn run_command(fixture: &ProgramFixture, chat: i64, command: &str) -> Value {
    call_tool(fixture, chat, "terminal", json!({ "command": command }))
}

/// Starts a background process. Returns its id and the whole result.
#[track_caller]
fn start_background(fixture: &ProgramFixture, chat: i64, command: &str, more: Value) -> (String, Value) {
    let mut arguments = json!({"command": command, "background": true});
    arguments.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let started = call_tool(fixture, chat, "terminal", arguments);
    let id = started["session_id"].as_str().unwrap_or_else(|| panic!("not started: {started}"));
    (id.to_owned(), started.clone())
}

fn process_action(fixture: &ProgramFixture, chat: i64, action: &str, id: &str) -> Value {
    call_tool(fixture, chat, "process", json!({"action": action, "session_id": id}))
}

fn reports(fixture: &ProgramFixture, id: &str) -> Vec<String> {
    let requests = fixture.model.requests();
    let texts = requests.iter().map(|request| request.last_user.clone());
    texts.filter(|text| text.starts_with("[IMPORTANT: Background process") && text.contains(id)).collect()
}

#[track_caller]
fn wait_reports(fixture: &ProgramFixture, id: &str, count: usize) -> Vec<String> {
    eventually("told", || report_count(fixture, id) >= count);
    reports(fixture, id)
}

fn report_count(fixture: &ProgramFixture, id: &str) -> usize {
    reports(fixture, id).len()
}

fn until_file(flag: &Path) -> String {
    format!("{}; echo {} is there", wait_for_file(flag), flag.display())
}

fn lines_of(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The moment at which a turn with three commands is killed.
#[derive(Debug, Clone, Copy)]
enum KillPoint {
    BeforeModelAnswer,
    /// The command has started and has had no effect yet.
    BeforeEffect(usize),
    /// The command has had its effect and has not ended.
    AfterEffect(usize),
    BeforeTurnEnd,
    AfterTurnEnd,
}

struct ThreeCommands {
    flags: PathBuf,
    effects: PathBuf,
}

impl ThreeCommands {
    fn new(fixture: &ProgramFixture) -> Self {
        let flags = fixture.home.path().join("flags");
        std::fs::create_dir(&flags).expect("a folder");
        Self { effects: flags.join("effects"), flags }
    }

    fn command(&self, number: usize) -> String {
        let flags = self.flags.display();
        let go = wait_for_file(&self.flags.join(format!("go{number}")));
        let end = wait_for_file(&self.flags.join(format!("end{number}")));
        format!(
            "echo {number} >> {flags}/begun; {go}; echo {number} >> {flags}/effects; {end}; echo ok{number}"
        )
    }

    fn raise(&self, flag: &str, number: usize) {
        std::fs::write(self.flags.join(format!("{flag}{number}")), "").expect("a flag");
    }

    /// Lets the commands before `number` end, and command `number` reach its kill point.
    fn advance_to(&self, number: usize, acted: bool) {
        for done in 1..number {
            self.raise("go", done);
            self.raise("end", done);
        }
        let begun = self.flags.join("begun");
        eventually("begun", || lines_of(&begun).len() == number);
        if acted {
            self.raise("go", number);
            eventually("acted", || lines_of(&self.effects).len() == number);
        }
    }

    fn release(&self) {
        for number in 1..=3 {
            self.raise("go", number);
            self.raise("end", number);
        }
    }
}

#[test]
fn tools_outside_configured_toolset_are_unavailable() {
    let mut fixture = ProgramFixture::with_config(&format!("{CONFIG}toolsets: [file, no-such-toolset]\n"));
    fixture.model.respond(scripted_answer);
    fixture.start();
    let result = call_tool(&fixture, 7, "terminal", json!({"command": "echo ran"}));
    assert!(result["error"].as_str().is_some_and(|it| it.starts_with("Unknown tool: terminal")), "{result}");
    let requests = fixture.model.requests();
    let names = requests[0].tools();
    assert!(
        names.contains(&"read_file") && names.iter().all(|name| !["terminal", "clock"].contains(name)),
        "{names:?}"
    );
}

#[test]
fn kill_at_any_step_repeats_no_command() {
    use KillPoint::{AfterEffect, AfterTurnEnd, BeforeEffect, BeforeModelAnswer, BeforeTurnEnd};
    let points = [
        BeforeModelAnswer,
        BeforeEffect(1),
        AfterEffect(1),
        BeforeEffect(2),
        AfterEffect(2),
        BeforeEffect(3),
        AfterEffect(3),
        BeforeTurnEnd,
        AfterTurnEnd,
    ];
    for point in points {
        let mut fixture = ProgramFixture::with_config(CONFIG);
        let three = ThreeCommands::new(&fixture);
        let commands: Vec<_> = (1..=3).map(|number| json!({"command": three.command(number)})).collect();
        let first = Arc::new(Gate::new());
        let last = Arc::new(Gate::new());
        let held = first.clone();
        let finally = last.clone();
        fixture.model.respond(move |request| {
            if request.messages().iter().any(|row| row["role"] == "tool") {
                return Answer::text("done").gate(Point::Before, &finally);
            }
            let [one, two, three] = [0, 1, 2].map(|at| commands[at].clone());
            let answer = Answer::tool("terminal", one).and_tool("terminal", two).and_tool("terminal", three);
            answer.gate(Point::Before, &held)
        });
        fixture.start();
        fixture.telegram.push_text(7, 7, "run three");
        assert!(first.wait(SOON), "the model was never asked");
        if !matches!(point, BeforeModelAnswer) {
            first.open();
        }
        match point {
            BeforeModelAnswer => {}
            BeforeEffect(number) => three.advance_to(number, false),
            AfterEffect(number) => three.advance_to(number, true),
            BeforeTurnEnd | AfterTurnEnd => {
                three.release();
                assert!(last.wait(SOON), "the results were never shown");
                if matches!(point, AfterTurnEnd) {
                    last.open();
                    fixture.wait_messages(7, 1);
                    fixture.wait_idle();
                }
            }
        }
        fixture.kill();
        first.open();
        last.open();
        // Commands outlive the gateway and may have their effect once.
        three.release();
        fixture.start();
        let texts = fixture.wait_messages(7, 1);
        assert!(texts[0].ends_with("done"), "{point:?}: {texts:?}");
        fixture.wait_idle();
        assert_eq!(fixture.telegram.texts(7).len(), 1, "{point:?}");
        let begun = match point {
            BeforeEffect(number) | AfterEffect(number) => number,
            BeforeModelAnswer | BeforeTurnEnd | AfterTurnEnd => 3,
        };
        eventually("acted", || lines_of(&three.effects).len() >= begun);
        let want: Vec<_> = (1..=begun).map(|number| number.to_string()).collect();
        assert_eq!(lines_of(&three.effects), want, "{point:?}: each once, none after the interrupted one");
        assert_eq!(lines_of(&three.flags.join("begun")), want, "{point:?}");
        assert_transcript_valid(&fixture, point);
    }
}

/// In the last model request every tool call has its correct result.
#[track_caller]
fn assert_transcript_valid(fixture: &ProgramFixture, point: KillPoint) {
    let requests = fixture.model.requests();
    let rows = requests.last().expect("a request").messages().to_vec();
    let calls: Vec<_> = rows
        .iter()
        .flat_map(|row| row["tool_calls"].as_array().into_iter().flatten())
        .map(|call| call["id"].clone())
        .collect();
    let results: Vec<_> = rows.iter().filter(|row| row["role"] == "tool").collect();
    let ids: Vec<_> = results.iter().map(|row| row["tool_call_id"].clone()).collect();
    assert_eq!((calls.len(), &calls), (3, &ids), "{point:?}: {rows:?}");
    let lost = match point {
        KillPoint::BeforeEffect(number) | KillPoint::AfterEffect(number) => number,
        KillPoint::BeforeModelAnswer | KillPoint::BeforeTurnEnd | KillPoint::AfterTurnEnd => 4,
    };
    for (number, row) in (1..).zip(results) {
        let text = row["content"].as_str().expect("a text");
        let want = match number {
            _ if number < lost => format!("ok{number}"),
            _ if number == lost => "\"effect_disposition\":\"unknown\"".to_owned(),
            _ => "Not started".to_owned(),
        };
        assert!(text.contains(&want), "{point:?}, call {number}: {text}");
    }
}

#[test]
fn session_isolates_folder_variables_and_processes() {
    let fixture = fixture();
    assert_eq!(run_command(&fixture, 7, "echo out; echo err >&2; exit 3")["exit_code"], 3);
    run_command(&fixture, 7, "mkdir -p deep && cd deep && export SECRET_PLAN=tea");
    let mine = run_command(&fixture, 7, "basename \"$PWD\"; echo \"[$SECRET_PLAN] $HERMES_SESSION_KEY\"");
    assert_eq!(mine["output"], "deep\n[tea] agent:main:telegram:dm:7", "{mine}");
    let theirs = run_command(&fixture, 8, "basename \"$PWD\"; echo \"[$SECRET_PLAN] $HERMES_SESSION_KEY\"");
    assert_eq!(theirs["output"], "workspace\n[] agent:main:telegram:dm:8", "{theirs}");
    let (id, _) = start_background(&fixture, 7, "echo $HERMES_SESSION_KEY; sleep 60", json!({}));
    for action in ["poll", "log", "kill", "wait"] {
        let strange = process_action(&fixture, 8, action, &id);
        assert_eq!(strange["status"], "not_found", "{action}: {strange}");
    }
    assert_eq!(process_action(&fixture, 8, "list", "")["processes"], json!([]));
    eventually("printed", || {
        process_action(&fixture, 7, "poll", &id)["output_preview"]
            .as_str()
            .is_some_and(|it| it.contains("dm:7"))
    });
    assert_eq!(process_action(&fixture, 7, "kill", &id)["status"], "killed");
}

#[test]
fn idle_session_gets_completion_within_one_second() {
    let fixture = fixture();
    let flag = fixture.home.path().join("go");
    let (id, started) =
        start_background(&fixture, 7, &until_file(&flag), json!({"notify_on_complete": true}));
    assert_eq!((&started["notify_on_complete"], started.get("notify_unsupported")), (&json!(true), None));
    fixture.wait_idle();
    std::fs::write(&flag, "").expect("a flag");
    let ended = clock::monotonic();
    let told = wait_reports(&fixture, &id, 1);
    assert_took_at_most(Duration::from_secs(1), ended);
    assert!(told[0].contains("completed normally (exit code 0)") && told[0].contains("is there"), "{told:?}");
    fixture.wait_idle();
    assert_eq!(report_count(&fixture, &id), 1);
}

#[test]
fn busy_session_gets_completion_as_separate_turn() {
    let fixture = fixture();
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    fixture.model.respond(move |request| {
        let answer = scripted_answer(request);
        if user_text(&request.last_user) == "think" { answer.gate(Point::Before, &held) } else { answer }
    });
    let flag = fixture.home.path().join("go");
    let (id, _) = start_background(&fixture, 7, &until_file(&flag), json!({"notify_on_complete": true}));
    fixture.telegram.push_text(7, 7, "think");
    assert!(gate.wait(SOON), "the model was never asked");
    std::fs::write(&flag, "").expect("a flag");
    eventually("accepted", || fixture.status()["inbox"]["queued"] == 1);
    fixture.telegram.push_text(7, 7, "and this");
    eventually("accepted", || fixture.status()["inbox"]["queued"] == 2);
    gate.open();
    let texts = fixture.wait_messages(7, 4);
    fixture.wait_idle();
    assert_eq!((texts[1].as_str(), texts[3].as_str()), ("heard: think", "heard: and this"), "{texts:?}");
    assert_eq!(reports(&fixture, &id).len(), 1);
}

#[test]
fn frequent_pattern_matches_are_rate_limited() {
    let fixture = fixture();
    let command = "for i in 1 2 3 4 5 6 7 8 9 10; do echo READY $i; sleep 0.1; done";
    let (id, started) = start_background(&fixture, 7, command, json!({"watch_patterns": ["READY"]}));
    assert_eq!(started["watch_patterns"], json!(["READY"]));
    let told_first = wait_reports(&fixture, &id, 1);
    assert!(told_first[0].contains("matched watch pattern \"READY\""), "{told_first:?}");
    eventually("ended", || process_action(&fixture, 7, "poll", &id)["status"] == "exited");
    fixture.wait_idle();
    assert_eq!(report_count(&fixture, &id), 1, "{:?}", reports(&fixture, &id));
    let both = json!({"watch_patterns": ["x"], "notify_on_complete": true});
    let (_, started) = start_background(&fixture, 7, "true", both);
    assert!(started["watch_patterns_ignored"].is_string(), "{started}");
}

#[test]
fn idle_session_gets_watched_line_within_five_seconds() {
    let fixture = fixture();
    let flag = fixture.home.path().join("go");
    let command = format!("{}; echo READY; sleep 60", wait_for_file(&flag));
    let (id, _) = start_background(&fixture, 7, &command, json!({"watch_patterns": ["READY"]}));
    fixture.wait_idle();
    std::fs::write(&flag, "").expect("a flag");
    let printed = clock::monotonic();
    let told = wait_reports(&fixture, &id, 1);
    assert_took_at_most(Duration::from_secs(5), printed);
    assert!(told[0].contains("Matched output:\nREADY"), "{told:?}");
    assert_eq!(process_action(&fixture, 7, "kill", &id)["status"], "killed");
}

#[test]
fn new_message_interrupts_running_command() {
    let mut fixture =
        ProgramFixture::with_config(&CONFIG.replace("busy_input_mode: queue", "busy_input_mode: interrupt"));
    fixture.model.respond(scripted_answer);
    fixture.start();
    let running = || {
        let found = Command::new("pgrep").args(["-f", "^sleep 97.531$"]).output().expect("pgrep runs");
        !found.stdout.is_empty()
    };
    let flag = fixture.home.path().join("go");
    let (id, _) = start_background(&fixture, 7, &until_file(&flag), json!({"notify_on_complete": true}));
    fixture.telegram.push_text(7, 7, format!("terminal {}", json!({"command": "sleep 97.531"})));
    eventually("it runs", running);
    // A completion does not interrupt a turn.
    std::fs::write(&flag, "").expect("a flag");
    eventually("accepted", || fixture.status()["inbox"]["queued"] == 1);
    assert!(running(), "interrupted by a completion");
    let asked = clock::monotonic();
    fixture.telegram.push_text(7, 7, "hello");
    eventually("answered", || fixture.telegram.texts(7).iter().any(|text| text == "heard: hello"));
    assert_took_at_most(Duration::from_secs(3), asked);
    eventually("ended", || !running());
    fixture.wait_idle();
    assert_eq!(report_count(&fixture, &id), 1, "{:?}", reports(&fixture, &id));
    let requests = fixture.model.requests();
    let last = requests.iter().rfind(|it| user_text(&it.last_user) == "hello").expect("asked");
    let rows = last.messages();
    let calls = rows.iter().flat_map(|row| row["tool_calls"].as_array().into_iter().flatten()).count();
    let results = rows.iter().filter(|row| row["role"] == "tool").count();
    assert_eq!((calls, results), (2, 2), "{rows:?}");
    assert!(rows.windows(2).all(|pair| pair[0]["role"] != "user" || pair[1]["role"] != "user"), "{rows:?}");
}

#[test]
fn writes_to_process_on_terminal_and_through_pipe() {
    let fixture = fixture();
    let command = "test -t 0 && echo a terminal; read line; echo \"got $line\"";
    let (id, _) = start_background(&fixture, 7, command, json!({"pty": true}));
    let sent =
        call_tool(&fixture, 7, "process", json!({"action": "submit", "session_id": id, "data": "tea"}));
    assert_eq!(sent["status"], "ok", "{sent}");
    let ended = process_action(&fixture, 7, "wait", &id);
    let output = ended["output"].as_str().expect("a text");
    assert!(output.contains("a terminal") && output.contains("got tea"), "{ended}");
    assert_eq!(ended["exit_code"], 0);

    let (id, _) = start_background(&fixture, 7, "cat", json!({}));
    let sent =
        call_tool(&fixture, 7, "process", json!({"action": "write", "session_id": id, "data": "milk\n"}));
    assert_eq!(sent["status"], "ok", "{sent}");
    assert_eq!(process_action(&fixture, 7, "close", &id)["status"], "ok");
    let ended = process_action(&fixture, 7, "wait", &id);
    assert_eq!((&ended["output"], &ended["exit_code"]), (&json!("milk"), &json!(0)), "{ended}");
}

#[test]
fn enforces_command_timeout_and_output_limit() {
    let fixture = fixture();
    let asked = clock::monotonic();
    let late =
        call_tool(&fixture, 7, "terminal", json!({"command": "echo begun; sleep 77 & wait", "timeout": 1}));
    assert!(late["exit_code"] == 124 || late["status"] == "error", "{late}");
    let late = call_tool(&fixture, 7, "terminal", json!({"command": "echo begun; sleep 77", "timeout": 1}));
    assert_eq!(late["exit_code"], 124, "{late}");
    assert!(asked.elapsed() < Duration::from_secs(70), "{:?}", asked.elapsed());
    let none = Command::new("pgrep").args(["-f", "^sleep 77$"]).output().expect("pgrep runs");
    assert!(none.stdout.is_empty(), "it runs on");
    let refused = call_tool(&fixture, 7, "terminal", json!({"command": "touch never", "timeout": 601}));
    assert!(refused["error"].is_string() && refused.get("exit_code").is_none(), "{refused}");
    assert!(!fixture.home.path().join("workspace/never").exists());
    let long = run_command(&fixture, 7, "echo FIRST; seq 40000; echo LAST");
    let output = long["output"].as_str().expect("a text");
    assert!(
        output.len() <= 50_000 && output.starts_with("FIRST") && output.ends_with("LAST"),
        "{}",
        output.len()
    );
}

#[test]
fn process_ending_during_downtime_is_reported_once() {
    let mut fixture = fixture();
    let flag = fixture.home.path().join("go");
    let notify = || json!({"notify_on_complete": true});
    let (ended, _) = start_background(&fixture, 7, &format!("{}; exit 5", until_file(&flag)), notify());
    let (lost, started) = start_background(&fixture, 8, "sleep 61", notify());
    fixture.wait_idle();
    fixture.kill();
    std::fs::write(&flag, "").expect("a flag");
    // The whole process group dies, so no exit file is left.
    let group = format!("-{}", started["pid"]);
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().expect("kill runs").success());
    let left = fixture.home.path().join(format!("terminal/output/{ended}.exit"));
    eventually("ended", || left.exists());
    fixture.start();
    let told_ended = wait_reports(&fixture, &ended, 1);
    let told_lost = wait_reports(&fixture, &lost, 1);
    assert!(
        told_ended[0].contains("exited (exit code 5)") && told_ended[0].contains("is there"),
        "{told_ended:?}"
    );
    assert!(
        told_lost[0].contains("marked lost because") && told_lost[0].contains("exit code unknown"),
        "{told_lost:?}"
    );
    fixture.wait_idle();
    fixture.kill();
    fixture.start();
    fixture.telegram.push_text(7, 7, "hello");
    eventually("answered", || fixture.telegram.texts(7).last().is_some_and(|text| text == "heard: hello"));
    assert_eq!((report_count(&fixture, &ended), report_count(&fixture, &lost)), (1, 1));
}

#[test]
fn leaves_unrelated_process_with_reused_pid_alone() {
    let mut fixture = fixture();
    let (id, started) = start_background(&fixture, 7, "sleep 61", json!({"notify_on_complete": true}));
    fixture.wait_idle();
    fixture.kill();
    let group = format!("-{}", started["pid"]);
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().expect("kill runs").success());
    let mut stranger = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("a stranger");
    let store = rusqlite::Connection::open(fixture.database()).expect("a store");
    let changed =
        store.execute("UPDATE processes SET pid = ?2 WHERE id = ?1", rusqlite::params![id, stranger.id()]);
    assert_eq!(changed.expect("changed"), 1);
    drop(store);
    fixture.start();
    let told = wait_reports(&fixture, &id, 1);
    assert!(told[0].contains("marked lost because"), "{told:?}");
    let killed = process_action(&fixture, 7, "kill", &id);
    assert_eq!(killed["status"], "already_exited", "{killed}");
    fixture.terminate();
    assert!(stranger.try_wait().expect("a look").is_none(), "the stranger was ended");
    stranger.kill().expect("ended");
    stranger.wait().expect("gone");
}
