//! Tools that the gateway carries out, asked for by a model in a real turn: everybody gets only what is theirs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod support;

use petasos_agent::memory::{Change, Memory, Shelf};
use petasos_core::person::Person;
use petasos_fakes::model::{Answer, Request};
use petasos_gateway::HomeChannel;
use serde_json::{Value, json};
use support::{World, eventually, telegram};

/// `call: <tool> <arguments>` calls it and answers with its result; whatever else is said comes back.
fn obey(request: &Request) -> Answer {
    let last = request.messages().last().cloned().unwrap_or_default();
    if last["role"] == "tool" {
        return Answer::text(format!("result: {}", last["content"].as_str().unwrap_or_default()));
    }
    let said = request.last_user.lines().last().unwrap_or_default();
    match said.strip_prefix("call: ").and_then(|call| call.split_once(' ')) {
        Some((tool, arguments)) => Answer::tool(tool, serde_json::from_str(arguments).unwrap_or_default()),
        None => Answer::text(format!("heard: {}", request.last_user)),
    }
}

fn world() -> World {
    World::answering(obey, |setup| {
        setup.lifetime.home_channels = vec![HomeChannel {
            platform: telegram(),
            chat_id: "90".into(),
            thread_id: None,
            name: "Home".into(),
        }];
    })
}

/// Has the agent of a chat call a tool, and gives what came back.
#[track_caller]
fn call(world: &World, chat: i64, tool: &str, arguments: &Value) -> String {
    let before = world.telegram.texts(chat).len();
    world.telegram.push_text(chat, chat, format!("call: {tool} {arguments}"));
    eventually("answered", || {
        let texts = world.telegram.texts(chat);
        let last = texts.last().filter(|text| texts.len() > before && text.contains("result: "));
        last.cloned()
    })
}

fn hear(world: &World, chat: i64, text: &str) {
    world.telegram.push_text(chat, chat, text);
    world.ends_with(chat, &format!("heard: {text}"));
}

#[test]
fn a_search_finds_what_this_person_said_and_nobody_else() {
    let world = world();
    hear(&world, 7, "my bicycle is green");
    hear(&world, 8, "my bicycle is secretly stolen");
    let found = call(&world, 7, "session_search", &json!({"query": "bicycle"}));
    assert!(found.contains("green") && !found.contains("stolen"), "{found}");
    let row = world.read(|reader| reader.search("stolen", None, 1))[0].row;
    let around = call(&world, 7, "session_search", &json!({"around": row}));
    assert!(around.contains("There is no row") && !around.contains("stolen"), "{around}");
    let own = call(&world, 8, "session_search", &json!({"around": row}));
    assert!(own.contains("stolen"), "{own}");
}

#[test]
fn a_list_of_things_to_do_is_kept_through_a_crash_and_merged() {
    let mut world = world();
    let item = |id: &str, status: &str| json!({"id": id, "content": format!("do {id}"), "status": status});
    call(&world, 7, "todo", &json!({"todos": [item("a", "pending"), item("b", "pending")]}));
    // An answer whose arrival is not known yet would be shown again after the crash, and taken for the next one.
    world.owes_nothing();
    world.crash();
    world.start();
    let merged = call(&world, 7, "todo", &json!({"merge": true, "todos": [item("a", "completed")]}));
    assert!(merged.contains("\"completed\":1") && merged.contains("\"pending\":1"), "{merged}");
    let other = call(&world, 8, "todo", &json!({}));
    assert!(other.contains("\"total\":0"), "{other}");
}

#[test]
fn what_is_remembered_is_told_to_new_conversations_of_that_person_only() {
    let world = world();
    let kept = call(&world, 7, "memory", &json!({"target": "user", "action": "add", "content": "likes tea"}));
    assert!(kept.contains("likes tea"), "{kept}");
    let system =
        |world: &World| world.model.requests().last().unwrap().body()["messages"][0]["content"].to_string();
    hear(&world, 7, "same conversation");
    assert!(!system(&world).contains("likes tea"), "the prompt of a conversation stays as it was");
    world.telegram.push_text(7, 7, "/new");
    hear(&world, 7, "a new one");
    assert!(system(&world).contains("likes tea"), "{}", system(&world));
    hear(&world, 8, "somebody else");
    assert!(!system(&world).contains("likes tea"));
    world.telegram.push_text(7, 7, "/memory");
    world.ends_with(7, "- likes tea");
    world.telegram.push_text(8, 8, "/memory");
    world.ends_with(8, "I remember nothing yet");
    world.telegram.push_text(7, 7, "/memory clear");
    world.ends_with(7, "Forgotten");
    let person = Person::named("telegram:7");
    assert_eq!(Memory::of(world.home(), &person).entries(Shelf::User).unwrap(), [""; 0]);
    let owner = Memory::of(world.home(), &Person::owner());
    owner.change(Shelf::User, &[Change::Add("the owner's".into())]).unwrap();
    assert!(!Memory::of(world.home(), &person).path(Shelf::User).exists());
}

#[test]
fn messages_go_only_where_the_owner_leads() {
    let world = world();
    let send = |to: &str| call(&world, 7, "send_message", &json!({"target": to, "message": "hello there"}));
    assert!(send("telegram:90").contains("delivered"));
    assert_eq!(world.telegram.texts(90), ["hello there"]);
    for (to, want) in [
        ("telegram:12345", "neither a home channel"),
        ("telegram:7", "just answer"),
        ("local", "is no chat"),
        ("discord", "no home channel"),
        ("telegram:90, telegram:12345", "neither a home channel"),
    ] {
        let refused = send(to);
        assert!(refused.contains(want), "{to}: {refused}");
    }
    assert_eq!(world.telegram.texts(12345), [""; 0]);
    assert_eq!(world.telegram.texts(90).len(), 1, "a list with one bad place goes nowhere");
    let listed = call(&world, 7, "send_message", &json!({"action": "list"}));
    assert!(listed.contains("telegram:90"), "{listed}");
}

#[test]
fn jobs_of_the_tool_belong_to_whoever_asked_and_cannot_promise_what_a_channel_cannot_keep() {
    let world = world();
    let made =
        call(&world, 7, "cronjob", &json!({"action": "create", "schedule": "1s", "prompt": "remind me"}));
    assert!(made.contains("\"state\":\"scheduled\"") && !made.contains("undeliverable"), "{made}");
    world.sees(7, "⏰ remind me");
    let kept = json!({"action": "create", "schedule": "every 5h", "prompt": "x", "name": "Mine"});
    let made = call(&world, 7, "cronjob", &kept);
    let id = world.read(|reader| reader.jobs())[0].0.id.to_string();
    assert!(made.contains(&id));
    assert!(call(&world, 7, "cronjob", &json!({"action": "list"})).contains("Mine"));
    assert!(call(&world, 8, "cronjob", &json!({"action": "list"})).contains("\"count\":0"));
    for action in ["pause", "remove", "run", "update"] {
        let refused = call(&world, 8, "cronjob", &json!({"action": action, "job_id": id, "name": "stolen"}));
        assert!(refused.contains("there is no such job"), "{action}: {refused}");
    }
    assert!(call(&world, 7, "cronjob", &json!({"action": "pause", "job_id": id})).contains("paused"));
    assert!(
        call(&world, 7, "cronjob", &json!({"action": "create", "schedule": "whenever", "prompt": "x"}))
            .contains("use 30m")
    );
    assert!(call(&world, 7, "cronjob", &json!({"action": "remove", "job_id": id})).contains("removed"));
    assert_eq!(world.read(|reader| reader.jobs()), []);
    // A channel that ends with its answer.
    let mut asked = support::web(
        "api",
        &format!("call: cronjob {}", json!({"action": "create", "schedule": "every 5h", "prompt": "y"})),
    );
    asked.source.platform = petasos_core::Platform::parse("api_server").unwrap();
    let key = world.submit(asked).unwrap();
    let answer = eventually("answered", || {
        let entry = world.read(|reader| reader.entry(&key))?;
        let rows = world.read(|reader| reader.history(&entry.session_id, 10));
        rows.into_iter()
            .find(|row| row.message.content.starts_with("result: "))
            .map(|row| row.message.content)
    });
    assert!(
        answer.contains("undeliverable") && answer.contains("cannot be delivered")
            || answer.contains("Undeliverable"),
        "{answer}"
    );
    let (job, _) = world.read(|reader| reader.jobs()).remove(0);
    assert_eq!(job.deliver, "local");
}

#[test]
fn a_job_delivers_only_where_whoever_asked_for_it_may_send() {
    let world = world();
    let create = |chat: i64, to: &str| {
        let job = json!({"action": "create", "schedule": "every 5h", "prompt": "x", "deliver": to});
        call(&world, chat, "cronjob", &job)
    };
    let job = || world.read(|reader| reader.jobs()).into_iter().map(|(job, _)| job).next_back();
    for to in ["telegram:12345", "telegram:@somebody", "origin, telegram:12345", "telegram:12345:3"] {
        let refused = create(7, to);
        assert!(refused.contains("neither this chat nor a home channel"), "{to}: {refused}");
    }
    assert_eq!(job(), None, "nothing is kept of them");
    for to in ["origin", "telegram:7", "telegram:90", "all", "telegram", "local", "discord"] {
        assert!(create(7, to).contains("\"success\":true"), "{to}");
        let id = job().unwrap().id;
        let update =
            |to: &str| call(&world, 7, "cronjob", &json!({"action": "update", "job_id": id, "deliver": to}));
        assert!(update("telegram:12345").contains("neither this chat"), "{to}");
        assert_eq!(job().unwrap().deliver, to);
        assert!(update("telegram:90, origin").contains("\"success\":true"), "{to}");
        call(&world, 7, "cronjob", &json!({"action": "remove", "job_id": id}));
    }
    // Whoever sits at the machine may name anything.
    let anywhere =
        json!({"action": "create", "schedule": "every 5h", "prompt": "x", "deliver": "telegram:12345"});
    world.say("main", &format!("call: cronjob {anywhere}"));
    assert_eq!(eventually("kept", job).deliver, "telegram:12345");
}

#[test]
fn pages_on_this_machine_cannot_be_fetched() {
    let world = world();
    let fetched =
        call(&world, 7, "web_extract", &json!({"urls": [format!("{}/v1/models", world.model.url())]}));
    assert!(fetched.contains("not fetched from"), "{fetched}");
    assert!(world.model.requests().iter().all(|request| request.last_user.contains("call: ")));
}

#[test]
fn a_question_waits_for_the_next_message_and_gives_it_to_the_model() {
    let world = world();
    let asked = json!({"question": "Which colour?", "choices": ["red", "blue"]});
    world.telegram.push_text(7, 7, format!("call: clarify {asked}"));
    world.sees(7, "Which colour?");
    world.telegram.push_text(7, 7, "rather green");
    world.ends_with(7, "\"user_response\":\"rather green\"");
    let heard = world.model.requests().iter().filter(|request| request.last_user == "rather green").count();
    assert_eq!(heard, 0, "the answer starts no turn of its own");
    let job =
        json!({"action": "create", "schedule": "1s", "prompt": "call: clarify {\"question\": \"anybody?\"}"});
    call(&world, 7, "cronjob", &job);
    world.sees(7, "Nobody can be asked here");
}
