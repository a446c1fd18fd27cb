//! Drain, run limits, discovery, health and jobs.

use petasos_fakes::model::{Answer, Point};
use serde_json::json;

use crate::support::SOON;
use crate::support::api::{Api, chat_body, content};

#[test]
fn drain_rejects_new_runs_and_finishes_running_ones() {
    let api = Api::start();
    let gate = api.program.model.gate(Point::Before);
    let run = api.start_run(&json!({ "input": "before" }));
    assert!(gate.wait(SOON), "the model was never asked");
    let marker = api.program.home.path().join(".drain_request.json");
    std::fs::write(&marker, r#"{"action":"drain"}"#).expect("a marker");
    api.program.wait_state("draining");
    api.post("/api/sessions", &json!({ "id": "s" }));
    for (path, body) in [
        ("/v1/chat/completions", chat_body("x")),
        ("/v1/responses", json!({ "input": "x" })),
        ("/v1/runs", json!({ "input": "x" })),
        ("/api/sessions/s/chat", json!({ "message": "x" })),
    ] {
        let reply = api.post(path, &body);
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{path}");
        assert_eq!(reply.json()["error"]["code"], "gateway_draining", "{path}");
    }
    assert_eq!(api.get("/health").status, 200);
    assert_eq!(api.get("/health/detailed").json()["gateway_state"], "draining");
    assert_eq!(api.get(&format!("/v1/runs/{run}")).json()["status"], "running");
    gate.open();
    api.wait_run(&run, "completed");
    std::fs::remove_file(&marker).expect("removed");
    api.program.wait_state("running");
    assert_eq!(content(&api.post("/v1/chat/completions", &chat_body("after"))), "echo: after");
}

#[test]
fn run_limit_covers_every_endpoint() {
    let api =
        Api::with_config("gateway:\n  api_server:\n    max_concurrent_runs: 10\n    queue_seconds: 0.1\n");
    let gate = api.program.model.gate(Point::Before);
    api.post("/api/sessions", &json!({ "id": "s" }));
    let runs: Vec<_> = (0..10).map(|at| api.start_run(&json!({ "input": format!("slow {at}") }))).collect();
    for (path, body) in [
        ("/v1/chat/completions", chat_body("x")),
        ("/v1/responses", json!({ "input": "x" })),
        ("/v1/runs", json!({ "input": "x" })),
        ("/api/sessions/s/chat", json!({ "message": "x" })),
        ("/api/sessions/s/chat/stream", json!({ "message": "x" })),
    ] {
        let reply = api.post(path, &body);
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{path}: {}", reply.body);
    }
    gate.open();
    for run in runs {
        api.wait_run(&run, "completed");
    }
}

#[test]
fn discovery_endpoints_work_under_every_profile() {
    let api = Api::with_config("platforms.api_server.extra.model_routes: {fast: small-model}\n");
    for prefix in ["", "/p/main"] {
        let models = api.get(&format!("{prefix}/v1/models")).json();
        let ids: Vec<_> =
            models["data"].as_array().expect("models").iter().map(|it| it["id"].clone()).collect();
        assert_eq!(ids, ["petasos", "fast"]);
        let able = api.get(&format!("{prefix}/v1/capabilities")).json();
        assert_eq!(able["object"], "hermes.api_server.capabilities");
        assert_eq!(able["endpoints"]["run_approval"]["path"], "/v1/runs/{id}/approval");
        assert_eq!(able["features"]["approval_events"], true);
        assert!(api.get(&format!("{prefix}/v1/skills")).json()["data"].is_array());
        let sets = api.get(&format!("{prefix}/v1/toolsets")).json();
        assert!(sets["data"].as_array().is_some_and(|sets| !sets.is_empty()), "{sets}");
        let health = api.get(&format!("{prefix}/health/detailed")).json();
        assert_eq!(
            (&health["readiness"]["checks"]["state_db"]["status"], &health["gateway_state"]),
            (&json!("ok"), &json!("running"))
        );
    }
    let mut body = chat_body("x");
    body["model"] = json!("fast");
    assert_eq!(
        api.send(&api.request("POST", "/p/main/v1/chat/completions").json(&body)).json()["model"],
        "fast"
    );
    let asked = api.program.model.requests().pop().expect("a request");
    assert_eq!(asked.body()["model"], "small-model");
    let document = api.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"].as_object().is_some_and(|paths| paths.len() > 20));
}

#[test]
fn detailed_health_reports_failing_checks() {
    let api = Api::start();
    let health = || api.get("/health/detailed").json()["readiness"].clone();
    let before = health();
    for check in ["state_db", "config", "model", "gateway", "background_queues"] {
        assert_eq!(before["checks"][check]["status"], "ok", "{check}: {before}");
    }
    // The disk of the machine may be almost full.
    assert_eq!(before["status"], before["checks"]["disk"]["status"], "{before}");
    assert_eq!(api.get("/v1/capabilities").json()["features"]["skills_api"], false);
    api.program.model.script(Answer::status(401, ""));
    assert_eq!(api.post("/v1/chat/completions", &chat_body("hello")).status, 502);
    let failing = health();
    assert_eq!(
        (&failing["status"], &failing["checks"]["model"]["status"]),
        (&json!("degraded"), &json!("degraded"))
    );
    assert_eq!(api.post("/v1/chat/completions", &chat_body("hello")).status, 200);
    assert_eq!(health()["checks"]["model"]["status"], "ok");
    let path = api.program.home.path().join("config.yaml");
    let config = std::fs::read_to_string(&path).expect("a configuration");
    std::fs::write(&path, config + "\n# changed\n").expect("written");
    let changed = health();
    assert_eq!(
        (&changed["status"], &changed["checks"]["config"]["status"]),
        (&changed["checks"]["disk"]["status"], &json!("degraded"))
    );
}

#[test]
fn jobs_are_created_changed_fired_and_deleted() {
    let api = Api::start();
    let made =
        api.post("/api/jobs", &json!({ "name": "report", "schedule": "every 2h", "prompt": "say hi" }));
    assert_eq!(made.status, 200, "{}", made.body);
    let id = made.json()["job"]["id"].as_str().expect("an id").to_owned();
    assert!(id.len() == 12 && id.bytes().all(|it| it.is_ascii_hexdigit()), "{id}");
    let path = format!("/api/jobs/{id}");
    assert_eq!(api.get("/api/jobs").json()["jobs"].as_array().map(Vec::len), Some(1));
    let changed = api.send(&api.request("PATCH", &path).json(&json!({ "name": "weather" })));
    assert_eq!(changed.json()["job"]["name"], "weather");
    assert_eq!(api.post(&format!("{path}/pause"), &json!({})).json()["job"]["enabled"], false);
    assert_eq!(api.post(&format!("{path}/resume"), &json!({})).json()["job"]["enabled"], true);
    let fired = api.post("/api/cron/fire", &json!({ "job_id": id }));
    assert_eq!((fired.status, fired.json()), (202, json!({ "status": "accepted", "job_id": id })));
    let ran = api
        .program
        .model
        .wait_until(SOON, |state| state.requests().find(|it| it.last_user.contains("say hi")).map(drop));
    assert!(ran.is_some(), "never run");
    assert_eq!(api.post("/api/cron/fire", &json!({ "job_id": "aaaaaaaaaaaa" })).status, 404);
    assert_eq!(api.send(&api.request("DELETE", &path)).json(), json!({ "ok": true }));
    assert_eq!(api.get(&path).status, 404);
}
