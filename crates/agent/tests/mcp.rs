//! The MCP client against a server of the official Python package, which `scripts/test` installs. Without it
//! the tests are skipped; `PETASOS_MCP_REQUIRED=1` makes that a failure.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on stops, and says so")]

#[path = "support/server.rs"]
mod real;

use std::path::Path;
use std::time::Duration;

use petasos_agent::mcp::{McpCallError, McpServerConfig, McpServerState, McpServers, McpTransport};
use petasos_core::Secret;
use real::{program, python};

const SOON: Duration = Duration::from_secs(40);

fn server(python: &Path, folder: &Path) -> McpServerConfig {
    let command = python.display().to_string();
    let env = [("GIVEN".to_owned(), Secret::new("this"))].into();
    McpServerConfig::new("my server", McpTransport::Command { command, args: vec![program(folder)], env })
}

async fn call(
    servers: &McpServers,
    tool: &str,
    arguments: serde_json::Value,
) -> Result<String, McpCallError> {
    let serde_json::Value::Object(arguments) = arguments else { panic!("an object") };
    let result = servers.call(&format!("mcp__my_server__{tool}"), arguments).await?;
    Ok(result["result"].as_str().unwrap_or_default().to_owned())
}

async fn until(servers: &McpServers, reached: impl Fn(&McpServerState) -> bool) {
    let all_reached = || servers.states().iter().all(|(_, state)| reached(state));
    petasos_fakes::wait::eventually_async("the state of all servers", SOON, all_reached).await;
}

#[tokio::test]
async fn program_server_gets_only_its_own_environment() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(&python, folder.path());
    server.exclude = vec!["sleep".into()];
    let servers = McpServers::start(vec![server]);
    servers.wait_first_attempts(SOON).await;
    assert_eq!(servers.states(), [("my server".to_owned(), McpServerState::Up(4))]);
    let names: Vec<_> = servers.specs().map(|spec| spec.name).collect();
    assert!(
        names.contains(&"mcp__my_server__add".to_owned()) && !names.iter().any(|name| name.contains("sleep"))
    );
    assert_eq!(call(&servers, "add", serde_json::json!({"a": 2, "b": 3})).await.unwrap(), "5");
    let variable = |name: &str| serde_json::json!({ "name": name });
    assert_eq!(call(&servers, "environment", variable("GIVEN")).await.unwrap(), "this");
    assert_eq!(call(&servers, "environment", variable("CARGO_MANIFEST_DIR")).await.unwrap(), "not there");
    let refused = call(&servers, "refuse", serde_json::json!({})).await;
    assert!(matches!(&refused, Err(McpCallError::Failed(why)) if why.contains("not today")), "{refused:?}");
    let absent = call(&servers, "absent", serde_json::json!({})).await;
    assert!(
        matches!(&absent, Err(McpCallError::Failed(why)) if why.contains("No server offers")),
        "{absent:?}"
    );
}

#[tokio::test]
async fn reconnects_lost_server_and_pauses_hanging_one() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(&python, folder.path());
    server.call_within = Duration::from_millis(500);
    let servers = McpServers::start(vec![server]);
    servers.wait_first_attempts(SOON).await;
    until(&servers, |state| matches!(state, McpServerState::Up(_))).await;
    let left = call(&servers, "leave", serde_json::json!({})).await;
    assert!(matches!(left, Err(McpCallError::Unknown(_))), "it may have done it before it went: {left:?}");
    until(&servers, |state| matches!(state, McpServerState::Down(_))).await;
    until(&servers, |state| matches!(state, McpServerState::Up(_))).await;
    assert_eq!(call(&servers, "add", serde_json::json!({"a": 1, "b": 1})).await.unwrap(), "2");
    for _ in 0..3 {
        let late = call(&servers, "sleep", serde_json::json!({})).await;
        assert!(
            matches!(&late, Err(McpCallError::Unknown(why)) if why.contains("did not answer")),
            "{late:?}"
        );
    }
    let rests = call(&servers, "add", serde_json::json!({"a": 1, "b": 1})).await;
    assert!(matches!(&rests, Err(McpCallError::Failed(why)) if why.contains("paused")), "{rests:?}");
}

#[tokio::test]
async fn http_server_offers_the_same_tools() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = petasos_fakes::port::free();
    let mut running = tokio::process::Command::new(python);
    running.arg(program(folder.path())).arg(port.to_string()).kill_on_drop(true);
    let _running = running.stderr(std::process::Stdio::null()).spawn().unwrap();
    let url = format!("http://127.0.0.1:{port}/mcp");
    let servers = McpServers::start(vec![McpServerConfig::new(
        "my server",
        McpTransport::Http { url, headers: [].into() },
    )]);
    // The server may start late; a later attempt finds it.
    until(&servers, |state| matches!(state, McpServerState::Up(5))).await;
    assert_eq!(call(&servers, "add", serde_json::json!({"a": 20, "b": 22})).await.unwrap(), "42");
}
