//! Command approvals through a whole gateway: asked once, answered once, and never run without one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::path::PathBuf;
use std::time::Duration;

use petasos_agent::TerminalConfig;
use petasos_approval::ReviewMode;
use petasos_core::Millis;
use petasos_core::access::{Tier, Tiers, parse_list};
use petasos_core::outbox::State;
use petasos_core::transcript::{EffectState, Role};
use petasos_fakes::model::{Answer, ChatRequest};
use petasos_gateway::clock;
use serde_json::{Value, json};
use support::{GatewayFixture, SOON, Setup, eventually, key, telegram, web};

const GROUP: i64 = -100;

fn fixture(change: impl FnOnce(&mut Setup)) -> GatewayFixture {
    GatewayFixture::answering(command_model, |setup| {
        setup.settings.terminal = Some(TerminalConfig { login: false, ..TerminalConfig::default() });
        let tier = |admins: &str| Tier {
            admins: parse_list(admins),
            commands: Some(parse_list("approve,deny,yolo")),
        };
        setup.settings.tiers.insert(telegram(), Tiers { dm: tier("7"), group: Tier::default() });
        change(setup);
    })
}

/// Model: `run: <command>` runs it (after `later `: in the background), several joined by ` also `, and echoes the results.
fn command_model(request: &ChatRequest) -> Answer {
    let messages = request.messages();
    let last = messages.last().cloned().unwrap_or_default();
    match (last["role"].as_str(), request.last_user.split_once("run: ")) {
        (Some("user"), Some((_, commands))) => {
            let calls = commands.split(" also ").map(|command| match command.strip_prefix("later ") {
                Some(command) => json!({ "command": command, "background": true }),
                None => json!({ "command": command }),
            });
            calls.fold(Answer::empty(), |answer, call| answer.and_tool("terminal", call))
        }
        (Some("tool"), _) => {
            let results = messages.iter().rev().take_while(|it| it["role"] == "tool");
            let mut texts: Vec<_> = results.filter_map(|it| it["content"].as_str()).map(shorten).collect();
            texts.reverse();
            Answer::text(format!("got {}", texts.join(" / ")))
        }
        _ => Answer::text(format!("echo: {}", request.last_user)),
    }
}

fn shorten(result: &str) -> String {
    let value: Value = serde_json::from_str(result).unwrap_or_default();
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    match value["error"].as_str() {
        Some(error) => format!("error {error}"),
        None => format!("exit {} {}[{}]", value["exit_code"], text("output"), text("approval")),
    }
}

/// A folder that the command may delete.
fn create_folder(fixture: &GatewayFixture, name: &str) -> PathBuf {
    let folder = fixture.home().join("workspace").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Waits for an approval request; returns its message id and button data.
#[track_caller]
fn expect_question(fixture: &GatewayFixture, chat: i64, about: &str) -> (i64, Vec<String>) {
    let found = fixture.telegram.wait_until(SOON, |fixture| {
        let waiting = |text: &str| text.contains("May I run") && text.contains(about);
        let message = fixture
            .messages(chat)
            .find(|message| waiting(&message.text) && message.reply_markup.is_some())?;
        Some((message.id, message.reply_markup.clone().unwrap_or_default()))
    });
    let (id, keyboard) = found.unwrap_or_else(|| panic!("never asked: {:?}", fixture.telegram.texts(chat)));
    let rows = keyboard["inline_keyboard"].as_array().cloned().unwrap_or_default();
    let keys = rows.iter().filter_map(Value::as_array).flatten();
    (id, keys.filter_map(|key| key["callback_data"].as_str().map(str::to_owned)).collect())
}

fn press(fixture: &GatewayFixture, chat: i64, question: &(i64, Vec<String>), choice: &str) {
    let data =
        question.1.iter().find(|data| data.starts_with(&format!("ea:{choice}:"))).expect("such a button");
    fixture.telegram.push_callback(chat, chat, question.0, data);
}

/// The number of questions that were ever asked.
fn question_count(fixture: &GatewayFixture, chat: i64) -> usize {
    fixture.read(|reader| reader.questions(&key(chat))).len()
}

#[test]
fn runs_harmless_commands_and_asks_about_others() {
    let fixture = fixture(|_| {});
    let gone = create_folder(&fixture, "x");
    fixture.telegram.push_text(7, 7, "run: echo free");
    fixture.expect_messages(7, &["got exit 0 free[]"]);
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = expect_question(&fixture, 7, "rm -rf ./x");
    assert!(gone.exists(), "not approved yet");
    press(&fixture, 7, &question, "once");
    fixture.expect_message(7, "got exit 0 [The user was asked and allowed it once.]");
    assert!(!gone.exists());
    fixture.wait_until_delivered();
    let shown =
        fixture.telegram.read(|fixture| fixture.messages(7).find(|it| it.id == question.0).cloned()).unwrap();
    assert!(shown.text.starts_with("✅ Allowed once.") && shown.reply_markup.is_none(), "{shown:?}");
    create_folder(&fixture, "x");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    expect_question(&fixture, 7, "rm -rf ./x");
    assert_eq!(question_count(&fixture, 7), 2);
}

#[test]
fn allows_the_workspace_but_not_the_home_around_it() {
    let fixture = fixture(|_| {});
    let workspace = create_folder(&fixture, "");
    std::os::unix::fs::symlink("../SOUL.md", workspace.join("soul")).unwrap();
    fixture.telegram.push_text(
        7,
        7,
        "run: echo x > began; mkdir -p a && cp began a/; sed -i s/x/y/ a/began; cat a/began",
    );
    fixture.expect_messages(7, &["got exit 0 y[]"]);
    for (chat, command) in [(8, "echo x > ../SOUL.md"), (9, "echo x > soul"), (10, "cd a && ln -s ../.. up")]
    {
        fixture.telegram.push_text(chat, chat, format!("run: {command}"));
        let question = expect_question(&fixture, chat, "");
        press(&fixture, chat, &question, "deny");
        fixture.expect_message(chat, "got error");
    }
    assert!(!fixture.home().join("SOUL.md").exists());
    assert_eq!(question_count(&fixture, 7), 0);
}

#[test]
fn asks_before_starting_a_shell_with_open_input() {
    let fixture = fixture(|_| {});
    fixture.telegram.push_text(7, 7, "run: later bash");
    let question = expect_question(&fixture, 7, "bash");
    press(&fixture, 7, &question, "deny");
    fixture.expect_message(7, "BLOCKED");
    assert!(fixture.read(|reader| reader.processes(Millis(0))).is_empty(), "nothing was started");
}

#[test]
fn denial_reaches_the_model_with_its_reason() {
    let fixture = fixture(|_| {});
    let kept = create_folder(&fixture, "x");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    expect_question(&fixture, 7, "rm -rf ./x");
    fixture.telegram.push_text(7, 7, "/deny use trash");
    fixture.expect_message(7, "did not consent");
    fixture.expect_message(7, "reason: use trash");
    assert!(kept.exists());
    fixture.expect_message(7, "🚫 Denied (use trash).");
    // A plain word is an answer only while a question is open.
    fixture.telegram.push_text(7, 7, "no");
    fixture.expect_message(7, "echo: no");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    expect_question(&fixture, 7, "rm -rf ./x");
    fixture.telegram.push_text(7, 7, "yes");
    fixture.expect_message(7, "allowed it once");
    assert!(!kept.exists());
}

#[test]
fn ignores_replies_written_before_the_question() {
    let fixture = fixture(|_| {});
    let kept = create_folder(&fixture, "x");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    expect_question(&fixture, 7, "rm -rf ./x");
    // Delayed by an outage: written before the question.
    let then = clock::now().before(Duration::from_secs(60)).0 / 1000;
    let ada = json!({"id": 7, "is_bot": false, "first_name": "Ada"});
    let chat = json!({"id": 7, "type": "private"});
    let late = json!({"message_id": 9001, "date": then, "text": "/approve", "from": ada, "chat": chat});
    fixture.telegram.push_update(json!({ "message": late }));
    fixture.expect_message(7, "Nothing is waiting for your answer");
    assert!(kept.exists());
    fixture.telegram.push_text(7, 7, "/approve");
    fixture.expect_message(7, "allowed it once");
    assert!(!kept.exists());
}

#[test]
fn approval_timeout_blocks_the_command() {
    let fixture = fixture(|setup| setup.settings.approvals.timeout = Duration::from_millis(300));
    let kept = create_folder(&fixture, "x");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    fixture.expect_message(7, "silence is not consent");
    fixture.expect_message(7, "⌛ No answer in time");
    assert!(kept.exists());
    fixture.telegram.push_text(7, 7, "/approve");
    fixture.expect_message(7, "Nothing is waiting for your answer");
    assert!(kept.exists());
}

#[test]
fn session_approval_asks_once_and_always_survives_restart() {
    let mut fixture = fixture(|_| {});
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = expect_question(&fixture, 7, "rm -rf");
    press(&fixture, 7, &question, "session");
    fixture.expect_message(7, "allowed it for this session");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./y");
    fixture.expect_message(7, "the user has allowed such commands");
    // Session approvals end with the session.
    fixture.telegram.push_text(7, 7, "/new");
    fixture.expect_message(7, "New session");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./z");
    expect_question(&fixture, 7, "./z");
    fixture.telegram.push_text(7, 7, "/approve always");
    fixture.expect_message(7, "allowed it from now on");
    fixture.restart();
    fixture.telegram.push_text(8, 8, "run: rm -rf ./w");
    fixture.expect_message(8, "the user has allowed such commands");
    assert_eq!((question_count(&fixture, 7), question_count(&fixture, 8)), (2, 0));
}

#[test]
fn group_guests_cannot_approve_lastingly() {
    for admins in [true, false] {
        let fixture = fixture(|setup| {
            if !admins {
                setup.settings.tiers.clear();
            }
        });
        let folder = create_folder(&fixture, "x");
        fixture.telegram.push_text(GROUP, 8, "run: rm -rf ./x");
        let question = expect_question(&fixture, GROUP, "rm -rf ./x");
        let refused = |count: usize| {
            let found = fixture.telegram.wait_until(SOON, |fixture| {
                let texts = fixture.texts(GROUP).join("\n");
                (texts.matches("Only an administrator").count() == count).then_some(())
            });
            assert!(found.is_some(), "{count}: {:?}", fixture.telegram.texts(GROUP));
        };
        fixture.telegram.push_text(GROUP, 8, "/approve always");
        refused(1);
        let choices: Vec<_> = question.1.iter().filter_map(|data| data.split(':').nth(1)).collect();
        assert_eq!(choices, ["once", "deny"], "buttons that its author may press");
        fixture.expect_message(GROUP, "An administrator can allow such commands for longer");
        // A client may press a button that was never shown.
        let always = question.1[0].replace(":once:", ":always:");
        fixture.telegram.push_callback(GROUP, 8, question.0, &always);
        refused(2);
        fixture.telegram.push_text(GROUP, 8, "/yolo");
        refused(3);
        assert!(folder.exists());
        fixture.telegram.push_text(GROUP, 8, "/approve");
        fixture.expect_message(GROUP, "allowed it once");
    }
}

#[test]
fn asks_about_commands_of_one_answer_in_order() {
    let fixture = fixture(|_| {});
    let folders = ["a", "b", "c"].map(|name| create_folder(&fixture, name));
    fixture.telegram.push_text(7, 7, "run: rm -rf ./a also git reset --hard also rm -rf ./c");
    expect_question(&fixture, 7, "rm -rf ./a");
    fixture.telegram.push_text(7, 7, "/approve");
    expect_question(&fixture, 7, "git reset --hard");
    assert!(!folders[0].exists() && folders[2].exists());
    fixture.telegram.push_text(7, 7, "/deny all");
    expect_question(&fixture, 7, "rm -rf ./c");
    fixture.telegram.push_text(7, 7, "/approve all session");
    fixture.expect_message(7, "got exit 0 [The user was asked and allowed it once.] / error BLOCKED");
    assert!(!folders[2].exists());
}

#[test]
fn never_asks_about_blocked_commands() {
    let fixture = fixture(|setup| {
        setup.settings.approvals.mode = ReviewMode::Off;
        setup.settings.approvals.deny = vec!["git push*".into()];
    });
    fixture.telegram.push_text(7, 7, "/yolo");
    fixture.expect_message(7, "I will not ask");
    for (command, why) in [
        ("rm -rf /", "hardline"),
        (&format!("kill -9 {}", std::process::id()), "hardline"),
        ("git push", "git push*"),
    ] {
        fixture.telegram.push_text(7, 7, format!("run: {command}"));
        fixture.expect_last_message(7, why);
    }
    assert_eq!(question_count(&fixture, 7), 0);
}

#[test]
fn yolo_applies_to_one_session_only() {
    let fixture = fixture(|_| {});
    let gone = create_folder(&fixture, "x");
    fixture.telegram.push_text(7, 7, "/yolo");
    fixture.expect_message(7, "I will not ask");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    fixture.expect_message(7, "approval requests are switched off in this session");
    assert!(!gone.exists());
    fixture.telegram.push_text(8, 8, "run: rm -rf ./y");
    expect_question(&fixture, 8, "./y");
    fixture.telegram.push_text(7, 7, "/yolo");
    fixture.expect_message(7, "I will ask again");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./z");
    expect_question(&fixture, 7, "./z");
}

#[test]
fn stop_ends_the_question_and_records_nothing_ran() {
    let fixture = fixture(|_| {});
    let kept = create_folder(&fixture, "x");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = expect_question(&fixture, 7, "rm -rf");
    fixture.telegram.push_text(7, 7, "/stop");
    fixture.expect_message(7, "Denied (the turn was stopped)");
    fixture.expect_message(7, "Stopped.");
    press(&fixture, 7, &question, "once");
    fixture.expect_message(7, "no longer open");
    assert!(kept.exists());
    let rows = tool_effects(&fixture, 7);
    assert_eq!(rows.len(), 1);
    assert!(rows[0].0 == Some(EffectState::Cancelled) && rows[0].1.contains("NOT RUN"), "{rows:?}");
}

fn tool_effects(fixture: &GatewayFixture, chat: i64) -> Vec<(Option<EffectState>, String)> {
    let rows = fixture.read(|reader| {
        let entry = reader.entry(&key(chat))?.expect("a session");
        reader.history(&entry.session_id, 1000)
    });
    let tools = rows.into_iter().map(|said| said.message).filter(|row| row.role == Role::Tool);
    tools.map(|row| (row.effect, row.content)).collect()
}

#[test]
fn crash_loses_the_question_with_notice_and_runs_nothing() {
    let mut fixture = fixture(|_| {});
    let kept = create_folder(&fixture, "x");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = expect_question(&fixture, 7, "rm -rf");
    fixture.wait_until_delivered();
    fixture.crash();
    // The button is pressed while the gateway is down.
    press(&fixture, 7, &question, "once");
    fixture.start();
    fixture.expect_message(7, "lost in a restart of the gateway. The command was not run.");
    fixture.expect_message(7, "got error NOT RUN");
    fixture.expect_message(7, "no longer open");
    assert!(kept.exists());
    let rows = tool_effects(&fixture, 7);
    assert_eq!(rows.len(), 1);
    assert!(rows[0].0 == Some(EffectState::Cancelled) && rows[0].1.contains("NOT RUN"), "{rows:?}");
    let shown =
        fixture.telegram.read(|fixture| fixture.messages(7).find(|it| it.id == question.0).cloned()).unwrap();
    assert!(shown.text.contains("lost") && shown.reply_markup.is_none(), "{shown:?}");
    assert_eq!(fixture.read(|reader| reader.all_open_questions()).len(), 0);
}

#[test]
fn owner_can_answer_by_id_from_another_channel() {
    let fixture = fixture(|_| {});
    let kept = create_folder(&fixture, "x");
    fixture.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = expect_question(&fixture, 7, "rm -rf");
    let name = question.1[0].rsplit(':').next().unwrap().to_owned();
    fixture.telegram.push_text(8, 8, format!("/approve {name}"));
    fixture.expect_message(8, "for another person");
    fixture.telegram.push_text(8, 8, "/approve");
    fixture.expect_message(8, "Nothing is waiting for your answer");
    assert!(kept.exists());
    fixture.send_web("page", &format!("/approve {name} session"));
    fixture.expect_message(7, "allowed it for this session");
    assert!(!kept.exists());
    fixture.expect_message(7, "✅ Allowed for this session.");
}

#[test]
fn denies_at_once_without_a_person_to_ask() {
    let fixture = fixture(|_| {});
    let kept = create_folder(&fixture, "x");
    let mut inbound = web("caller", "run: rm -rf ./x");
    inbound.source.platform = petasos_core::Platform::parse("api_server").unwrap();
    let key = fixture.submit(inbound).unwrap();
    let told = eventually("answered", || {
        fixture.read(|reader| {
            let Some(entry) = reader.entry(&key)? else { return Ok(None) };
            let rows = reader.history(&entry.session_id, 100)?;
            Ok(rows
                .last()
                .filter(|row| row.message.role == Role::Assistant && row.message.tool_calls.is_empty())
                .map(|row| row.message.content.clone()))
        })
    });
    assert!(told.contains("this channel cannot ask anyone"), "{told}");
    assert!(kept.exists());
    assert_eq!(fixture.read(|reader| reader.questions(&key)).len(), 0);
}

#[test]
fn page_shows_a_question_and_answers_with_a_button() {
    let fixture = fixture(|_| {});
    let gone = create_folder(&fixture, "x");
    let key = fixture.send_web("page", "run: rm -rf ./x");
    let handle = fixture.handle().clone();
    let data = fixture.runtime.block_on(async {
        let mut view = handle.view(&key).await.unwrap();
        let waiting = tokio::time::timeout(SOON, view.wait_for(|view| !view.questions.is_empty())).await;
        waiting.expect("asked").unwrap().questions[0].buttons[0].data.clone()
    });
    assert!(gone.exists());
    fixture.send_web("page", &data);
    let told = eventually("answered", || {
        let rows = fixture.read(|reader| {
            let entry = reader.entry(&key)?.expect("a session");
            reader.rows_after(&entry.session_id, petasos_core::ids::RowId(0), 100)
        });
        let texts: Vec<_> = rows.into_iter().map(|row| (row.message.role, row.message.content)).collect();
        texts.iter().any(|(_, text)| text.contains("allowed it once")).then_some(texts)
    });
    assert!(!gone.exists());
    let notices: Vec<_> =
        told.iter().filter(|(role, _)| *role == Role::Notice).map(|(_, text)| text).collect();
    assert_eq!(notices.len(), 2, "{notices:?}");
    assert!(notices[0].contains("May I run") && notices[1].starts_with("✅ Allowed once."), "{notices:?}");
    let view = fixture.runtime.block_on(handle.view(&key)).unwrap();
    assert!(view.borrow().questions.is_empty());
}

#[test]
fn asks_a_person_unless_the_second_model_approves() {
    let fixture = fixture(|setup| {
        setup.settings.approvals.mode = ReviewMode::Smart;
        // Administrators are offered every choice.
        let tiers = setup.settings.tiers.get_mut(&telegram()).unwrap();
        tiers.dm.admins = parse_list("2,3,4");
    });
    fixture.model.respond(|request| match request.body()["messages"][0]["content"].as_str() {
        Some(system) if system.contains("You judge shell commands") => {
            let said = request.last_user.as_str();
            match () {
                () if said.contains("./fine") => Answer::text("APPROVE"),
                () if said.contains("./bad") => Answer::text("DENY"),
                () if said.contains("./broken") => Answer::status(400, "broken"),
                () => Answer::text("APPROVE this at once, it is fine"),
            }
        }
        _ => command_model(request),
    });
    fixture.telegram.push_text(1, 1, "run: rm -rf ./fine");
    fixture.expect_message(1, "A second model saw no danger");
    for (chat, name) in [(2, "./bad"), (3, "./broken"), (4, "./odd")] {
        fixture.telegram.push_text(chat, chat, format!("run: rm -rf {name}"));
        let question = expect_question(&fixture, chat, name);
        let offered = question.1.len();
        assert_eq!(offered, if name == "./bad" { 2 } else { 4 }, "{name}");
    }
    fixture.expect_message(2, "advises against it");
}

#[test]
fn bare_yes_counts_only_after_the_whole_question() {
    let fixture = fixture(|_| {});
    let kept = create_folder(&fixture, "x");
    let words: Vec<String> = (0..900).map(|at| format!("w{at}")).collect();
    let command = format!("echo {} >/dev/null; rm -rf ./x", words.join(" "));
    fixture.telegram.on("sendMessage").nth(2).does(petasos_fakes::telegram::Fault::Hang);
    fixture.telegram.push_text(7, 7, format!("run: {command}"));
    let begun = fixture.telegram.wait_until(SOON, |fixture| {
        fixture.messages(7).any(|it| it.text.contains("May I run")).then_some(())
    });
    assert!(begun.is_some(), "never asked");
    fixture.telegram.push_text(7, 7, "yes");
    fixture.telegram.push_text(7, 7, "/approve");
    // The reply waits behind the part that hangs.
    eventually("refused", || {
        let due = fixture.read(|reader| reader.items_in(State::Due, 10));
        due.iter().any(|item| item.draft.text.contains("Nothing is waiting for your answer")).then_some(())
    });
    assert!(kept.exists(), "the end of the command was not shown");
}
