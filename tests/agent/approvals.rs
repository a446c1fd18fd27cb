//! Approval of commands: requested in the chat with buttons, and required across crashes.

use crate::support::{ProgramFixture, SOON, expect_failure, expect_json, expect_success};
use petasos_fakes::model::{Answer, ChatRequest};
use serde_json::{Value, json};

const CONFIG: &str = "terminal: {enabled: true, sandbox: 'off', login_shell: false}\n";

/// Calls the terminal for `run: <command>`, and echoes everything else.
fn scripted_answer(request: &ChatRequest) -> Answer {
    let body = request.body();
    let last = body["messages"].as_array().and_then(|all| all.last().cloned()).unwrap_or_default();
    match (last["role"].as_str(), request.last_user.split_once("run: ")) {
        (Some("user"), Some((_, command))) => Answer::tool("terminal", json!({ "command": command })),
        (Some("tool"), _) => Answer::text(format!("got {}", last["content"].as_str().unwrap_or_default())),
        _ => Answer::text(format!("echo: {}", request.last_user)),
    }
}

fn fixture() -> ProgramFixture {
    let fixture =
        ProgramFixture::with_config(&format!("{CONFIG}telegram: {{allow_admin_from: ['7', '8']}}\n"));
    fixture.model.respond(scripted_answer);
    fixture
}

/// Waits for the approval request with this text. Returns its message id and button values.
#[track_caller]
fn wait_approval_request(fixture: &ProgramFixture, chat: i64, about: &str) -> (i64, Vec<String>) {
    let found = fixture.telegram.wait_until(SOON, |state| {
        let is_request = |text: &str| text.contains("May I run") && text.contains(about);
        let message = state.messages(chat).find(|it| is_request(&it.text) && it.reply_markup.is_some())?;
        Some((message.id, message.reply_markup.clone().unwrap_or_default()))
    });
    let (id, keyboard) = found.unwrap_or_else(|| panic!("never asked: {:?}", fixture.telegram.texts(chat)));
    let rows = keyboard["inline_keyboard"].as_array().cloned().unwrap_or_default();
    let keys = rows.iter().filter_map(Value::as_array).flatten();
    (id, keys.filter_map(|key| key["callback_data"].as_str().map(str::to_owned)).collect())
}

fn press_button(fixture: &ProgramFixture, chat: i64, question: &(i64, Vec<String>), choice: &str) {
    let wanted = format!("ea:{choice}:");
    let data = question.1.iter().find(|data| data.starts_with(&wanted)).expect("such a button");
    fixture.telegram.push_callback(chat, chat, question.0, data);
}

#[track_caller]
fn wait_text(fixture: &ProgramFixture, chat: i64, want: &str) {
    let found = fixture.telegram.wait_until(SOON, |state| {
        state.messages(chat).any(|message| message.text.contains(want)).then_some(())
    });
    assert!(found.is_some(), "{want:?} never came: {:?}", fixture.telegram.texts(chat));
}

#[test]
fn kill_cancels_open_approval_and_keeps_permanent_approval() {
    let mut fixture = fixture();
    fixture.start();
    let folder = fixture.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = wait_approval_request(&fixture, 7, "rm -rf ./x");
    // The message id is stored: after an unknown send outcome the first copy would keep its buttons.
    fixture.wait_outbox_empty();
    fixture.kill();
    press_button(&fixture, 7, &question, "once");
    fixture.start();
    wait_text(&fixture, 7, "lost in a restart of the gateway. The command was not run.");
    wait_text(&fixture, 7, "NOT RUN");
    wait_text(&fixture, 7, "no longer open");
    assert!(folder.exists(), "run without approval");
    let gone = fixture.telegram.wait_until(SOON, |state| {
        let mut shown = state.messages(7).filter(|it| it.id == question.0);
        shown.any(|it| it.reply_markup.is_none()).then_some(())
    });
    assert!(gone.is_some(), "its buttons stay");

    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    let again = wait_approval_request(&fixture, 7, "rm -rf ./x");
    press_button(&fixture, 7, &again, "always");
    wait_text(&fixture, 7, "allowed it from now on");
    assert!(!folder.exists());
    fixture.kill();
    std::fs::create_dir_all(&folder).expect("made");
    fixture.start();
    fixture.telegram.push_text(8, 8, "run: rm -rf ./x");
    wait_text(&fixture, 8, "the user has allowed such commands");
    assert!(!folder.exists());
}

#[test]
fn terminal_answers_approval_by_id() {
    let mut fixture = fixture();
    fixture.start();
    let folder = fixture.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = wait_approval_request(&fixture, 7, "rm -rf ./x");
    let name = question.1[0].rsplit(':').next().expect("a name").to_owned();
    let said = fixture.run(&["chat", &format!("/approve {name}")]);
    assert!(crate::support::stdout(&said).contains("Allowed once"), "{said:?}");
    wait_text(&fixture, 7, "allowed it once");
    assert!(!folder.exists());
}

/// The button values of a message; platforms nest them differently.
fn button_values(value: &Value, name: &str) -> Vec<String> {
    match value {
        Value::Array(all) => all.iter().flat_map(|it| button_values(it, name)).collect(),
        Value::Object(fields) => {
            let own = fields.get(name).and_then(Value::as_str).map(str::to_owned);
            own.into_iter().chain(fields.values().flat_map(|it| button_values(it, name))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![],
    }
}

fn button_value(choice: &str, keys: &[String]) -> String {
    let wanted = format!("ea:{choice}:");
    keys.iter().find(|data| data.starts_with(&wanted)).expect("such a button").clone()
}

#[test]
fn discord_button_answers_approval_and_is_removed() {
    const DIRECT: u64 = 50;
    const USER: u64 = 5;
    let mut fixture = ProgramFixture::builder().discord().with(CONFIG).build();
    fixture.model.respond(scripted_answer);
    fixture.start();
    let folder = fixture.home.path().join("workspace/x");
    for (choice, left, want) in
        [("deny", true, "BLOCKED: the user did not consent"), ("once", false, "allowed it once")]
    {
        std::fs::create_dir_all(&folder).expect("made");
        fixture.discord().push_text(DIRECT, USER, "run: rm -rf ./x");
        let question = fixture.discord().wait_until(SOON, |state| {
            let mut all = state.messages(DIRECT);
            all.find(|it| {
                it.content.contains("May I run") && !button_values(&it.components, "custom_id").is_empty()
            })
            .map(|it| (it.id, button_values(&it.components, "custom_id")))
        });
        let (id, keys) = question.expect("a question with buttons");
        assert!(folder.exists(), "run without approval");
        fixture.discord().push_button(DIRECT, USER, id, &button_value(choice, &keys));
        let gone = fixture.discord().wait_until(SOON, |state| {
            let shown = state.messages(DIRECT).find(|it| it.id == id)?;
            (shown.edits > 0 && button_values(&shown.components, "custom_id").is_empty()).then_some(())
        });
        assert!(gone.is_some(), "{choice}: {:?}", fixture.discord().visible(DIRECT));
        let told = fixture.discord().wait_until(SOON, |state| {
            state
                .texts(DIRECT)
                .iter()
                .any(|text| text.starts_with("got ") && text.contains(want))
                .then_some(())
        });
        assert!(told.is_some(), "{choice}: {:?}", fixture.discord().texts(DIRECT));
        assert_eq!(folder.exists(), left, "{choice}");
    }
}

#[test]
fn slack_button_answers_approval_and_is_removed() {
    let mut fixture = ProgramFixture::builder().slack().with(CONFIG).build();
    fixture.model.respond(scripted_answer);
    fixture.start();
    let folder = fixture.home.path().join("workspace/x");
    for (choice, left, want) in
        [("deny", true, "BLOCKED: the user did not consent"), ("once", false, "allowed it once")]
    {
        std::fs::create_dir_all(&folder).expect("made");
        fixture.slack().push_text("D1", "U5", "run: rm -rf ./x");
        let question = fixture.slack().wait_until(SOON, |state| {
            let keys =
                |blocks: &Option<Value>| button_values(blocks.as_ref().unwrap_or(&Value::Null), "value");
            let mut all = state.messages("D1");
            all.find(|it| !keys(&it.blocks).is_empty()).map(|it| (it.ts.clone(), keys(&it.blocks)))
        });
        let (ts, keys) = question.expect("a question with buttons");
        assert!(folder.exists(), "run without approval");
        fixture.slack().push_press("D1", "U5", &ts, &button_value(choice, &keys)).expect("a button");
        let gone = fixture.slack().wait_until(SOON, |state| {
            let shown = state.messages("D1").find(|it| it.ts == ts)?;
            let left = button_values(shown.blocks.as_ref().unwrap_or(&Value::Null), "value");
            (shown.edits > 0 && left.is_empty()).then_some(())
        });
        assert!(gone.is_some(), "{choice}: {:?}", fixture.slack().visible("D1"));
        let told = fixture.slack().wait_until(SOON, |state| {
            state.texts("D1").iter().any(|text| text.starts_with("got ") && text.contains(want)).then_some(())
        });
        assert!(told.is_some(), "{choice}: {:?}", fixture.slack().texts("D1"));
        assert_eq!(folder.exists(), left, "{choice}");
    }
}

#[test]
fn lists_and_revokes_approvals_with_and_without_gateway() {
    let mut fixture = fixture();
    fixture.start();
    let none = expect_success(&fixture.run(&["approvals"]));
    assert!(none.contains("No lasting approvals"), "{none}");
    let folder = fixture.home.path().join("x");
    let allow = |fixture: &ProgramFixture, chat: i64, choice: &str| {
        std::fs::create_dir_all(&folder).expect("made");
        fixture.telegram.push_text(chat, chat, "run: rm -rf ../x");
        let question = wait_approval_request(fixture, chat, "rm -rf ../x");
        press_button(fixture, chat, &question, choice);
        let gone = fixture.telegram.wait_until(SOON, |state| {
            let mut shown = state.messages(chat).filter(|it| it.id == question.0);
            shown.any(|it| it.reply_markup.is_none()).then_some(())
        });
        assert!(gone.is_some(), "its buttons stay");
    };
    allow(&fixture, 7, "session");
    allow(&fixture, 8, "always");
    let listed = expect_json(&fixture.run(&["approvals", "list", "--json"]));
    // The gateway's own files are next to the workspace, so a delete there has two kinds.
    let kinds = |listed: &Value| -> Vec<Value> {
        listed.as_array().expect("a list").iter().map(|it| it["kind"].clone()).collect()
    };
    assert_eq!(
        kinds(&listed),
        ["own_config", "recursive_delete", "own_config", "recursive_delete"],
        "{listed}"
    );
    assert!(listed[1]["session"].is_null() && listed[2]["session"].is_string(), "{listed}");
    let shown = expect_success(&fixture.run(&["approvals"]));
    assert!(shown.contains("everywhere") && shown.contains("Deletes folders"), "{shown}");

    let wrong = expect_failure(&fixture.run(&["approvals", "revoke", "recursive_delet"]), 1);
    assert!(wrong.contains("did you mean recursive_delete?"), "{wrong}");
    let revoked = expect_success(&fixture.run(&["approvals", "revoke", "recursive_delete"]));
    assert_eq!(revoked.trim(), "Revoked. recursive_delete needs approval again");
    assert_eq!(kinds(&expect_json(&fixture.run(&["approvals", "--json"]))), ["own_config", "own_config"]);
    // The revocation takes effect without a restart.
    allow(&fixture, 8, "always");
    fixture.wait_idle();
    fixture.terminate();
    let revoked = expect_success(&fixture.run(&["approvals", "revoke", "--all"]));
    assert!(revoked.contains("3 approvals were revoked"), "{revoked}");
    fixture.start();
    allow(&fixture, 8, "deny");
    assert!(folder.exists());
}

fn all_texts(fixture: &ProgramFixture, chat: i64) -> String {
    fixture.telegram.texts(chat).join("\n")
}

#[test]
fn shows_long_command_in_full_before_it_runs() {
    let mut fixture = fixture();
    fixture.start();
    let folder = fixture.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    let words: Vec<String> = (0..900).map(|at| format!("w{at}")).collect();
    let command = format!("echo {} >/dev/null; rm -rf ./x", words.join(" "));
    fixture.telegram.push_text(7, 7, format!("run: {command}"));
    // The last part has the buttons.
    let question = fixture.telegram.wait_until(SOON, |state| {
        let message = state.messages(7).find(|it| it.reply_markup.is_some())?;
        message.text.contains("rm -rf ./x").then_some(message.id)
    });
    let id = question.unwrap_or_else(|| panic!("the end is not shown: {:?}", fixture.telegram.texts(7)));
    let shown = all_texts(&fixture, 7);
    assert!(shown.contains("May I run"), "{shown}");
    for word in &words {
        assert!(shown.split_whitespace().any(|it| it == word), "{word} is not shown");
    }
    assert!(folder.exists(), "run without approval");
    let keyboard = fixture.telegram.read(|state| state.messages(7).find(|it| it.id == id).cloned());
    let keys = button_values(&keyboard.expect("shown").reply_markup.unwrap_or_default(), "callback_data");
    fixture.telegram.push_callback(7, 7, id, &button_value("once", &keys));
    wait_text(&fixture, 7, "allowed it once");
    assert!(!folder.exists());
}

#[test]
fn refuses_command_too_long_to_show() {
    let mut fixture = fixture();
    fixture.start();
    let folder = fixture.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    // The chat limits the message, so the model makes the command long.
    fixture.model.respond(|request: &ChatRequest| {
        let last =
            request.body()["messages"].as_array().and_then(|all| all.last().cloned()).unwrap_or_default();
        match last["role"].as_str() {
            Some("tool") => Answer::text(format!("got {}", last["content"].as_str().unwrap_or_default())),
            _user => Answer::tool(
                "terminal",
                json!({ "command": format!("echo {}; rm -rf ./x", "a".repeat(9_000)) }),
            ),
        }
    });
    fixture.telegram.push_text(7, 7, "go");
    wait_text(&fixture, 7, "too long to be shown in full");
    assert!(!all_texts(&fixture, 7).contains("May I run") && folder.exists());
}

#[test]
fn redaction_hides_only_secret_values_of_a_command() {
    let mut fixture = fixture();
    fixture.start();
    let secret = "aB3dE5fG7hI9jK1lM3nO5pQ7";
    fixture.telegram.push_text(
        7,
        7,
        format!("run: echo '-----BEGIN RSA PRIVATE KEY-----'; K=sk-{secret} rm -rf ./behind bearer\n# sk-of-a-path/x -----END RSA PRIVATE KEY-----"),
    );
    wait_approval_request(
        &fixture,
        7,
        "-----BEGIN RSA PRIVATE KEY-----'; K=sk-⟨secret value, 24 characters⟩ rm -rf ./behind bearer\n# sk-of-a-path/x",
    );
    assert!(!all_texts(&fixture, 7).contains(secret));
}

#[test]
fn approval_request_spells_out_invisible_characters() {
    let mut fixture = fixture();
    fixture.start();
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x\u{202e}y\u{200b}\u{1b}[2K # ```\r\n");
    wait_approval_request(&fixture, 7, "rm -rf ./x⟨U+202E⟩y⟨U+200B⟩⟨U+001B⟩[2K # ``⟨U+0060⟩");
}

#[test]
fn reviewing_model_reads_the_whole_command() {
    let mut fixture = ProgramFixture::with_config(&format!("{CONFIG}approvals: {{mode: smart}}\n"));
    fixture.model.respond(|request: &ChatRequest| {
        let system = request.body()["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
        if !system.starts_with("You judge shell commands") {
            return scripted_answer(request);
        }
        let whole = request.last_user.contains("rm -rf ./behind") && request.last_user.contains("w899 ");
        Answer::text(if whole { "DENY" } else { "APPROVE" })
    });
    fixture.start();
    let words: Vec<String> = (0..900).map(|at| format!("w{at}")).collect();
    let command = format!("echo -----BEGIN RSA PRIVATE KEY----- {} ; rm -rf ./behind", words.join(" "));
    fixture.telegram.push_text(7, 7, format!("run: {command}"));
    wait_text(&fixture, 7, "The second model advises against it.");
}

#[test]
fn only_administrator_grants_lasting_approval() {
    let more = "telegram:\n  allow_admin_from: ['1']\n  user_allowed_commands: [approve, deny]\n";
    let mut fixture = ProgramFixture::with_config(&format!("{CONFIG}{more}"));
    fixture.model.respond(scripted_answer);
    fixture.start();
    let folder = fixture.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = wait_approval_request(&fixture, 7, "rm -rf ./x");
    let refusals = |fixture: &ProgramFixture| all_texts(fixture, 7).matches("Only an administrator").count();
    for (at, attempt) in ["/approve always", "/approve all session", "always"].into_iter().enumerate() {
        fixture.telegram.push_text(7, 7, attempt);
        let refused = fixture.telegram.wait_until(SOON, |state| {
            (state.texts(7).join("\n").matches("Only an administrator").count() > at).then_some(())
        });
        assert!(refused.is_some(), "{attempt}: {:?}", fixture.telegram.texts(7));
    }
    let choices: Vec<_> = question.1.iter().filter_map(|data| data.split(':').nth(1)).collect();
    assert_eq!(choices, ["once", "deny"], "buttons that may be pressed");
    // A client can send a button value that was not offered.
    let always = question.1[0].replace(":once:", ":always:");
    fixture.telegram.push_callback(7, 7, question.0, &always);
    let refused = fixture.telegram.wait_until(SOON, |state| {
        (state.texts(7).join("\n").matches("Only an administrator").count() == 4).then_some(())
    });
    assert!(refused.is_some(), "{}", refusals(&fixture));
    assert!(folder.exists());
    press_button(&fixture, 7, &question, "once");
    wait_text(&fixture, 7, "allowed it once");
    let listed = expect_success(&fixture.run(&["approvals"]));
    assert!(listed.contains("No lasting approvals"), "{listed}");
}
