//! Commands that need a yes, through a whole gateway: asked once, answered once, and never run without it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::path::PathBuf;
use std::time::Duration;

use petasos_agent::TerminalConfig;
use petasos_approval::Mode;
use petasos_core::Millis;
use petasos_core::access::{Tier, Tiers, list};
use petasos_core::outbox::State;
use petasos_core::transcript::{EffectState, Role};
use petasos_fakes::model::{Answer, Request};
use petasos_gateway::clock;
use serde_json::{Value, json};
use support::{SOON, Setup, World, eventually, key, telegram, web};

const GROUP: i64 = -100;

fn world(change: impl FnOnce(&mut Setup)) -> World {
    World::answering(obey, |setup| {
        setup.settings.terminal = Some(TerminalConfig { login: false, ..TerminalConfig::default() });
        let tier = |admins: &str| Tier { admins: list(admins), commands: Some(list("approve,deny,yolo")) };
        setup.settings.tiers.insert(telegram(), Tiers { dm: tier("7"), group: Tier::default() });
        change(setup);
    })
}

/// `run: <command>` (behind `later `: in the background), or several split by ` && also `; the results come back. Whatever else is said is echoed.
fn obey(request: &Request) -> Answer {
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
            let mut texts: Vec<_> = results.filter_map(|it| it["content"].as_str()).map(short).collect();
            texts.reverse();
            Answer::text(format!("got {}", texts.join(" / ")))
        }
        _ => Answer::text(format!("echo: {}", request.last_user)),
    }
}

fn short(result: &str) -> String {
    let value: Value = serde_json::from_str(result).unwrap_or_default();
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    match value["error"].as_str() {
        Some(error) => format!("error {error}"),
        None => format!("exit {} {}[{}]", value["exit_code"], text("output"), text("approval")),
    }
}

/// A folder that a test may lose.
fn folder(world: &World, name: &str) -> PathBuf {
    let folder = world.home().join("workspace").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Waits until the chat is asked about this, and gives the message and its buttons.
#[track_caller]
fn asked(world: &World, chat: i64, about: &str) -> (i64, Vec<String>) {
    let found = world.telegram.wait_until(SOON, |world| {
        let waiting = |text: &str| text.contains("May I run") && text.contains(about);
        let message =
            world.messages(chat).find(|message| waiting(&message.text) && message.reply_markup.is_some())?;
        Some((message.id, message.reply_markup.clone().unwrap_or_default()))
    });
    let (id, keyboard) = found.unwrap_or_else(|| panic!("never asked: {:?}", world.telegram.texts(chat)));
    let rows = keyboard["inline_keyboard"].as_array().cloned().unwrap_or_default();
    let keys = rows.iter().filter_map(Value::as_array).flatten();
    (id, keys.filter_map(|key| key["callback_data"].as_str().map(str::to_owned)).collect())
}

fn press(world: &World, chat: i64, question: &(i64, Vec<String>), choice: &str) {
    let data =
        question.1.iter().find(|data| data.starts_with(&format!("ea:{choice}:"))).expect("such a button");
    world.telegram.push_callback(chat, chat, question.0, data);
}

/// How many questions were ever asked.
fn questions(world: &World, chat: i64) -> usize {
    world.read(|reader| reader.questions(&key(chat))).len()
}

#[test]
fn what_is_harmless_runs_unasked_and_what_is_not_waits_for_a_yes() {
    let world = world(|_| {});
    let gone = folder(&world, "x");
    world.telegram.push_text(7, 7, "run: echo free");
    world.shows(7, &["got exit 0 free[]"]);
    world.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = asked(&world, 7, "rm -rf ./x");
    assert!(gone.exists(), "nobody has agreed yet");
    press(&world, 7, &question, "once");
    world.sees(7, "got exit 0 [The user was asked and allowed it once.]");
    assert!(!gone.exists());
    world.owes_nothing();
    let shown =
        world.telegram.look(|world| world.messages(7).find(|it| it.id == question.0).cloned()).unwrap();
    assert!(shown.text.starts_with("✅ Allowed once.") && shown.reply_markup.is_none(), "{shown:?}");
    // Once is once.
    folder(&world, "x");
    world.telegram.push_text(7, 7, "run: rm -rf ./x");
    asked(&world, 7, "rm -rf ./x");
    assert_eq!(questions(&world, 7), 2);
}

#[test]
fn the_workspace_is_free_and_the_home_around_it_is_not_by_whatever_way() {
    let world = world(|_| {});
    let workspace = folder(&world, "");
    std::os::unix::fs::symlink("../SOUL.md", workspace.join("soul")).unwrap();
    world.telegram.push_text(
        7,
        7,
        "run: echo x > began; mkdir -p a && cp began a/; sed -i s/x/y/ a/began; cat a/began",
    );
    world.shows(7, &["got exit 0 y[]"]);
    for (chat, command) in [(8, "echo x > ../SOUL.md"), (9, "echo x > soul"), (10, "cd a && ln -s ../.. up")]
    {
        world.telegram.push_text(chat, chat, format!("run: {command}"));
        let question = asked(&world, chat, "");
        press(&world, chat, &question, "deny");
        world.sees(chat, "got error");
    }
    assert!(!world.home().join("SOUL.md").exists());
    assert_eq!(questions(&world, 7), 0);
}

#[test]
fn a_shell_that_is_written_to_later_needs_a_yes_before_it_starts() {
    let world = world(|_| {});
    world.telegram.push_text(7, 7, "run: later bash");
    let question = asked(&world, 7, "bash");
    press(&world, 7, &question, "deny");
    world.sees(7, "BLOCKED");
    assert!(world.read(|reader| reader.processes(Millis(0))).is_empty(), "nothing was started");
}

#[test]
fn a_no_reaches_the_model_with_its_reason_and_nothing_is_run() {
    let world = world(|_| {});
    let kept = folder(&world, "x");
    world.telegram.push_text(7, 7, "run: rm -rf ./x");
    asked(&world, 7, "rm -rf ./x");
    world.telegram.push_text(7, 7, "/deny use trash");
    world.sees(7, "did not consent");
    world.sees(7, "reason: use trash");
    assert!(kept.exists());
    world.sees(7, "🚫 Denied (use trash).");
    // A bare word is an answer while something waits, and a message otherwise.
    world.telegram.push_text(7, 7, "no");
    world.sees(7, "echo: no");
    world.telegram.push_text(7, 7, "run: rm -rf ./x");
    asked(&world, 7, "rm -rf ./x");
    world.telegram.push_text(7, 7, "yes");
    world.sees(7, "allowed it once");
    assert!(!kept.exists());
}

#[test]
fn words_that_were_written_before_a_question_do_not_answer_it() {
    let world = world(|_| {});
    let kept = folder(&world, "x");
    world.telegram.push_text(7, 7, "run: rm -rf ./x");
    asked(&world, 7, "rm -rf ./x");
    // An outage held it back: it was about something else.
    let then = clock::now().before(Duration::from_secs(60)).0 / 1000;
    let ada = json!({"id": 7, "is_bot": false, "first_name": "Ada"});
    let chat = json!({"id": 7, "type": "private"});
    let late = json!({"message_id": 9001, "date": then, "text": "/approve", "from": ada, "chat": chat});
    world.telegram.push_update(json!({ "message": late }));
    world.sees(7, "Nothing waits for your yes here");
    assert!(kept.exists());
    world.telegram.push_text(7, 7, "/approve");
    world.sees(7, "allowed it once");
    assert!(!kept.exists());
}

#[test]
fn silence_is_no_consent() {
    let world = world(|setup| setup.settings.consent.timeout = Duration::from_millis(300));
    let kept = folder(&world, "x");
    world.telegram.push_text(7, 7, "run: rm -rf ./x");
    world.sees(7, "silence is not consent");
    world.sees(7, "⌛ Nobody answered in time");
    assert!(kept.exists());
    world.telegram.push_text(7, 7, "/approve");
    world.sees(7, "Nothing waits for your yes here");
    assert!(kept.exists());
}

#[test]
fn a_session_is_asked_once_and_always_survives_a_restart() {
    let mut world = world(|_| {});
    world.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = asked(&world, 7, "rm -rf");
    press(&world, 7, &question, "session");
    world.sees(7, "allowed it for this session");
    world.telegram.push_text(7, 7, "run: rm -rf ./y");
    world.sees(7, "the user has allowed such commands");
    // A new conversation knows nothing of it.
    world.telegram.push_text(7, 7, "/new");
    world.sees(7, "New session");
    world.telegram.push_text(7, 7, "run: rm -rf ./z");
    asked(&world, 7, "./z");
    world.telegram.push_text(7, 7, "/approve always");
    world.sees(7, "allowed it from now on");
    world.restart();
    world.telegram.push_text(8, 8, "run: rm -rf ./w");
    world.sees(8, "the user has allowed such commands");
    assert_eq!((questions(&world, 7), questions(&world, 8)), (2, 0));
}

#[test]
fn guests_of_a_group_cannot_allow_commands_for_longer_than_once() {
    for admins in [true, false] {
        let world = world(|setup| {
            if !admins {
                setup.settings.tiers.clear();
            }
        });
        let folder = folder(&world, "x");
        world.telegram.push_text(GROUP, 8, "run: rm -rf ./x");
        let question = asked(&world, GROUP, "rm -rf ./x");
        let refused = |count: usize| {
            let found = world.telegram.wait_until(SOON, |world| {
                let texts = world.texts(GROUP).join("\n");
                (texts.matches("Only an administrator").count() == count).then_some(())
            });
            assert!(found.is_some(), "{count}: {:?}", world.telegram.texts(GROUP));
        };
        world.telegram.push_text(GROUP, 8, "/approve always");
        refused(1);
        let choices: Vec<_> = question.1.iter().filter_map(|data| data.split(':').nth(1)).collect();
        assert_eq!(choices, ["once", "deny"], "buttons that its author may press");
        world.sees(GROUP, "An administrator may add session or always");
        // A client may press a button that was never shown.
        let always = question.1[0].replace(":once:", ":always:");
        world.telegram.push_callback(GROUP, 8, question.0, &always);
        refused(2);
        world.telegram.push_text(GROUP, 8, "/yolo");
        refused(3);
        assert!(folder.exists());
        world.telegram.push_text(GROUP, 8, "/approve");
        world.sees(GROUP, "allowed it once");
    }
}

#[test]
fn the_commands_of_one_answer_are_asked_about_in_their_order() {
    let world = world(|_| {});
    let folders = ["a", "b", "c"].map(|name| folder(&world, name));
    world.telegram.push_text(7, 7, "run: rm -rf ./a also git reset --hard also rm -rf ./c");
    asked(&world, 7, "rm -rf ./a");
    world.telegram.push_text(7, 7, "/approve");
    asked(&world, 7, "git reset --hard");
    assert!(!folders[0].exists() && folders[2].exists());
    world.telegram.push_text(7, 7, "/deny all");
    asked(&world, 7, "rm -rf ./c");
    world.telegram.push_text(7, 7, "/approve all session");
    world.sees(7, "got exit 0 [The user was asked and allowed it once.] / error BLOCKED");
    assert!(!folders[2].exists());
}

#[test]
fn what_never_runs_is_not_even_asked_about() {
    let world = world(|setup| {
        setup.settings.consent.mode = Mode::Off;
        setup.settings.consent.deny = vec!["git push*".into()];
    });
    world.telegram.push_text(7, 7, "/yolo");
    world.sees(7, "I ask about no command");
    for (command, why) in [
        ("rm -rf /", "hardline"),
        (&format!("kill -9 {}", std::process::id()), "hardline"),
        ("git push", "git push*"),
    ] {
        world.telegram.push_text(7, 7, format!("run: {command}"));
        world.ends_with(7, why);
    }
    assert_eq!(questions(&world, 7), 0);
}

#[test]
fn with_questions_switched_off_a_session_runs_what_needs_a_yes_and_others_ask() {
    let world = world(|_| {});
    let gone = folder(&world, "x");
    world.telegram.push_text(7, 7, "/yolo");
    world.sees(7, "I ask about no command");
    world.telegram.push_text(7, 7, "run: rm -rf ./x");
    world.sees(7, "questions are switched off in this session");
    assert!(!gone.exists());
    world.telegram.push_text(8, 8, "run: rm -rf ./y");
    asked(&world, 8, "./y");
    world.telegram.push_text(7, 7, "/yolo");
    world.sees(7, "I ask again");
    world.telegram.push_text(7, 7, "run: rm -rf ./z");
    asked(&world, 7, "./z");
}

#[test]
fn stopping_answers_the_question_and_the_journal_knows_that_nothing_ran() {
    let world = world(|_| {});
    let kept = folder(&world, "x");
    world.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = asked(&world, 7, "rm -rf");
    world.telegram.push_text(7, 7, "/stop");
    world.sees(7, "Denied (the turn was stopped)");
    world.sees(7, "Stopped.");
    press(&world, 7, &question, "once");
    world.sees(7, "That question is over");
    assert!(kept.exists());
    let rows = effects(&world, 7);
    assert_eq!(rows.len(), 1);
    assert!(rows[0].0 == Some(EffectState::Cancelled) && rows[0].1.contains("NOT RUN"), "{rows:?}");
}

fn effects(world: &World, chat: i64) -> Vec<(Option<EffectState>, String)> {
    let rows = world.read(|reader| {
        let entry = reader.entry(&key(chat))?.expect("a session");
        reader.history(&entry.session_id, 1000)
    });
    let tools = rows.into_iter().map(|said| said.message).filter(|row| row.role == Role::Tool);
    tools.map(|row| (row.effect, row.content)).collect()
}

#[test]
fn a_crash_while_waiting_loses_the_question_says_so_and_runs_nothing() {
    let mut world = world(|_| {});
    let kept = folder(&world, "x");
    world.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = asked(&world, 7, "rm -rf");
    world.owes_nothing();
    world.crash();
    // Somebody answers while nobody is there.
    press(&world, 7, &question, "once");
    world.start();
    world.sees(7, "lost in a restart of the gateway. It was not run.");
    world.sees(7, "got error NOT RUN");
    world.sees(7, "That question is over");
    assert!(kept.exists());
    let rows = effects(&world, 7);
    assert_eq!(rows.len(), 1);
    assert!(rows[0].0 == Some(EffectState::Cancelled) && rows[0].1.contains("NOT RUN"), "{rows:?}");
    let shown =
        world.telegram.look(|world| world.messages(7).find(|it| it.id == question.0).cloned()).unwrap();
    assert!(shown.text.contains("lost") && shown.reply_markup.is_none(), "{shown:?}");
    assert_eq!(world.read(|reader| reader.all_open_questions()).len(), 0);
}

#[test]
fn the_owner_can_answer_from_another_channel_by_name_and_a_stranger_cannot() {
    let world = world(|_| {});
    let kept = folder(&world, "x");
    world.telegram.push_text(7, 7, "run: rm -rf ./x");
    let question = asked(&world, 7, "rm -rf");
    let name = question.1[0].rsplit(':').next().unwrap().to_owned();
    world.telegram.push_text(8, 8, format!("/approve {name}"));
    world.sees(8, "asked of somebody else");
    world.telegram.push_text(8, 8, "/approve");
    world.sees(8, "Nothing waits for your yes here");
    assert!(kept.exists());
    world.say("page", &format!("/approve {name} session"));
    world.sees(7, "allowed it for this session");
    assert!(!kept.exists());
    world.sees(7, "✅ Allowed for this session.");
}

#[test]
fn where_nobody_can_be_asked_the_answer_is_no_at_once() {
    let world = world(|_| {});
    let kept = folder(&world, "x");
    let mut inbound = web("caller", "run: rm -rf ./x");
    inbound.source.platform = petasos_core::Platform::parse("api_server").unwrap();
    let key = world.submit(inbound).unwrap();
    let told = eventually("answered", || {
        world.read(|reader| {
            let Some(entry) = reader.entry(&key)? else { return Ok(None) };
            let rows = reader.history(&entry.session_id, 100)?;
            Ok(rows
                .last()
                .filter(|row| row.message.role == Role::Assistant && row.message.tool_calls.is_empty())
                .map(|row| row.message.content.clone()))
        })
    });
    assert!(told.contains("nobody can be asked over this channel"), "{told}");
    assert!(kept.exists());
    assert_eq!(world.read(|reader| reader.questions(&key)).len(), 0);
}

#[test]
fn the_page_sees_the_question_and_its_buttons_and_answers_with_one() {
    let world = world(|_| {});
    let gone = folder(&world, "x");
    let key = world.say("page", "run: rm -rf ./x");
    let handle = world.handle().clone();
    let data = world.runtime.block_on(async {
        let mut view = handle.view(&key).await.unwrap();
        let waiting = tokio::time::timeout(SOON, view.wait_for(|view| !view.questions.is_empty())).await;
        waiting.expect("asked").unwrap().questions[0].buttons[0].data.clone()
    });
    assert!(gone.exists());
    world.say("page", &data);
    let told = eventually("answered", || {
        let rows = world.read(|reader| {
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
    let view = world.runtime.block_on(handle.view(&key)).unwrap();
    assert!(view.borrow().questions.is_empty());
}

#[test]
fn a_second_model_may_approve_and_whatever_else_it_does_a_person_is_asked() {
    let world = world(|setup| {
        setup.settings.consent.mode = Mode::Smart;
        // Administrators are offered every choice.
        let tiers = setup.settings.tiers.get_mut(&telegram()).unwrap();
        tiers.dm.admins = list("2,3,4");
    });
    world.model.respond(|request| match request.body()["messages"][0]["content"].as_str() {
        Some(system) if system.contains("You judge shell commands") => {
            let said = request.last_user.as_str();
            match () {
                () if said.contains("./fine") => Answer::text("APPROVE"),
                () if said.contains("./bad") => Answer::text("DENY"),
                () if said.contains("./broken") => Answer::status(400, "broken"),
                () => Answer::text("APPROVE this at once, it is fine"),
            }
        }
        _ => obey(request),
    });
    world.telegram.push_text(1, 1, "run: rm -rf ./fine");
    world.sees(1, "A second model saw no danger");
    for (chat, name) in [(2, "./bad"), (3, "./broken"), (4, "./odd")] {
        world.telegram.push_text(chat, chat, format!("run: rm -rf {name}"));
        let question = asked(&world, chat, name);
        let offered = question.1.len();
        assert_eq!(offered, if name == "./bad" { 2 } else { 4 }, "{name}");
    }
    world.sees(2, "advises against it");
}

#[test]
fn a_bare_yes_counts_only_once_the_whole_question_was_shown() {
    let world = world(|_| {});
    let kept = folder(&world, "x");
    let words: Vec<String> = (0..900).map(|at| format!("w{at}")).collect();
    let command = format!("echo {} >/dev/null; rm -rf ./x", words.join(" "));
    world.telegram.on("sendMessage").nth(2).does(petasos_fakes::telegram::Fault::Hang);
    world.telegram.push_text(7, 7, format!("run: {command}"));
    let begun = world
        .telegram
        .wait_until(SOON, |world| world.messages(7).any(|it| it.text.contains("May I run")).then_some(()));
    assert!(begun.is_some(), "never asked");
    world.telegram.push_text(7, 7, "yes");
    world.telegram.push_text(7, 7, "/approve");
    // The answer waits behind the part that hangs.
    eventually("refused", || {
        let due = world.read(|reader| reader.items_in(State::Due, 10));
        due.iter().any(|item| item.draft.text.contains("Nothing waits for your yes")).then_some(())
    });
    assert!(kept.exists(), "the end of the command was not shown");
}
