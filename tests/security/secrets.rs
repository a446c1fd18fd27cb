//! Secrets appear in no output.

use crate::support::api::{Api, chat_body, content, streamed_text};
use crate::support::http::HttpRequest;
use crate::support::{ProgramFixture, eventually, expect_failure, expect_success, stderr, stdout, user_text};
use petasos_fakes::model::{Answer, ChatRequest};
use serde_json::json;

#[test]
fn log_hides_url_of_an_unreachable_mcp_server() {
    let config = "mcp_servers:\n  mail: {url: 'http://me:canary-1@127.0.0.1:1?api_key=canary-2'}\n";
    let mut fixture = ProgramFixture::with_config(config);
    fixture.launch();
    let reason = eventually("the server is reported as down", || {
        fixture.status()["mcp"][0]["why"].as_str().map(str::to_owned)
    });
    let log = fixture.kill();
    assert!(log.contains("MCP server"), "{log}");
    assert!(!log.contains("canary") && !reason.contains("canary"), "{reason}: {log}");
}

/// Part of every canary.
const MARK: &str = "Zq8xW3vK";
const MODEL_KEY: &str = "sk-Zq8xW3vK-model-key";
const TELEGRAM_TOKEN: &str = "1234567:AAZq8xW3vK-telegram";
const API_KEY: &str = "Zq8xW3vK-api-key-0123456789";
const FROM_COMMAND: &str = "Zq8xW3vK-from-a-command";
const FROM_DOTENV: &str = "Zq8xW3vK-from-dotenv";
const CANARIES: [&str; 8] = [
    MODEL_KEY,
    TELEGRAM_TOKEN,
    API_KEY,
    FROM_COMMAND,
    FROM_DOTENV,
    "Zq8xW3vK-drain-secret-0123456789-0123456789-01",
    "Zq8xW3vK-mcp-environment",
    "Zq8xW3vK-mcp-header",
];

const CONFIG: &str = "approvals:\n  mode: 'off'\nterminal:\n  enabled: true\n  login_shell: false\n\
                      streaming: {enabled: true, edit_interval: 0.05}\nplatforms.api_server.enabled: true\n\
                      dashboard: {drain_auth: {secret: Zq8xW3vK-drain-secret-0123456789-0123456789-01}}\n\
                      secrets:\n  commands: {STORED_KEY: 'echo Zq8xW3vK-from-a-command'}\nmcp_servers:\n  \
                      far: {url: 'http://127.0.0.1:1/mcp', headers: {X-Any: Zq8xW3vK-mcp-header}}\n  \
                      near: {command: 'false', env: {ANY: Zq8xW3vK-mcp-environment}}\n";

/// `leak` quotes every secret, `fail` is an error that quotes one, `run: COMMAND` calls the terminal.
fn careless_answer(request: &ChatRequest) -> Answer {
    let last = request.messages().last().cloned().unwrap_or_default();
    let asked = user_text(&request.last_user);
    match (last["role"] == "tool", asked.strip_prefix("run: ")) {
        (true, _) => Answer::text("done"),
        (false, Some(command)) => Answer::tool("terminal", json!({ "command": command })),
        (false, None) if asked == "fail" => Answer::status(400, format!("bad key {MODEL_KEY}")),
        (false, None) => Answer::text(format!("They are {}.", CANARIES.join(" and "))).chunks(60),
    }
}

fn careless_api() -> Api {
    let program = ProgramFixture::builder().telegram().with(CONFIG).build();
    let path = program.home.path().join("config.yaml");
    let config = std::fs::read_to_string(&path).expect("a configuration");
    let config = config.replace("sk-test", MODEL_KEY).replace("123:abc", TELEGRAM_TOKEN);
    std::fs::write(path, config).expect("written");
    std::fs::write(program.home.path().join(".env"), format!("ANY_TOKEN={FROM_DOTENV}\n")).expect("written");
    program.model.respond(careless_answer);
    let mut api = Api { program, address: String::new() };
    api.program.launch_with(&[("API_SERVER_KEY", API_KEY), ("API_SERVER_PORT", "0")]);
    api.address = api.wait_address(None);
    api
}

#[track_caller]
fn assert_hidden(place: &str, text: &str) {
    assert!(!text.contains(MARK), "{place}: {text}");
}

#[test]
fn no_output_contains_a_secret() {
    let mut api = careless_api();
    let secret_file = api.program.home.path().join("workspace/file");
    std::fs::write(&secret_file, CANARIES.join("\n")).expect("written");
    let chat = |text: &str, count: usize| {
        api.program.telegram.push_text(7, 7, text);
        api.program.wait_messages(7, count);
        api.program.wait_idle();
        api.program.telegram.texts(7)[count - 1].clone()
    };
    let said = chat("leak", 1);
    assert!(said.starts_with("They are [redacted] and"), "{said}");
    chat("run: cat file; base64 -w0 file; xxd -p file | tr -d '\\n'", 2);
    let said = chat("fail", 3);
    assert!(said.contains("did not accept"), "{said}");
    assert_hidden("a notice", &said);
    let request = |body: &serde_json::Value| {
        HttpRequest::new("POST", "/v1/chat/completions")
            .header("Authorization", format!("Bearer {API_KEY}"))
            .json(body)
    };
    let whole = api.send(&request(&chat_body("leak")));
    assert_hidden("a completion", &whole.body);
    let mut streamed = chat_body("leak");
    streamed["stream"] = json!(true);
    let frames = request(&streamed).open(&api.address).expect("a stream").rest();
    assert_eq!(streamed_text(&frames), content(&whole));
    let requests = api.program.model.requests();
    let results: Vec<_> =
        requests.iter().flat_map(|request| request.messages()).filter(|row| row["role"] == "tool").collect();
    assert!(results[0].to_string().contains("[redacted]"), "{}", results[0]);
    let result = json!(results).to_string();
    assert_hidden("a tool result", &result);
    let encoded = base64(&CANARIES.join("\n"));
    assert!(!result.contains(&encoded[8..40]), "{result}");
    for call in ["sendMessage", "editMessageText", "sendMessageDraft"] {
        assert_hidden(call, &format!("{:?}", api.program.telegram.calls_of(call)));
    }
    for arguments in [
        &["status", "--json"][..],
        &["doctor", "--json"],
        &["config", "show", "--all"],
        &["links", "--json"],
        &["outbox", "--json"],
        &["sessions", "--json"],
    ] {
        let output = api.program.run(arguments);
        assert_hidden(&arguments.join(" "), &format!("{}{}", stdout(&output), stderr(&output)));
    }
    let state = api.program.state_file().expect("a state file").to_string();
    assert_hidden("gateway_state.json", &state);
    let (_, log, _) = api.program.terminate();
    assert!(log.contains("model call failed"), "{log}");
    assert_hidden("the log", &log);
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(text)
}

#[test]
fn failing_secret_command_stops_the_start() {
    let fixture = ProgramFixture::builder().with("secrets: {commands: {STORED_KEY: 'exit 3'}}\n").build();
    let said = expect_failure(&fixture.run(&["run"]), 1);
    assert!(said.contains("secrets.commands.STORED_KEY: the command failed"), "{said}");
    let checked = fixture.run(&["config", "check"]);
    assert!(stdout(&checked).contains("STORED_KEY"), "{}", stdout(&checked));
    assert_eq!(fixture.run(&["config", "explain", "web.port"]).status.code(), Some(0), "needs no secret");
}

#[test]
fn systemd_credentials_are_settings() {
    let fixture = ProgramFixture::builder().build();
    let credentials = tempfile::tempdir().expect("a folder");
    std::fs::write(credentials.path().join("API_SERVER_MODEL_NAME"), "from a credential\n").expect("written");
    let mut explain = fixture.command(&["config", "explain", "platforms.api_server.extra.model_name"]);
    let explained = explain.env("CREDENTIALS_DIRECTORY", credentials.path()).output().expect("runs");
    let said = expect_success(&explained);
    assert!(
        said.contains("from a credential") && said.contains("credential API_SERVER_MODEL_NAME"),
        "{said}"
    );
}
