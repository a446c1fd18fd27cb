//! The clients that people really use, against the real gateway: OpenAI's SDKs for Python and Node, and Schemathesis, which
//! makes up requests from the OpenAPI document. `scripts/test` installs them; without them the tests say that they were
//! not run, and `PETASOS_CLIENTS_REQUIRED=1` makes that a failure.

#![allow(clippy::expect_used, clippy::print_stderr, reason = "a test that cannot go on stops, and says so")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::api::{Api, KEY, obey};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where `scripts/test` puts Python's packages.
fn installed(program: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| here("target"), PathBuf::from);
    target.join("clients-venv/bin").join(program)
}

/// A gateway whose model echoes; `None`: the client is not here, and that is said.
fn gateway(client: &Path) -> Option<Api> {
    if !client.exists() {
        assert!(std::env::var_os("PETASOS_CLIENTS_REQUIRED").is_none(), "{} is missing", client.display());
        eprintln!("NOT RUN: {} is not here; scripts/test installs it", client.display());
        return None;
    }
    let api = Api::with("gateway: {api_server: {max_concurrent_runs: 100}}\n");
    api.bench.model.respond(obey);
    Some(api)
}

#[track_caller]
fn succeeds(api: &Api, command: &mut Command) {
    let output =
        command.env("PETASOS_URL", format!("http://{}", api.address)).env("PETASOS_KEY", KEY).output();
    let output = output.expect("the client starts");
    let said = format!("{}{}", crate::support::stdout(&output), crate::support::stderr(&output));
    assert!(output.status.success(), "{said}");
}

#[test]
fn openais_python_sdk() {
    let Some(api) = gateway(&installed("st")) else { return };
    succeeds(&api, Command::new(installed("python")).arg(here("tests/clients/sdk.py")));
}

#[test]
fn openais_node_sdk() {
    let Some(api) = gateway(&here("tests/clients/node_modules/openai")) else { return };
    succeeds(&api, Command::new("node").arg(here("tests/clients/sdk.mjs")));
}

#[test]
fn no_request_that_can_be_made_up_from_the_document_fails_or_is_answered_otherwise() {
    let schemathesis = installed("st");
    let Some(api) = gateway(&schemathesis) else { return };
    let document = api.bench.home.path().join("openapi.json");
    std::fs::write(&document, api.get("/openapi.json").body).expect("the document");
    let examples = std::env::var("PETASOS_SCHEMATHESIS_EXAMPLES").unwrap_or_else(|_| "10".into());
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,ignored_auth";
    let mut command = Command::new(schemathesis);
    command.arg("run").arg(&document).args(["--url", &format!("http://{}", api.address)]);
    command.args(["--header", &format!("Authorization: Bearer {KEY}"), "--checks", checks]);
    command.args(["--phases", "coverage,fuzzing", "--max-examples", &examples, "--seed", "7", "--no-color"]);
    // Its only answer is that nobody is there.
    command.args(["--exclude-operation-id", "platform_events"]);
    // It keeps what it found in the folder it runs in.
    succeeds(&api, command.current_dir(api.bench.home.path()));
}
