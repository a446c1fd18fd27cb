//! Commands that need a yes, with the real program: asked in the chat with buttons, never run without one, whatever
//! happens to the process.

use crate::support::{Bench, SOON, failed, fine, json};
use petasos_fakes::model::{Answer, Request};
use serde_json::{Value, json};

const CONFIG: &str = "terminal: {enabled: true, login_shell: false}\n";

/// `run: <command>` is run, and its result comes back; whatever else is said is echoed.
fn obey(request: &Request) -> Answer {
    let body = request.body();
    let last = body["messages"].as_array().and_then(|all| all.last().cloned()).unwrap_or_default();
    match (last["role"].as_str(), request.last_user.split_once("run: ")) {
        (Some("user"), Some((_, command))) => Answer::tool("terminal", json!({ "command": command })),
        (Some("tool"), _) => Answer::text(format!("got {}", last["content"].as_str().unwrap_or_default())),
        _ => Answer::text(format!("echo: {}", request.last_user)),
    }
}

fn bench() -> Bench {
    let bench = Bench::with(&format!("{CONFIG}telegram: {{allow_admin_from: ['7', '8']}}\n"));
    bench.model.respond(obey);
    bench
}

/// Waits for the question about this and gives its message and what its buttons carry.
#[track_caller]
fn asked(bench: &Bench, chat: i64, about: &str) -> (i64, Vec<String>) {
    let found = bench.telegram.wait_until(SOON, |world| {
        let waits = |text: &str| text.contains("May I run") && text.contains(about);
        let message = world.messages(chat).find(|it| waits(&it.text) && it.reply_markup.is_some())?;
        Some((message.id, message.reply_markup.clone().unwrap_or_default()))
    });
    let (id, keyboard) = found.unwrap_or_else(|| panic!("never asked: {:?}", bench.telegram.texts(chat)));
    let rows = keyboard["inline_keyboard"].as_array().cloned().unwrap_or_default();
    let keys = rows.iter().filter_map(Value::as_array).flatten();
    (id, keys.filter_map(|key| key["callback_data"].as_str().map(str::to_owned)).collect())
}

fn press(bench: &Bench, chat: i64, question: &(i64, Vec<String>), choice: &str) {
    let wanted = format!("ea:{choice}:");
    let data = question.1.iter().find(|data| data.starts_with(&wanted)).expect("such a button");
    bench.telegram.push_callback(chat, chat, question.0, data);
}

#[track_caller]
fn sees(bench: &Bench, chat: i64, want: &str) {
    let found = bench.telegram.wait_until(SOON, |world| {
        world.messages(chat).any(|message| message.text.contains(want)).then_some(())
    });
    assert!(found.is_some(), "{want:?} never came: {:?}", bench.telegram.texts(chat));
}

#[test]
fn a_kill_while_waiting_loses_the_question_and_runs_nothing_and_always_outlives_another() {
    let mut bench = bench();
    bench.start();
    let folder = bench.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    bench.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = asked(&bench, 7, "rm -rf ./x");
    // Its message is known by its number: a copy of unknown fate would keep its buttons.
    bench.settle_outbox();
    bench.kill();
    press(&bench, 7, &question, "once");
    bench.start();
    sees(&bench, 7, "lost in a restart of the gateway. It was not run.");
    sees(&bench, 7, "NOT RUN");
    sees(&bench, 7, "That question is over.");
    assert!(folder.exists(), "nobody agreed to this");
    let gone = bench.telegram.wait_until(SOON, |world| {
        let mut shown = world.messages(7).filter(|it| it.id == question.0);
        shown.any(|it| it.reply_markup.is_none()).then_some(())
    });
    assert!(gone.is_some(), "its buttons stay");

    bench.telegram.push_text(7, 7, "run: rm -rf ./x");
    let again = asked(&bench, 7, "rm -rf ./x");
    press(&bench, 7, &again, "always");
    sees(&bench, 7, "allowed it from now on");
    assert!(!folder.exists());
    bench.kill();
    std::fs::create_dir_all(&folder).expect("made");
    bench.start();
    bench.telegram.push_text(8, 8, "run: rm -rf ./x");
    sees(&bench, 8, "the user has allowed such commands");
    assert!(!folder.exists());
}

#[test]
fn a_question_can_be_answered_from_the_terminal_by_its_name() {
    let mut bench = bench();
    bench.start();
    let folder = bench.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    bench.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = asked(&bench, 7, "rm -rf ./x");
    let name = question.1[0].rsplit(':').next().expect("a name").to_owned();
    let said = bench.run(&["chat", &format!("/approve {name}")]);
    assert!(crate::support::stdout(&said).contains("Allowed once"), "{said:?}");
    sees(&bench, 7, "allowed it once");
    assert!(!folder.exists());
}

/// What the buttons of a message carry, however the platform packs them.
fn carried(value: &Value, name: &str) -> Vec<String> {
    match value {
        Value::Array(all) => all.iter().flat_map(|it| carried(it, name)).collect(),
        Value::Object(fields) => {
            let own = fields.get(name).and_then(Value::as_str).map(str::to_owned);
            own.into_iter().chain(fields.values().flat_map(|it| carried(it, name))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![],
    }
}

fn with(choice: &str, keys: &[String]) -> String {
    let wanted = format!("ea:{choice}:");
    keys.iter().find(|data| data.starts_with(&wanted)).expect("such a button").clone()
}

#[test]
fn on_discord_a_pressed_button_answers_and_the_buttons_go_with_the_question() {
    const DIRECT: u64 = 50;
    const SOMEBODY: u64 = 5;
    let mut bench = Bench::setup().discord().with(CONFIG).build();
    bench.model.respond(obey);
    bench.start();
    let folder = bench.home.path().join("workspace/x");
    for (choice, left, want) in
        [("deny", true, "BLOCKED: the user did not consent"), ("once", false, "allowed it once")]
    {
        std::fs::create_dir_all(&folder).expect("made");
        bench.discord().push_text(DIRECT, SOMEBODY, "run: rm -rf ./x");
        let question = bench.discord().wait_until(SOON, |world| {
            let mut all = world.messages(DIRECT);
            all.find(|it| {
                it.content.contains("May I run") && !carried(&it.components, "custom_id").is_empty()
            })
            .map(|it| (it.id, carried(&it.components, "custom_id")))
        });
        let (id, keys) = question.expect("a question with buttons");
        assert!(folder.exists(), "nobody agreed yet");
        bench.discord().push_button(DIRECT, SOMEBODY, id, &with(choice, &keys));
        let gone = bench.discord().wait_until(SOON, |world| {
            let shown = world.messages(DIRECT).find(|it| it.id == id)?;
            (shown.edits > 0 && carried(&shown.components, "custom_id").is_empty()).then_some(())
        });
        assert!(gone.is_some(), "{choice}: {:?}", bench.discord().visible(DIRECT));
        let told = bench.discord().wait_until(SOON, |world| {
            world
                .texts(DIRECT)
                .iter()
                .any(|text| text.starts_with("got ") && text.contains(want))
                .then_some(())
        });
        assert!(told.is_some(), "{choice}: {:?}", bench.discord().texts(DIRECT));
        assert_eq!(folder.exists(), left, "{choice}");
    }
}

#[test]
fn on_slack_a_pressed_button_answers_and_the_buttons_go_with_the_question() {
    let mut bench = Bench::setup().slack().with(CONFIG).build();
    bench.model.respond(obey);
    bench.start();
    let folder = bench.home.path().join("workspace/x");
    for (choice, left, want) in
        [("deny", true, "BLOCKED: the user did not consent"), ("once", false, "allowed it once")]
    {
        std::fs::create_dir_all(&folder).expect("made");
        bench.slack().push_text("D1", "U5", "run: rm -rf ./x");
        let question = bench.slack().wait_until(SOON, |world| {
            let keys = |blocks: &Option<Value>| carried(blocks.as_ref().unwrap_or(&Value::Null), "value");
            let mut all = world.messages("D1");
            all.find(|it| !keys(&it.blocks).is_empty()).map(|it| (it.ts.clone(), keys(&it.blocks)))
        });
        let (ts, keys) = question.expect("a question with buttons");
        assert!(folder.exists(), "nobody agreed yet");
        bench.slack().push_press("D1", "U5", &ts, &with(choice, &keys)).expect("a button");
        let gone = bench.slack().wait_until(SOON, |world| {
            let shown = world.messages("D1").find(|it| it.ts == ts)?;
            let left = carried(shown.blocks.as_ref().unwrap_or(&Value::Null), "value");
            (shown.edits > 0 && left.is_empty()).then_some(())
        });
        assert!(gone.is_some(), "{choice}: {:?}", bench.slack().visible("D1"));
        let told = bench.slack().wait_until(SOON, |world| {
            world.texts("D1").iter().any(|text| text.starts_with("got ") && text.contains(want)).then_some(())
        });
        assert!(told.is_some(), "{choice}: {:?}", bench.slack().texts("D1"));
        assert_eq!(folder.exists(), left, "{choice}");
    }
}

#[test]
fn what_was_allowed_for_good_is_listed_and_can_be_revoked_with_and_without_a_gateway() {
    let mut bench = bench();
    bench.start();
    let none = fine(&bench.run(&["approvals"]));
    assert!(none.contains("nothing runs unasked"), "{none}");
    let folder = bench.home.path().join("x");
    let allow = |bench: &Bench, chat: i64, choice: &str| {
        std::fs::create_dir_all(&folder).expect("made");
        bench.telegram.push_text(chat, chat, "run: rm -rf ../x");
        let question = asked(bench, chat, "rm -rf ../x");
        press(bench, chat, &question, choice);
        let gone = bench.telegram.wait_until(SOON, |world| {
            let mut shown = world.messages(chat).filter(|it| it.id == question.0);
            shown.any(|it| it.reply_markup.is_none()).then_some(())
        });
        assert!(gone.is_some(), "its buttons stay");
    };
    allow(&bench, 7, "session");
    allow(&bench, 8, "always");
    let listed = json(&bench.run(&["approvals", "list", "--json"]));
    // Beside the workspace lies what is the gateway's own, so a delete there is of two kinds.
    let kinds = |listed: &Value| -> Vec<Value> {
        listed.as_array().expect("a list").iter().map(|it| it["kind"].clone()).collect()
    };
    assert_eq!(
        kinds(&listed),
        ["own_config", "recursive_delete", "own_config", "recursive_delete"],
        "{listed}"
    );
    assert!(listed[1]["session"].is_null() && listed[2]["session"].is_string(), "{listed}");
    let shown = fine(&bench.run(&["approvals"]));
    assert!(shown.contains("everywhere") && shown.contains("Deletes folders"), "{shown}");

    let wrong = failed(&bench.run(&["approvals", "revoke", "recursive_delet"]), 1);
    assert!(wrong.contains("did you mean recursive_delete?"), "{wrong}");
    let revoked = fine(&bench.run(&["approvals", "revoke", "recursive_delete"]));
    assert_eq!(revoked.trim(), "recursive_delete is asked about again");
    assert_eq!(kinds(&json(&bench.run(&["approvals", "--json"]))), ["own_config", "own_config"]);
    // Whoever was allowed is asked again at once, without a restart.
    allow(&bench, 8, "always");
    bench.settle();
    bench.terminate();
    let revoked = fine(&bench.run(&["approvals", "revoke", "--all"]));
    assert!(revoked.contains("3 approvals were revoked"), "{revoked}");
    bench.start();
    allow(&bench, 8, "deny");
    assert!(folder.exists());
}

/// Everything that the chat shows, one message after the other.
fn all_texts(bench: &Bench, chat: i64) -> String {
    bench.telegram.texts(chat).join("\n")
}

#[test]
fn long_commands_are_shown_whole_before_they_run() {
    let mut bench = bench();
    bench.start();
    let folder = bench.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    let words: Vec<String> = (0..900).map(|at| format!("w{at}")).collect();
    let command = format!("echo {} >/dev/null; rm -rf ./x", words.join(" "));
    bench.telegram.push_text(7, 7, format!("run: {command}"));
    // The buttons stand below the last part, behind all of the command.
    let question = bench.telegram.wait_until(SOON, |world| {
        let message = world.messages(7).find(|it| it.reply_markup.is_some())?;
        message.text.contains("rm -rf ./x").then_some(message.id)
    });
    let id = question.unwrap_or_else(|| panic!("the end is not shown: {:?}", bench.telegram.texts(7)));
    let shown = all_texts(&bench, 7);
    assert!(shown.contains("May I run"), "{shown}");
    for word in &words {
        assert!(shown.split_whitespace().any(|it| it == word), "{word} is not shown");
    }
    assert!(folder.exists(), "nobody agreed yet");
    let keyboard = bench.telegram.look(|world| world.messages(7).find(|it| it.id == id).cloned());
    let keys = carried(&keyboard.expect("shown").reply_markup.unwrap_or_default(), "callback_data");
    bench.telegram.push_callback(7, 7, id, &with("once", &keys));
    sees(&bench, 7, "allowed it once");
    assert!(!folder.exists());
}

#[test]
fn commands_too_long_to_show_are_refused_without_a_question() {
    let mut bench = bench();
    bench.start();
    let folder = bench.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    // The message itself is limited by the chat, so the model makes the command long.
    bench.model.respond(|request: &Request| {
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
    bench.telegram.push_text(7, 7, "go");
    sees(&bench, 7, "too long to be shown to them whole");
    assert!(!all_texts(&bench, 7).contains("May I run") && folder.exists());
}

#[test]
fn redaction_hides_values_and_never_the_rest_of_a_command() {
    let mut bench = bench();
    bench.start();
    let secret = "aB3dE5fG7hI9jK1lM3nO5pQ7";
    bench.telegram.push_text(
        7,
        7,
        format!("run: echo '-----BEGIN RSA PRIVATE KEY-----'; K=sk-{secret} rm -rf ./behind bearer\n# sk-of-a-path/x -----END RSA PRIVATE KEY-----"),
    );
    asked(
        &bench,
        7,
        "-----BEGIN RSA PRIVATE KEY-----'; K=sk-⟨secret value, 24 characters⟩ rm -rf ./behind bearer\n# sk-of-a-path/x",
    );
    assert!(!all_texts(&bench, 7).contains(secret));
}

#[test]
fn invisible_characters_are_spelled_out_in_the_question() {
    let mut bench = bench();
    bench.start();
    bench.telegram.push_text(7, 7, "run: rm -rf ./x\u{202e}y\u{200b}\u{1b}[2K # ```\r\n");
    asked(&bench, 7, "rm -rf ./x⟨U+202E⟩y⟨U+200B⟩⟨U+001B⟩[2K # ``⟨U+0060⟩");
}

#[test]
fn the_reviewing_model_reads_the_whole_command() {
    let mut bench = Bench::with(&format!("{CONFIG}approvals: {{mode: smart}}\n"));
    bench.model.respond(|request: &Request| {
        let system = request.body()["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
        if !system.starts_with("You judge shell commands") {
            return obey(request);
        }
        let whole = request.last_user.contains("rm -rf ./behind") && request.last_user.contains("w899 ");
        Answer::text(if whole { "DENY" } else { "APPROVE" })
    });
    bench.start();
    let words: Vec<String> = (0..900).map(|at| format!("w{at}")).collect();
    let command = format!("echo -----BEGIN RSA PRIVATE KEY----- {} ; rm -rf ./behind", words.join(" "));
    bench.telegram.push_text(7, 7, format!("run: {command}"));
    sees(&bench, 7, "The second model advises against it.");
}

#[test]
fn only_an_administrator_allows_commands_for_longer() {
    let more = "telegram:\n  allow_admin_from: ['1']\n  user_allowed_commands: [approve, deny]\n";
    let mut bench = Bench::with(&format!("{CONFIG}{more}"));
    bench.model.respond(obey);
    bench.start();
    let folder = bench.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    bench.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = asked(&bench, 7, "rm -rf ./x");
    let refusals = |bench: &Bench| all_texts(bench, 7).matches("Only an administrator").count();
    for (at, attempt) in ["/approve always", "/approve all session", "always"].into_iter().enumerate() {
        bench.telegram.push_text(7, 7, attempt);
        let refused = bench.telegram.wait_until(SOON, |world| {
            (world.texts(7).join("\n").matches("Only an administrator").count() > at).then_some(())
        });
        assert!(refused.is_some(), "{attempt}: {:?}", bench.telegram.texts(7));
    }
    let choices: Vec<_> = question.1.iter().filter_map(|data| data.split(':').nth(1)).collect();
    assert_eq!(choices, ["once", "deny"], "buttons that may be pressed");
    // A client may press a button that was never shown.
    let always = question.1[0].replace(":once:", ":always:");
    bench.telegram.push_callback(7, 7, question.0, &always);
    let refused = bench.telegram.wait_until(SOON, |world| {
        (world.texts(7).join("\n").matches("Only an administrator").count() == 4).then_some(())
    });
    assert!(refused.is_some(), "{}", refusals(&bench));
    assert!(folder.exists());
    press(&bench, 7, &question, "once");
    sees(&bench, 7, "allowed it once");
    let listed = fine(&bench.run(&["approvals"]));
    assert!(listed.contains("nothing runs unasked"), "{listed}");
}
