//! Tools that the gateway runs, called by a model in a real turn: each person sees only their own data.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod support;

use petasos_agent::memory::{Memory, MemoryChange, MemoryFile};
use petasos_core::person::Person;
use petasos_fakes::model::{Answer, ChatRequest};
use petasos_gateway::HomeChannel;
use serde_json::{Value, json};
use support::{GatewayFixture, eventually, telegram};

/// Model: `call: <tool> <arguments>` calls the tool and echoes its result; other text is echoed.
fn tool_model(request: &ChatRequest) -> Answer {
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

fn fixture() -> GatewayFixture {
    GatewayFixture::answering(tool_model, |setup| {
        setup.lifetime.home_channels = vec![HomeChannel {
            platform: telegram(),
            chat_id: "90".into(),
            thread_id: None,
            name: "Home".into(),
        }];
    })
}

/// Calls a tool in a chat and returns the echoed result.
#[track_caller]
fn call_tool(fixture: &GatewayFixture, chat: i64, tool: &str, arguments: &Value) -> String {
    let before = fixture.telegram.texts(chat).len();
    fixture.telegram.push_text(chat, chat, format!("call: {tool} {arguments}"));
    eventually("answered", || {
        let texts = fixture.telegram.texts(chat);
        let last = texts.last().filter(|text| texts.len() > before && text.contains("result: "));
        last.cloned()
    })
}

fn exchange(fixture: &GatewayFixture, chat: i64, text: &str) {
    fixture.telegram.push_text(chat, chat, text);
    fixture.expect_last_message(chat, &format!("heard: {text}"));
}

#[test]
fn search_finds_only_the_persons_own_messages() {
    let fixture = fixture();
    exchange(&fixture, 7, "my bicycle is green");
    exchange(&fixture, 8, "my bicycle is secretly stolen");
    let found = call_tool(&fixture, 7, "session_search", &json!({"query": "bicycle"}));
    assert!(found.contains("green") && !found.contains("stolen"), "{found}");
    let row = fixture.read(|reader| reader.search("stolen", None, 1))[0].row;
    let around = call_tool(&fixture, 7, "session_search", &json!({"around": row}));
    assert!(around.contains("There is no row") && !around.contains("stolen"), "{around}");
    let own = call_tool(&fixture, 8, "session_search", &json!({"around": row}));
    assert!(own.contains("stolen"), "{own}");
}

#[test]
fn todo_list_survives_a_crash_and_merges() {
    let mut fixture = fixture();
    let item = |id: &str, status: &str| json!({"id": id, "content": format!("do {id}"), "status": status});
    call_tool(&fixture, 7, "todo", &json!({"todos": [item("a", "pending"), item("b", "pending")]}));
    // An unconfirmed answer would be repeated after the crash and taken for the next one.
    fixture.wait_until_delivered();
    fixture.crash();
    fixture.start();
    let merged = call_tool(&fixture, 7, "todo", &json!({"merge": true, "todos": [item("a", "completed")]}));
    assert!(merged.contains("\"completed\":1") && merged.contains("\"pending\":1"), "{merged}");
    let other = call_tool(&fixture, 8, "todo", &json!({}));
    assert!(other.contains("\"total\":0"), "{other}");
}

#[test]
fn memory_reaches_only_new_sessions_of_its_person() {
    let fixture = fixture();
    let kept =
        call_tool(&fixture, 7, "memory", &json!({"target": "user", "action": "add", "content": "likes tea"}));
    assert!(kept.contains("likes tea"), "{kept}");
    let system = |fixture: &GatewayFixture| {
        fixture.model.requests().last().unwrap().body()["messages"][0]["content"].to_string()
    };
    exchange(&fixture, 7, "same conversation");
    assert!(!system(&fixture).contains("likes tea"), "the prompt of a conversation stays as it was");
    fixture.telegram.push_text(7, 7, "/new");
    exchange(&fixture, 7, "a new one");
    assert!(system(&fixture).contains("likes tea"), "{}", system(&fixture));
    exchange(&fixture, 8, "another person");
    assert!(!system(&fixture).contains("likes tea"));
    fixture.telegram.push_text(7, 7, "/memory");
    fixture.expect_last_message(7, "- likes tea");
    fixture.telegram.push_text(8, 8, "/memory");
    fixture.expect_last_message(8, "I remember nothing yet");
    fixture.telegram.push_text(7, 7, "/memory clear");
    fixture.expect_last_message(7, "Forgotten");
    let person = Person::named("telegram:7");
    assert_eq!(Memory::of(fixture.home(), &person).entries(MemoryFile::User).unwrap(), [""; 0]);
    let owner = Memory::of(fixture.home(), &Person::owner());
    owner.change(MemoryFile::User, &[MemoryChange::Add("the owner's".into())]).unwrap();
    assert!(!Memory::of(fixture.home(), &person).path(MemoryFile::User).exists());
}

#[test]
fn send_message_reaches_only_listed_chats() {
    let fixture = fixture();
    let send =
        |to: &str| call_tool(&fixture, 7, "send_message", &json!({"target": to, "message": "hello there"}));
    assert!(send("telegram:90").contains("delivered"));
    assert_eq!(fixture.telegram.texts(90), ["hello there"]);
    for (to, want) in [
        ("telegram:12345", "neither a home channel"),
        ("telegram:7", "just answer"),
        ("local", "is not a chat"),
        ("discord", "no home channel"),
        ("telegram:90, telegram:12345", "neither a home channel"),
    ] {
        let refused = send(to);
        assert!(refused.contains(want), "{to}: {refused}");
    }
    assert_eq!(fixture.telegram.texts(12345), [""; 0]);
    assert_eq!(fixture.telegram.texts(90).len(), 1, "a list with one bad place goes nowhere");
    let listed = call_tool(&fixture, 7, "send_message", &json!({"action": "list"}));
    assert!(listed.contains("telegram:90"), "{listed}");
}

#[test]
fn cronjob_tool_manages_only_the_authors_jobs() {
    let fixture = fixture();
    let made = call_tool(
        &fixture,
        7,
        "cronjob",
        &json!({"action": "create", "schedule": "1s", "prompt": "remind me"}),
    );
    assert!(made.contains("\"state\":\"scheduled\"") && !made.contains("undeliverable"), "{made}");
    fixture.expect_message(7, "⏰ remind me");
    let kept = json!({"action": "create", "schedule": "every 5h", "prompt": "x", "name": "Mine"});
    let made = call_tool(&fixture, 7, "cronjob", &kept);
    let id = fixture.read(|reader| reader.jobs())[0].0.id.to_string();
    assert!(made.contains(&id));
    assert!(call_tool(&fixture, 7, "cronjob", &json!({"action": "list"})).contains("Mine"));
    assert!(call_tool(&fixture, 8, "cronjob", &json!({"action": "list"})).contains("\"count\":0"));
    for action in ["pause", "remove", "run", "update"] {
        let refused =
            call_tool(&fixture, 8, "cronjob", &json!({"action": action, "job_id": id, "name": "stolen"}));
        assert!(refused.contains("there is no such job"), "{action}: {refused}");
    }
    assert!(call_tool(&fixture, 7, "cronjob", &json!({"action": "pause", "job_id": id})).contains("paused"));
    assert!(
        call_tool(
            &fixture,
            7,
            "cronjob",
            &json!({"action": "create", "schedule": "whenever", "prompt": "x"})
        )
        .contains("use 30m")
    );
    assert!(
        call_tool(&fixture, 7, "cronjob", &json!({"action": "remove", "job_id": id})).contains("removed")
    );
    assert_eq!(fixture.read(|reader| reader.jobs()), []);
    // A channel without later delivery.
    let mut asked = support::web(
        "api",
        &format!("call: cronjob {}", json!({"action": "create", "schedule": "every 5h", "prompt": "y"})),
    );
    asked.source.platform = petasos_core::Platform::parse("api_server").unwrap();
    let key = fixture.submit(asked).unwrap();
    let answer = eventually("answered", || {
        let entry = fixture.read(|reader| reader.entry(&key))?;
        let rows = fixture.read(|reader| reader.history(&entry.session_id, 10));
        rows.into_iter()
            .find(|row| row.message.content.starts_with("result: "))
            .map(|row| row.message.content)
    });
    assert!(
        answer.contains("undeliverable") && answer.contains("cannot be delivered")
            || answer.contains("Undeliverable"),
        "{answer}"
    );
    let (job, _) = fixture.read(|reader| reader.jobs()).remove(0);
    assert_eq!(job.deliver, "local");
}

#[test]
fn job_delivers_only_where_its_author_may_send() {
    let fixture = fixture();
    let create = |chat: i64, to: &str| {
        let job = json!({"action": "create", "schedule": "every 5h", "prompt": "x", "deliver": to});
        call_tool(&fixture, chat, "cronjob", &job)
    };
    let job = || fixture.read(|reader| reader.jobs()).into_iter().map(|(job, _)| job).next_back();
    for to in ["telegram:12345", "telegram:@someone", "origin, telegram:12345", "telegram:12345:3"] {
        let refused = create(7, to);
        assert!(refused.contains("neither this chat, nor a home channel"), "{to}: {refused}");
    }
    assert_eq!(job(), None, "nothing is kept of them");
    for to in ["origin", "telegram:7", "telegram:90", "all", "telegram", "local", "discord"] {
        assert!(create(7, to).contains("\"success\":true"), "{to}");
        let id = job().unwrap().id;
        let update = |to: &str| {
            call_tool(&fixture, 7, "cronjob", &json!({"action": "update", "job_id": id, "deliver": to}))
        };
        assert!(update("telegram:12345").contains("neither this chat"), "{to}");
        assert_eq!(job().unwrap().deliver, to);
        assert!(update("telegram:90, origin").contains("\"success\":true"), "{to}");
        call_tool(&fixture, 7, "cronjob", &json!({"action": "remove", "job_id": id}));
    }
    // The local owner may name any chat.
    let anywhere =
        json!({"action": "create", "schedule": "every 5h", "prompt": "x", "deliver": "telegram:12345"});
    fixture.send_web("main", &format!("call: cronjob {anywhere}"));
    assert_eq!(eventually("kept", job).deliver, "telegram:12345");
}

#[test]
fn refuses_to_fetch_pages_of_this_machine() {
    let fixture = fixture();
    let fetched = call_tool(
        &fixture,
        7,
        "web_extract",
        &json!({"urls": [format!("{}/v1/models", fixture.model.url())]}),
    );
    assert!(fetched.contains("not allowed"), "{fetched}");
    assert!(fixture.model.requests().iter().all(|request| request.last_user.contains("call: ")));
}

#[test]
fn clarify_passes_the_next_message_to_the_model() {
    let fixture = fixture();
    let asked = json!({"question": "Which colour?", "choices": ["red", "blue"]});
    fixture.telegram.push_text(7, 7, format!("call: clarify {asked}"));
    fixture.expect_message(7, "Which colour?");
    fixture.telegram.push_text(7, 7, "rather green");
    fixture.expect_last_message(7, "\"user_response\":\"rather green\"");
    let heard = fixture.model.requests().iter().filter(|request| request.last_user == "rather green").count();
    assert_eq!(heard, 0, "the answer starts no turn of its own");
    let job =
        json!({"action": "create", "schedule": "1s", "prompt": "call: clarify {\"question\": \"anyone?\"}"});
    call_tool(&fixture, 7, "cronjob", &job);
    fixture.expect_message(7, "No user can be asked here");
}
