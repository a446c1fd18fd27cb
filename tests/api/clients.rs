//! Third-party clients: OpenAI's SDKs for Python and Node, and Schemathesis, which generates requests from the OpenAPI
//! document. `scripts/test` installs them. Without them the tests are skipped; `PETASOS_CLIENTS_REQUIRED=1` makes that a
//! failure.

#![allow(clippy::expect_used, clippy::print_stderr, reason = "a test that cannot go on stops, and says so")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::api::{Api, KEY, scripted_answer};

fn workspace_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn venv_program(program: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace_path("target"), PathBuf::from);
    target.join("clients-venv/bin").join(program)
}

/// `None`: the client is not installed.
fn gateway_for(client: &Path) -> Option<Api> {
    if !client.exists() {
        assert!(std::env::var_os("PETASOS_CLIENTS_REQUIRED").is_none(), "{} is missing", client.display());
        eprintln!("skipped: {} is not installed; scripts/test installs it", client.display());
        return None;
    }
    let api = Api::with_config("gateway: {api_server: {max_concurrent_runs: 100}}\n");
    api.program.model.respond(scripted_answer);
    Some(api)
}

#[track_caller]
fn run_client(api: &Api, command: &mut Command) {
    let output =
        command.env("PETASOS_URL", format!("http://{}", api.address)).env("PETASOS_KEY", KEY).output();
    let output = output.expect("the client starts");
    let printed = format!("{}{}", crate::support::stdout(&output), crate::support::stderr(&output));
    assert!(output.status.success(), "{printed}");
}

#[test]
fn openai_python_sdk_works() {
    let Some(api) = gateway_for(&venv_program("st")) else { return };
    run_client(&api, Command::new(venv_program("python")).arg(workspace_path("tests/clients/sdk.py")));
}

#[test]
fn openai_node_sdk_works() {
    let Some(api) = gateway_for(&workspace_path("tests/clients/node_modules/openai")) else { return };
    run_client(&api, Command::new("node").arg(workspace_path("tests/clients/sdk.mjs")));
}

#[test]
fn generated_requests_conform_to_openapi_document() {
    let schemathesis = venv_program("st");
    let Some(api) = gateway_for(&schemathesis) else { return };
    let document = api.program.home.path().join("openapi.json");
    std::fs::write(&document, api.get("/openapi.json").body).expect("the document");
    let examples = std::env::var("PETASOS_SCHEMATHESIS_EXAMPLES").unwrap_or_else(|_| "10".into());
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,ignored_auth";
    let mut command = Command::new(schemathesis);
    command.arg("run").arg(&document).args(["--url", &format!("http://{}", api.address)]);
    command.args(["--header", &format!("Authorization: Bearer {KEY}"), "--checks", checks]);
    command.args(["--phases", "coverage,fuzzing", "--max-examples", &examples, "--seed", "7", "--no-color"]);
    // Without the webhook platform this operation always fails.
    command.args(["--exclude-operation-id", "platform_events"]);
    // Schemathesis stores its examples in the working directory.
    run_client(&api, command.current_dir(api.program.home.path()));
}
