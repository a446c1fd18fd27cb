//! Against a server of the official Python package: `scripts/test` installs it; without it the tests say that they were not
//! run, and `PETASOS_MCP_REQUIRED=1` makes that a failure.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on stops, and says so")]

#[path = "support/server.rs"]
mod real;

use std::path::Path;
use std::time::Duration;

use petasos_agent::mcp::{NotDone, Server, Servers, State, Way};
use petasos_core::Secret;
use real::{program, python};

const SOON: Duration = Duration::from_secs(40);

fn server(python: &Path, folder: &Path) -> Server {
    let command = python.display().to_string();
    let env = [("GIVEN".to_owned(), Secret::new("this"))].into();
    Server::new("my server", Way::Command { command, args: vec![program(folder)], env })
}

async fn call(servers: &Servers, tool: &str, arguments: serde_json::Value) -> Result<String, NotDone> {
    let serde_json::Value::Object(arguments) = arguments else { panic!("an object") };
    let result = servers.call(&format!("mcp__my_server__{tool}"), arguments).await?;
    Ok(result["result"].as_str().unwrap_or_default().to_owned())
}

async fn until(servers: &Servers, what: impl Fn(&State) -> bool) {
    let wait = async {
        while !servers.states().iter().all(|(_, state)| what(state)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, wait).await.unwrap_or_else(|_| panic!("{:?}", servers.states()));
}

#[tokio::test]
async fn a_program_offers_tools_and_knows_only_what_it_was_given() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(&python, folder.path());
    server.exclude = vec!["sleep".into()];
    let servers = Servers::start(vec![server]);
    servers.tried(SOON).await;
    assert_eq!(servers.states(), [("my server".to_owned(), State::Up(4))]);
    let names: Vec<_> = servers.specs().map(|spec| spec.name).collect();
    assert!(
        names.contains(&"mcp__my_server__add".to_owned()) && !names.iter().any(|name| name.contains("sleep"))
    );
    assert_eq!(call(&servers, "add", serde_json::json!({"a": 2, "b": 3})).await.unwrap(), "5");
    let variable = |name: &str| serde_json::json!({ "name": name });
    assert_eq!(call(&servers, "environment", variable("GIVEN")).await.unwrap(), "this");
    assert_eq!(call(&servers, "environment", variable("CARGO_MANIFEST_DIR")).await.unwrap(), "not there");
    let refused = call(&servers, "refuse", serde_json::json!({})).await;
    assert!(matches!(&refused, Err(NotDone::Surely(why)) if why.contains("not today")), "{refused:?}");
    let absent = call(&servers, "absent", serde_json::json!({})).await;
    assert!(matches!(&absent, Err(NotDone::Surely(why)) if why.contains("No server offers")), "{absent:?}");
}

#[tokio::test]
async fn a_server_that_goes_comes_back_and_one_that_hangs_is_left_alone() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(&python, folder.path());
    server.call_within = Duration::from_millis(500);
    let servers = Servers::start(vec![server]);
    servers.tried(SOON).await;
    until(&servers, |state| matches!(state, State::Up(_))).await;
    let left = call(&servers, "leave", serde_json::json!({})).await;
    assert!(matches!(left, Err(NotDone::Perhaps(_))), "it may have done it before it went: {left:?}");
    until(&servers, |state| matches!(state, State::Down(_))).await;
    until(&servers, |state| matches!(state, State::Up(_))).await;
    assert_eq!(call(&servers, "add", serde_json::json!({"a": 1, "b": 1})).await.unwrap(), "2");
    for _ in 0..3 {
        let late = call(&servers, "sleep", serde_json::json!({})).await;
        assert!(matches!(&late, Err(NotDone::Perhaps(why)) if why.contains("did not answer")), "{late:?}");
    }
    let rests = call(&servers, "add", serde_json::json!({"a": 1, "b": 1})).await;
    assert!(matches!(&rests, Err(NotDone::Surely(why)) if why.contains("left alone")), "{rests:?}");
}

#[tokio::test]
async fn a_server_over_http_offers_the_same() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = petasos_fakes::port::free();
    let mut running = tokio::process::Command::new(python);
    running.arg(program(folder.path())).arg(port.to_string()).kill_on_drop(true);
    let _running = running.stderr(std::process::Stdio::null()).spawn().unwrap();
    let url = format!("http://127.0.0.1:{port}/mcp");
    let servers = Servers::start(vec![Server::new("my server", Way::Http { url, headers: [].into() })]);
    // It may listen a moment later: then the next attempt finds it.
    until(&servers, |state| matches!(state, State::Up(5))).await;
    assert_eq!(call(&servers, "add", serde_json::json!({"a": 20, "b": 22})).await.unwrap(), "42");
}
