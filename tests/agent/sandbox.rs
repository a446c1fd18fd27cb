//! Commands of the agent in the sandbox of the real program, and the way out of it.

use std::path::PathBuf;

use petasos_fakes::model::{Answer, ChatRequest};
use serde_json::{Value, json};

use crate::support::{ProgramFixture, SOON, user_text};

const CONFIG: &str = "terminal: {enabled: true, login_shell: false}\ntelegram: {allow_admin_from: ['7']}\n";
const CANARY: &str = "canary-51c0";

/// Calls the terminal for `inside: <command>`, `outside: ...` and `background: ...`.
fn scripted_answer(request: &ChatRequest) -> Answer {
    if tool_result(request).is_some() {
        return Answer::text("done");
    }
    let call = |arguments: Value| Answer::tool("terminal", arguments);
    match user_text(&request.last_user).split_once(": ") {
        Some(("inside", command)) => call(json!({ "command": command })),
        Some(("outside", command)) => call(json!({ "command": command, "outside": true })),
        Some(("background", command)) => {
            call(json!({ "command": command, "background": true, "notify_on_complete": true }))
        }
        Some(_) | None => Answer::text("echo"),
    }
}

fn tool_result(request: &ChatRequest) -> Option<Value> {
    let last = request.messages().last().filter(|message| message["role"] == "tool")?.clone();
    serde_json::from_str(last["content"].as_str()?).ok()
}

struct Sandboxed {
    fixture: ProgramFixture,
    results: usize,
}

impl Sandboxed {
    fn start() -> Self {
        let mut fixture = ProgramFixture::with_config(CONFIG);
        fixture.model.respond(scripted_answer);
        std::fs::write(fixture.home.path().join("secret"), CANARY).expect("written");
        fixture.start();
        Self { fixture, results: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fixture.home.path().join(name)
    }

    /// The result of the command, as the model gets it.
    #[track_caller]
    fn run(&mut self, text: &str) -> Value {
        self.fixture.telegram.push_text(7, 7, text);
        self.result()
    }

    #[track_caller]
    fn result(&mut self) -> Value {
        let nth = self.results;
        self.results += 1;
        let found = self
            .fixture
            .model
            .wait_until(SOON, |state| state.requests().filter_map(|request| tool_result(request)).nth(nth));
        found.unwrap_or_else(|| panic!("no result: {:?}", self.fixture.telegram.texts(7)))
    }

    #[track_caller]
    fn answer(&self, choice: &str) {
        let found = self.fixture.telegram.wait_until(SOON, |state| {
            let message =
                state.messages(7).find(|it| it.text.contains("May I run") && it.reply_markup.is_some())?;
            Some((message.id, message.reply_markup.clone()?))
        });
        let (id, keyboard) =
            found.unwrap_or_else(|| panic!("never asked: {:?}", self.fixture.telegram.texts(7)));
        let rows = keyboard["inline_keyboard"].as_array().cloned().unwrap_or_default();
        let keys = rows.iter().filter_map(Value::as_array).flatten();
        let values = keys.filter_map(|key| key["callback_data"].as_str());
        let wanted = format!("ea:{choice}:");
        let data = values.into_iter().find(|data| data.starts_with(&wanted)).expect("such a button");
        self.fixture.telegram.push_callback(7, 7, id, data);
    }

    #[track_caller]
    fn assert_not_asked(&self) {
        let texts = self.fixture.telegram.texts(7);
        assert!(!texts.iter().any(|text| text.contains("May I run")), "{texts:?}");
    }
}

#[test]
fn commands_run_unasked_and_cannot_reach_the_gateway() {
    let mut it = Sandboxed::start();
    let secret = it.path("secret");
    let socket = it.path("petasos.sock");
    let worked = it.run("inside: mkdir deep && cd deep && export KEPT=kept && echo made >file && cat file");
    assert_eq!((&worked["output"], &worked["exit_code"]), (&json!("made"), &json!(0)), "{worked}");
    let again =
        it.run("inside: basename $PWD; echo $KEPT; cd; echo x >settings; rm -rf settings; echo $HOME");
    let output = again["output"].as_str().expect("a text");
    assert!(output.starts_with("deep\nkept\n") && output.contains("terminal/sessions"), "{again}");
    let refused = it.run(&format!("inside: cat {}", secret.display()));
    assert!(refused["output"].as_str().is_some_and(|text| text.contains("Permission denied")), "{refused}");
    assert!(refused["sandbox"].as_str().is_some_and(|text| text.contains("outside=true")), "{refused}");
    let script = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
    let refused = it.run(&format!("inside: /usr/bin/python3 -c '{script}' {}", socket.display()));
    assert!(refused["output"].as_str().is_some_and(|text| text.contains("not permitted")), "{refused}");
    let environment = it.run("inside: tr '\\0' '\\n' </proc/$PPID/environ; kill -9 $PPID; ls /proc; env");
    assert!(!environment.to_string().contains("TOKEN"), "{environment}");
    // Needs namespaces, which the gateway finds by a trial of its own program.
    let changed = it.run("inside: echo x >made && chmod 750 made && stat -c %a made");
    assert_eq!(changed["output"], json!("750"), "{changed}");
    it.assert_not_asked();
    assert!(it.path("workspace/deep/file").exists());
}

#[test]
fn command_leaves_the_sandbox_after_approval_only() {
    let mut it = Sandboxed::start();
    let secret = it.path("secret");
    it.fixture.telegram.push_text(7, 7, format!("outside: cat {}", secret.display()));
    it.answer("deny");
    let denied = it.result();
    assert!(!denied.to_string().contains(CANARY), "{denied}");
    it.fixture.telegram.push_text(7, 7, format!("outside: cat {} # again", secret.display()));
    it.answer("once");
    let allowed = it.result();
    assert_eq!(allowed["output"], json!(CANARY), "{allowed}");
}

#[test]
fn sandbox_cannot_plant_code_for_commands_outside() {
    let mut it = Sandboxed::start();
    let ran = it.path("ran");
    let script = format!(
        "inside: state=$(dirname $TMPDIR)/state; trap - EXIT; for f in env cwd; do echo 'touch {}' >$state/$f; done; \
         cp -r $state/env $(dirname $state)/env; echo planted",
        ran.display()
    );
    let planted = it.run(&script);
    assert!(planted["output"].as_str().is_some_and(|text| text.contains("planted")), "{planted}");
    it.fixture.telegram.push_text(7, 7, "outside: echo clean");
    it.answer("once");
    let clean = it.result();
    assert_eq!(clean["output"], json!("clean"), "{clean}");
    assert!(!ran.exists(), "code of the sandbox ran outside");
}

#[test]
fn sandboxed_process_survives_a_crash_and_is_adopted() {
    let mut it = Sandboxed::start();
    let go = it.path("workspace/go");
    let started = it.run("background: while [ ! -e go ]; do sleep 0.02; done; cat ../secret; echo finished");
    assert!(started["pid"].is_u64(), "{started}");
    it.fixture.kill();
    it.fixture.start();
    std::fs::write(&go, "").expect("written");
    let reported = it.fixture.model.wait_until(SOON, |state| {
        let mut reports = state.requests().filter(|request| request.last_user.contains("finished"));
        reports.next().map(|report| report.last_user.contains(CANARY))
    });
    assert_eq!(reported, Some(false), "the end is reported, without the secret");
}

#[test]
fn terminal_of_a_sandboxed_command_works() {
    let mut it = Sandboxed::start();
    let listed = it.run("inside: script -qec 'test -t 0 && echo terminal' /dev/null");
    assert!(listed["output"].as_str().is_some_and(|text| text.contains("terminal")), "{listed}");
}
