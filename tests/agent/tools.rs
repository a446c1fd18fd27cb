//! Commands of the agent with the real program: what they share, what they keep apart, what becomes of them when the
//! gateway is killed, and how their end is told.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Bench, SOON, assert_took_at_most, eventually, said, wait_for_file};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point, Request};
use serde_json::{Value, json};

// The judge has its own tests; here commands write into the home on purpose.
const CONFIG: &str = "approvals:\n  mode: 'off'\nterminal:\n  enabled: true\n  login_shell: false\n  daemon_term_grace_seconds: 0.3\n\
                      display:\n  busy_input_mode: queue\n  busy_ack_enabled: false\n";

fn bench() -> Bench {
    let mut bench = Bench::with(CONFIG);
    bench.model.respond(obey);
    bench.start();
    bench
}

/// `terminal {…}` and `process {…}` make the model call that tool; whatever else is said comes back.
fn obey(request: &Request) -> Answer {
    let said = said(&request.last_user);
    if request.messages().last().is_some_and(|row| row["role"] == "tool") {
        return Answer::text("done");
    }
    let asked = said.split_once(' ').filter(|(tool, _)| ["terminal", "process"].contains(tool));
    match asked.and_then(|(tool, arguments)| Some((tool, serde_json::from_str(arguments).ok()?))) {
        Some((tool, arguments)) => Answer::tool(tool, arguments),
        None => Answer::text(format!("heard: {said}")),
    }
}

/// The results that the model was shown for this wish, each time it was asked about it.
fn shown(bench: &Bench, wish: &str) -> Vec<Value> {
    let requests = bench.model.requests();
    let about = requests.iter().filter(|request| said(&request.last_user) == wish);
    let last =
        about.filter_map(|request| request.messages().last().filter(|row| row["role"] == "tool").cloned());
    last.map(|row| serde_json::from_str(row["content"].as_str().expect("a text")).expect("JSON")).collect()
}

/// Has the agent of this chat call a tool, and waits for the end of the turn.
#[track_caller]
fn call(bench: &Bench, chat: i64, tool: &str, arguments: Value) -> Value {
    let done = || bench.telegram.texts(chat).iter().filter(|text| *text == "done").count();
    // Every wish is one of its kind.
    let before = done();
    let mut arguments = arguments;
    arguments["nonce"] = json!(format!("{chat}-{before}"));
    let wish = format!("{tool} {arguments}");
    bench.telegram.push_text(chat, chat, wish.clone());
    eventually("done", || done() > before);
    shown(bench, &wish).pop().unwrap_or_else(|| panic!("no result: {:?}", bench.telegram.texts(chat)))
}

fn run(bench: &Bench, chat: i64, command: &str) -> Value {
    call(bench, chat, "terminal", json!({ "command": command }))
}

/// Starts something in the background; its name, and the whole answer.
#[track_caller]
fn start(bench: &Bench, chat: i64, command: &str, more: Value) -> (String, Value) {
    let mut arguments = json!({"command": command, "background": true});
    arguments.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let started = call(bench, chat, "terminal", arguments);
    let id = started["session_id"].as_str().unwrap_or_else(|| panic!("not started: {started}"));
    (id.to_owned(), started.clone())
}

fn process(bench: &Bench, chat: i64, action: &str, id: &str) -> Value {
    call(bench, chat, "process", json!({"action": action, "session_id": id}))
}

/// What the gateway itself told the model of this process.
fn told(bench: &Bench, id: &str) -> Vec<String> {
    let requests = bench.model.requests();
    let texts = requests.iter().map(|request| request.last_user.clone());
    texts.filter(|text| text.starts_with("[IMPORTANT: Background process") && text.contains(id)).collect()
}

#[track_caller]
fn wait_told(bench: &Bench, id: &str, count: usize) -> Vec<String> {
    eventually("told", || told_in(bench, id) >= count);
    told(bench, id)
}

fn told_in(bench: &Bench, id: &str) -> usize {
    told(bench, id).len()
}

/// A command that ends when the file is there.
fn until(flag: &Path) -> String {
    format!("{}; echo {} is there", wait_for_file(flag), flag.display())
}

/// The lines of the file that commands write into.
fn effects(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Where a turn with three commands is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    BeforeTheAnswer,
    /// The command has been started and has done nothing yet.
    Before(usize),
    /// It has done what it does and has not ended.
    After(usize),
    BeforeTheEnd,
    AfterTheEnd,
}

struct Three {
    flags: PathBuf,
    effects: PathBuf,
}

impl Three {
    fn new(bench: &Bench) -> Self {
        let flags = bench.home.path().join("flags");
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

    /// Lets the first calls end, and the next one come to its moment.
    fn bring_to(&self, number: usize, acted: bool) {
        for done in 1..number {
            self.raise("go", done);
            self.raise("end", done);
        }
        let begun = self.flags.join("begun");
        eventually("begun", || effects(&begun).len() == number);
        if acted {
            self.raise("go", number);
            eventually("acted", || effects(&self.effects).len() == number);
        }
    }

    /// What still waits may end.
    fn release(&self) {
        for number in 1..=3 {
            self.raise("go", number);
            self.raise("end", number);
        }
    }
}

#[test]
fn tools_outside_of_a_configured_toolset_are_neither_offered_nor_run() {
    let mut bench = Bench::with(&format!("{CONFIG}toolsets: [file, no-such-toolset]\n"));
    bench.model.respond(obey);
    bench.start();
    let result = call(&bench, 7, "terminal", json!({"command": "echo ran"}));
    assert!(result["error"].as_str().is_some_and(|it| it.starts_with("Unknown tool: terminal")), "{result}");
    let requests = bench.model.requests();
    let names = requests[0].tools();
    assert!(
        names.contains(&"read_file") && names.iter().all(|name| !["terminal", "clock"].contains(name)),
        "{names:?}"
    );
}

#[test]
fn killed_at_any_moment_of_a_turn_with_three_commands_repeats_none_and_leaves_a_legal_transcript() {
    use Moment::{After, AfterTheEnd, Before, BeforeTheAnswer, BeforeTheEnd};
    let moments = [
        BeforeTheAnswer,
        Before(1),
        After(1),
        Before(2),
        After(2),
        Before(3),
        After(3),
        BeforeTheEnd,
        AfterTheEnd,
    ];
    for moment in moments {
        let mut bench = Bench::with(CONFIG);
        let three = Three::new(&bench);
        let commands: Vec<_> = (1..=3).map(|number| json!({"command": three.command(number)})).collect();
        let (first, last) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (held, finally) = (first.clone(), last.clone());
        bench.model.respond(move |request| {
            if request.messages().iter().any(|row| row["role"] == "tool") {
                return Answer::text("done").gate(Point::Before, &finally);
            }
            let [one, two, three] = [0, 1, 2].map(|at| commands[at].clone());
            let answer = Answer::tool("terminal", one).and_tool("terminal", two).and_tool("terminal", three);
            answer.gate(Point::Before, &held)
        });
        bench.start();
        bench.telegram.push_text(7, 7, "run three");
        assert!(first.wait(SOON), "the model was never asked");
        if !matches!(moment, BeforeTheAnswer) {
            first.open();
        }
        match moment {
            BeforeTheAnswer => {}
            Before(number) => three.bring_to(number, false),
            After(number) => three.bring_to(number, true),
            BeforeTheEnd | AfterTheEnd => {
                three.release();
                assert!(last.wait(SOON), "the results were never shown");
                if matches!(moment, AfterTheEnd) {
                    last.open();
                    bench.wait_messages(7, 1);
                    bench.settle();
                }
            }
        }
        bench.kill();
        first.open();
        last.open();
        // What runs on without us may do what it was begun for, once.
        three.release();
        bench.start();
        let texts = bench.wait_messages(7, 1);
        assert!(texts[0].ends_with("done"), "{moment:?}: {texts:?}");
        bench.settle();
        assert_eq!(bench.telegram.texts(7).len(), 1, "{moment:?}");
        let begun = match moment {
            Before(number) | After(number) => number,
            BeforeTheAnswer | BeforeTheEnd | AfterTheEnd => 3,
        };
        eventually("acted", || effects(&three.effects).len() >= begun);
        let want: Vec<_> = (1..=begun).map(|number| number.to_string()).collect();
        assert_eq!(effects(&three.effects), want, "{moment:?}: each once, and nothing behind the lost one");
        assert_eq!(effects(&three.flags.join("begun")), want, "{moment:?}");
        legal(&bench, moment);
    }
}

/// The conversation as the model was last asked to go on with it: every call has its result, and the result is true.
#[track_caller]
fn legal(bench: &Bench, moment: Moment) {
    let requests = bench.model.requests();
    let rows = requests.last().expect("a request").messages().to_vec();
    let calls: Vec<_> = rows
        .iter()
        .flat_map(|row| row["tool_calls"].as_array().into_iter().flatten())
        .map(|call| call["id"].clone())
        .collect();
    let results: Vec<_> = rows.iter().filter(|row| row["role"] == "tool").collect();
    let ids: Vec<_> = results.iter().map(|row| row["tool_call_id"].clone()).collect();
    assert_eq!((calls.len(), &calls), (3, &ids), "{moment:?}: {rows:?}");
    let lost = match moment {
        Moment::Before(number) | Moment::After(number) => number,
        Moment::BeforeTheAnswer | Moment::BeforeTheEnd | Moment::AfterTheEnd => 4,
    };
    for (number, row) in (1..).zip(results) {
        let text = row["content"].as_str().expect("a text");
        let want = match number {
            _ if number < lost => format!("ok{number}"),
            _ if number == lost => "\"effect_disposition\":\"unknown\"".to_owned(),
            _ => "Not started".to_owned(),
        };
        assert!(text.contains(&want), "{moment:?}, call {number}: {text}");
    }
}

#[test]
fn a_session_keeps_its_folder_and_its_variables_and_no_other_sees_them() {
    let bench = bench();
    assert_eq!(run(&bench, 7, "echo out; echo err >&2; exit 3")["exit_code"], 3);
    run(&bench, 7, "mkdir -p deep && cd deep && export SECRET_PLAN=tea");
    let mine = run(&bench, 7, "basename \"$PWD\"; echo \"[$SECRET_PLAN] $HERMES_SESSION_KEY\"");
    assert_eq!(mine["output"], "deep\n[tea] agent:main:telegram:dm:7", "{mine}");
    let theirs = run(&bench, 8, "basename \"$PWD\"; echo \"[$SECRET_PLAN] $HERMES_SESSION_KEY\"");
    assert_eq!(theirs["output"], "workspace\n[] agent:main:telegram:dm:8", "{theirs}");
    let (id, _) = start(&bench, 7, "echo $HERMES_SESSION_KEY; sleep 60", json!({}));
    for action in ["poll", "log", "kill", "wait"] {
        let strange = process(&bench, 8, action, &id);
        assert_eq!(strange["status"], "not_found", "{action}: {strange}");
    }
    assert_eq!(process(&bench, 8, "list", "")["processes"], json!([]));
    eventually("printed", || {
        process(&bench, 7, "poll", &id)["output_preview"].as_str().is_some_and(|it| it.contains("dm:7"))
    });
    assert_eq!(process(&bench, 7, "kill", &id)["status"], "killed");
}

#[test]
fn who_is_idle_hears_of_the_end_within_a_second() {
    let bench = bench();
    let flag = bench.home.path().join("go");
    let (id, started) = start(&bench, 7, &until(&flag), json!({"notify_on_complete": true}));
    assert_eq!((&started["notify_on_complete"], started.get("notify_unsupported")), (&json!(true), None));
    bench.settle();
    std::fs::write(&flag, "").expect("a flag");
    let ended = Instant::now();
    let told = wait_told(&bench, &id, 1);
    assert_took_at_most(Duration::from_secs(1), ended);
    assert!(told[0].contains("completed normally (exit code 0)") && told[0].contains("is there"), "{told:?}");
    bench.settle();
    assert_eq!(told_in(&bench, &id), 1);
}

#[test]
fn who_is_busy_hears_of_the_end_after_the_turn_and_apart_from_what_people_say() {
    let bench = bench();
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    bench.model.respond(move |request| {
        let answer = obey(request);
        if said(&request.last_user) == "think" { answer.gate(Point::Before, &held) } else { answer }
    });
    let flag = bench.home.path().join("go");
    let (id, _) = start(&bench, 7, &until(&flag), json!({"notify_on_complete": true}));
    bench.telegram.push_text(7, 7, "think");
    assert!(gate.wait(SOON), "the model was never asked");
    std::fs::write(&flag, "").expect("a flag");
    eventually("accepted", || bench.status()["inbox"]["queued"] == 1);
    bench.telegram.push_text(7, 7, "and this");
    eventually("accepted", || bench.status()["inbox"]["queued"] == 2);
    gate.open();
    let texts = bench.wait_messages(7, 4);
    bench.settle();
    assert_eq!((texts[1].as_str(), texts[3].as_str()), ("heard: think", "heard: and this"), "{texts:?}");
    assert_eq!(told(&bench, &id).len(), 1);
}

#[test]
fn a_pattern_that_matches_all_the_time_is_told_once_in_a_while() {
    let bench = bench();
    let command = "for i in 1 2 3 4 5 6 7 8 9 10; do echo READY $i; sleep 0.1; done";
    let (id, started) = start(&bench, 7, command, json!({"watch_patterns": ["READY"]}));
    assert_eq!(started["watch_patterns"], json!(["READY"]));
    let told_first = wait_told(&bench, &id, 1);
    assert!(told_first[0].contains("matched watch pattern \"READY\""), "{told_first:?}");
    eventually("ended", || process(&bench, 7, "poll", &id)["status"] == "exited");
    bench.settle();
    assert_eq!(told_in(&bench, &id), 1, "{:?}", told(&bench, &id));
    let both = json!({"watch_patterns": ["x"], "notify_on_complete": true});
    let (_, started) = start(&bench, 7, "true", both);
    assert!(started["watch_patterns_ignored"].is_string(), "{started}");
}

#[test]
fn who_is_idle_hears_of_a_watched_line_within_five_seconds() {
    let bench = bench();
    let flag = bench.home.path().join("go");
    let command = format!("{}; echo READY; sleep 60", wait_for_file(&flag));
    let (id, _) = start(&bench, 7, &command, json!({"watch_patterns": ["READY"]}));
    bench.settle();
    std::fs::write(&flag, "").expect("a flag");
    let printed = Instant::now();
    let told = wait_told(&bench, &id, 1);
    assert_took_at_most(Duration::from_secs(5), printed);
    assert!(told[0].contains("Matched output:\nREADY"), "{told:?}");
    assert_eq!(process(&bench, 7, "kill", &id)["status"], "killed");
}

#[test]
fn a_new_message_ends_a_command_that_runs_and_is_answered_at_once() {
    let mut bench = Bench::with(&CONFIG.replace("busy_input_mode: queue", "busy_input_mode: interrupt"));
    bench.model.respond(obey);
    bench.start();
    let running = || {
        let found = Command::new("pgrep").args(["-f", "^sleep 97.531$"]).output().expect("pgrep runs");
        !found.stdout.is_empty()
    };
    let flag = bench.home.path().join("go");
    let (id, _) = start(&bench, 7, &until(&flag), json!({"notify_on_complete": true}));
    bench.telegram.push_text(7, 7, format!("terminal {}", json!({"command": "sleep 97.531"})));
    eventually("it runs", running);
    // What the gateway itself has to say interrupts nobody.
    std::fs::write(&flag, "").expect("a flag");
    eventually("accepted", || bench.status()["inbox"]["queued"] == 1);
    assert!(running(), "interrupted by an end");
    let asked = Instant::now();
    bench.telegram.push_text(7, 7, "hello");
    eventually("answered", || bench.telegram.texts(7).iter().any(|text| text == "heard: hello"));
    assert_took_at_most(Duration::from_secs(3), asked);
    eventually("ended", || !running());
    bench.settle();
    assert_eq!(told_in(&bench, &id), 1, "{:?}", told(&bench, &id));
    let requests = bench.model.requests();
    let last = requests.iter().rfind(|it| said(&it.last_user) == "hello").expect("asked");
    let rows = last.messages();
    let calls = rows.iter().flat_map(|row| row["tool_calls"].as_array().into_iter().flatten()).count();
    let results = rows.iter().filter(|row| row["role"] == "tool").count();
    assert_eq!((calls, results), (2, 2), "{rows:?}");
    assert!(rows.windows(2).all(|pair| pair[0]["role"] != "user" || pair[1]["role"] != "user"), "{rows:?}");
}

#[test]
fn a_process_can_be_written_to_on_a_terminal_and_through_a_pipe() {
    let bench = bench();
    let command = "test -t 0 && echo a terminal; read line; echo \"got $line\"";
    let (id, _) = start(&bench, 7, command, json!({"pty": true}));
    let sent = call(&bench, 7, "process", json!({"action": "submit", "session_id": id, "data": "tea"}));
    assert_eq!(sent["status"], "ok", "{sent}");
    let ended = process(&bench, 7, "wait", &id);
    let output = ended["output"].as_str().expect("a text");
    assert!(output.contains("a terminal") && output.contains("got tea"), "{ended}");
    assert_eq!(ended["exit_code"], 0);

    let (id, _) = start(&bench, 7, "cat", json!({}));
    let sent = call(&bench, 7, "process", json!({"action": "write", "session_id": id, "data": "milk\n"}));
    assert_eq!(sent["status"], "ok", "{sent}");
    assert_eq!(process(&bench, 7, "close", &id)["status"], "ok");
    let ended = process(&bench, 7, "wait", &id);
    assert_eq!((&ended["output"], &ended["exit_code"]), (&json!("milk"), &json!(0)), "{ended}");
}

#[test]
fn limits_of_time_and_output_hold() {
    let bench = bench();
    let asked = Instant::now();
    let late = call(&bench, 7, "terminal", json!({"command": "echo begun; sleep 77 & wait", "timeout": 1}));
    assert!(late["exit_code"] == 124 || late["status"] == "error", "{late}");
    let late = call(&bench, 7, "terminal", json!({"command": "echo begun; sleep 77", "timeout": 1}));
    assert_eq!(late["exit_code"], 124, "{late}");
    assert!(asked.elapsed() < Duration::from_secs(70), "{:?}", asked.elapsed());
    let none = Command::new("pgrep").args(["-f", "^sleep 77$"]).output().expect("pgrep runs");
    assert!(none.stdout.is_empty(), "it runs on");
    let refused = call(&bench, 7, "terminal", json!({"command": "touch never", "timeout": 601}));
    assert!(refused["error"].is_string() && refused.get("exit_code").is_none(), "{refused}");
    assert!(!bench.home.path().join("workspace/never").exists());
    let long = run(&bench, 7, "echo FIRST; seq 40000; echo LAST");
    let output = long["output"].as_str().expect("a text");
    assert!(
        output.len() <= 50_000 && output.starts_with("FIRST") && output.ends_with("LAST"),
        "{}",
        output.len()
    );
}

#[test]
fn what_ends_while_the_gateway_is_down_is_told_once_with_its_code_or_as_lost() {
    let mut bench = bench();
    let flag = bench.home.path().join("go");
    let notify = || json!({"notify_on_complete": true});
    let (ended, _) = start(&bench, 7, &format!("{}; exit 5", until(&flag)), notify());
    let (lost, started) = start(&bench, 8, "sleep 61", notify());
    bench.settle();
    bench.kill();
    std::fs::write(&flag, "").expect("a flag");
    // Not a word can be left behind: the whole group goes.
    let group = format!("-{}", started["pid"]);
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().expect("kill runs").success());
    let left = bench.home.path().join(format!("terminal/output/{ended}.exit"));
    eventually("ended", || left.exists());
    bench.start();
    let told_ended = wait_told(&bench, &ended, 1);
    let told_lost = wait_told(&bench, &lost, 1);
    assert!(
        told_ended[0].contains("exited (exit code 5)") && told_ended[0].contains("is there"),
        "{told_ended:?}"
    );
    assert!(
        told_lost[0].contains("marked lost because") && told_lost[0].contains("exit code unknown"),
        "{told_lost:?}"
    );
    bench.settle();
    bench.kill();
    bench.start();
    bench.telegram.push_text(7, 7, "hello");
    eventually("answered", || bench.telegram.texts(7).last().is_some_and(|text| text == "heard: hello"));
    assert_eq!((told_in(&bench, &ended), told_in(&bench, &lost)), (1, 1));
}

#[test]
fn a_stranger_that_got_the_number_of_a_process_is_left_alone() {
    let mut bench = bench();
    let (id, started) = start(&bench, 7, "sleep 61", json!({"notify_on_complete": true}));
    bench.settle();
    bench.kill();
    let group = format!("-{}", started["pid"]);
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().expect("kill runs").success());
    let mut stranger = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("a stranger");
    let store = rusqlite::Connection::open(bench.database()).expect("a store");
    let changed =
        store.execute("UPDATE processes SET pid = ?2 WHERE id = ?1", rusqlite::params![id, stranger.id()]);
    assert_eq!(changed.expect("changed"), 1);
    drop(store);
    bench.start();
    let told = wait_told(&bench, &id, 1);
    assert!(told[0].contains("marked lost because"), "{told:?}");
    let killed = process(&bench, 7, "kill", &id);
    assert_eq!(killed["status"], "already_exited", "{killed}");
    bench.terminate();
    assert!(stranger.try_wait().expect("a look").is_none(), "the stranger was ended");
    stranger.kill().expect("ended");
    stranger.wait().expect("gone");
}
