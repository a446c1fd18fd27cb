//! What stands beside the drain: who is at work, restart and stop, the status, and messages while nothing may start.

mod support;

use petasos_core::lifecycle::{Leave, State};
use petasos_web::Doors;
use serde_json::{Value, json};
use support::{DRAIN, World};

/// What anybody may read.
const PUBLIC: [&str; 13] = [
    "active_agents",
    "active_sessions",
    "auth_required",
    "gateway_busy",
    "gateway_drainable",
    "gateway_exit_reason",
    "gateway_mode",
    "gateway_platforms",
    "gateway_running",
    "gateway_state",
    "gateway_updated_at",
    "restart_drain_timeout",
    "version",
];

/// What the signed-in read besides.
const PRIVATE: [&str; 22] = [
    "dead_chats",
    "rate_limits",
    "drain",
    "gateway_pid",
    "hermes_home",
    "holders",
    "home",
    "inbox",
    "links",
    "mcp",
    "model",
    "outbox",
    "pid",
    "salvage",
    "sessions",
    "started_at",
    "state",
    "storage",
    "store_recoveries",
    "store_trouble",
    "unreadable",
    "untold",
];

fn names(body: &Value) -> Vec<&str> {
    let fields = body.as_object().into_iter();
    let mut names: Vec<_> = fields.flat_map(|fields| fields.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn anybody_may_read_the_status_and_learns_nothing_of_the_conversations() {
    let world = World::start(Doors::default()).await;
    let _gate = world.busy(&["chat-4711"]).await;
    let public = world.stranger("GET", "/api/status", &[("cookie", "petasos=no")], "").await;
    assert_eq!((public.status, names(&public.body)), (200, PUBLIC.to_vec()));
    assert_eq!(
        (&public.body["gateway_state"], &public.body["active_agents"]),
        (&json!("running"), &json!(1))
    );
    assert_eq!(
        (&public.body["gateway_busy"], &public.body["gateway_drainable"]),
        (&json!(true), &json!(true))
    );
    let text = public.body.to_string();
    for secret in ["4711", "agent:main", world.home.path().to_str().unwrap()] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let mut all = [PUBLIC.as_slice(), PRIVATE.as_slice()].concat();
    all.sort_unstable();
    for told in [world.browser("GET", "/api/status", "").await, world.owner("GET", "/api/status", "").await] {
        assert_eq!((told.status, names(&told.body)), (200, all.clone()));
        assert!(told.body["holders"][0]["key"].as_str().unwrap().contains("4711"));
    }
    world.owner("POST", DRAIN, "").await;
    world.until(|now| now.state == State::Draining).await;
    let public = world.stranger("GET", "/api/status", &[], "").await.body;
    assert_eq!((&public["gateway_state"], &public["active_agents"]), (&json!("draining"), &json!(1)));
    assert_eq!((&public["gateway_busy"], &public["gateway_drainable"]), (&json!(false), &json!(false)));
    assert_eq!(world.browser("GET", "/api/status", "").await.body["drain"]["kind"], "external");
    let cross_site = [("sec-fetch-site", "cross-site")];
    assert_eq!(world.stranger("GET", "/api/status", &cross_site, "").await.status, 403);
    assert_eq!(world.stranger("GET", "/api/status?profile=work", &[], "").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_no_turn_may_start_for_is_refused_until_the_drain_is_over() {
    let world = World::start(Doors::default()).await;
    world.owner("POST", DRAIN, "").await;
    world.until(|now| now.state == State::Draining).await;
    let refused = world.say("c1", "hello").await;
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("\r\nretry-after: 1"), "{}", refused.head);
    refused_as(&refused.body, "gateway_draining");
    assert_eq!(world.say("c1", "/status").await.status, 202, "commands are obeyed");
    world.owner("POST", DRAIN, r#"{"action":"cancel"}"#).await;
    world.until(|now| now.state == State::Running).await;
    assert_eq!(world.say("c2", "hello").await.status, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_during_a_stop_is_refused_in_the_same_way() {
    for (why, word) in [("/api/gateway/stop", "stops"), ("/api/gateway/restart?force=false", "restarts")] {
        let world = World::start(Doors::default()).await;
        let _gate = world.busy(&["c1"]).await;
        assert_eq!(world.browser("POST", why, "").await.status, 200);
        let refused = world.say("c2", "hello").await;
        assert_eq!(refused.status, 503);
        assert!(refused.head.contains("\r\nretry-after: 1"));
        refused_as(&refused.body, "gateway_draining");
        assert!(refused.body["error"]["message"].as_str().unwrap().contains(word), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_restart_interrupts_turns_at_once() {
    let world = World::start(Doors::default()).await;
    let _gate = world.busy(&["c1"]).await;
    assert_eq!(world.browser("POST", "/api/gateway/restart?force=false", "").await.status, 200);
    let asked = std::time::Instant::now();
    assert_eq!(world.handle.situation().active(), 1, "the turn is waited for");
    assert_eq!(world.browser("POST", "/api/gateway/restart", "").await.status, 200);
    let end = world.end().await;
    assert!(end.why.is_restart(), "{end:?}");
    // The turn never ends by itself, and its time would be a minute.
    assert!(asked.elapsed() < std::time::Duration::from_secs(20), "{:?}", asked.elapsed());
}

#[track_caller]
fn refused_as(body: &Value, code: &str) {
    let error = &body["error"];
    assert_eq!((&error["code"], &error["type"]), (&json!(code), &json!("invalid_request_error")));
    assert_eq!(error.get("param"), Some(&Value::Null));
    assert!(error["message"].as_str().is_some_and(|it| it.contains("draining")), "{body}");
}

/// The turn of this chat. Turns are listed as they were admitted, which need not be the order of their messages.
#[track_caller]
fn holder<'a>(view: &'a Value, chat: &str) -> &'a Value {
    let mut all = view["holders"].as_array().into_iter().flatten();
    let found = all.find(|it| it["key"].as_str().is_some_and(|key| key.ends_with(chat)));
    found.unwrap_or_else(|| panic!("no {chat} in {view}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn those_at_work_are_listed_and_can_be_skipped_or_given_more_time() {
    let world = World::start(Doors::default()).await;
    let _gate = world.busy(&["left", "right"]).await;
    let ask = async |path: &str, body: Value| {
        world.browser("POST", &format!("{DRAIN}/{path}"), &body.to_string()).await
    };
    let view = world.browser("GET", DRAIN, "").await.body;
    assert_eq!((&view["drain"], &view["active_agents"]), (&Value::Null, &json!(2)));
    let left = holder(&view, "left")["key"].as_str().unwrap().to_owned();
    let told = ask("skip", json!({"session": left})).await;
    told.is(200, &json!({"ok": true, "session": left}));
    let told = ask("extend", json!({"session": "right", "seconds": 900})).await;
    assert_eq!((told.status, told.body["until"].is_u64()), (200, true), "{told:?}");
    let view = world.owner("GET", DRAIN, "").await.body;
    assert_eq!(
        (&holder(&view, "left")["skipped"], &holder(&view, "right")["until"]),
        (&json!(true), &told.body["until"])
    );
    for (path, body, status) in [
        ("skip", json!({"session": "t"}), 409),
        ("skip", json!({"session": "nobody"}), 404),
        ("skip", json!({"session": ""}), 400),
        ("skip", json!({"session": 7}), 400),
        ("extend", json!({"session": "nobody", "seconds": 1}), 404),
        ("extend", json!({"session": "right", "seconds": 0}), 400),
        ("extend", json!({"session": "right", "seconds": 901}), 400),
        ("extend", json!({"session": "right", "seconds": -1}), 400),
        ("extend", json!({"session": "right", "seconds": "1"}), 400),
        ("extend", json!({"session": "right"}), 400),
    ] {
        assert_eq!(ask(path, body.clone()).await.status, status, "{path} {body}");
    }
    let several = ask("skip", json!({"session": "t"})).await.body;
    assert_eq!(several["error"]["sessions"].as_array().map(Vec::len), Some(2), "{several}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dashboard_restarts_and_stops_us_and_asks_how_it_went() {
    let world = World::start(Doors::default()).await;
    let _gate = world.busy(&["c1"]).await;
    let begun = |name: &str| json!({"ok": true, "pid": std::process::id(), "name": name});
    let running = async |name: &str| {
        let told = world.browser("GET", &format!("/api/actions/{name}/status?lines=50"), "").await;
        assert_eq!(
            (told.status, &told.body["exit_code"], &told.body["lines"]),
            (200, &Value::Null, &json!([]))
        );
        told.body["running"].as_bool().unwrap()
    };
    world.browser("POST", "/api/gateway/start", "").await.is(200, &begun("gateway-start"));
    assert!(!running("gateway-restart").await);
    assert_eq!(world.browser("POST", "/api/gateway/restart?profile=work", "").await.status, 404);
    assert_eq!(world.handle.situation().leaving, None);
    world
        .browser("POST", "/api/gateway/restart?profile=default", "")
        .await
        .is(200, &begun("gateway-restart"));
    assert!(world.handle.situation().leaving.is_some_and(|leaving| leaving.why.is_restart()));
    assert!(running("gateway-restart").await && !running("gateway-start").await);
    let view = world.browser("GET", DRAIN, "").await.body;
    assert_eq!((&view["state"], &view["drain"]["kind"]), (&json!("draining"), &json!("restart")));
    world.owner("POST", "/api/gateway/stop", "").await.is(200, &begun("gateway-stop"));
    assert_eq!(world.handle.situation().leaving.map(|leaving| leaving.why), Some(Leave::Stop));
    assert_eq!(world.browser("POST", "/api/gateway/restart", "").await.status, 409);
    assert_eq!(world.browser("POST", "/api/gateway/start", "").await.status, 409);
    assert_eq!(world.browser("GET", "/api/actions/gateway-dance/status", "").await.status, 404);
    assert_eq!(world.stranger("POST", "/api/gateway/stop", &[], "").await.status, 401);
    assert_eq!(world.browser("DELETE", DRAIN, "").await.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_restarts_hurries_and_stops_on_the_control_socket_alone() {
    let world = World::start(Doors::default()).await;
    let _gate = world.busy(&["c1"]).await;
    for path in ["/api/restart", "/api/hurry", "/api/shutdown"] {
        assert_eq!(world.browser("POST", path, "").await.status, 404, "{path}");
    }
    assert_eq!(world.handle.situation().leaving, None);
    assert_eq!(world.owner("POST", "/api/restart", "").await.status, 202);
    assert_eq!(world.owner("POST", "/api/hurry", "").await.status, 202);
    assert_eq!(world.owner("POST", "/api/shutdown", "").await.status, 202);
    assert_eq!(world.owner("POST", "/api/restart", "").await.status, 409);
    assert_eq!(world.handle.situation().leaving.map(|leaving| leaving.why), Some(Leave::Stop));
}
