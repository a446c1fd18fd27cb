//! The command line: commands with and without a gateway, invalid input, stop, restart, drain and replacement.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod archive;
mod bad_input;
mod cli;
mod docs;
mod drain;
mod language;
mod replace;
mod status;
mod stop;
#[path = "../support/mod.rs"]
mod support;
mod terminal;

use std::process::{Child, Command, Stdio};

use petasos_fakes::model::Point;
use serde_json::Value;
use support::{ProgramFixture, SOON, eventually};

/// The session of [`start_busy`].
const SESSION: &str = "agent:main:telegram:dm:7";

/// Longer than any test takes.
const LONG_DRAIN: &str = "agent: {restart_drain_timeout: 600}\n";

const SHORT_DRAIN: &str = "agent: {restart_drain_timeout: 0.2}\n";

/// Starts a gateway with a running turn; the model answers when the gate opens.
fn start_busy(more: &str) -> (ProgramFixture, petasos_fakes::Gate) {
    let mut fixture = ProgramFixture::with_config(more);
    let gate = fixture.model.gate(Point::Before);
    fixture.start();
    fixture.telegram.push_text(7, 7, "hello");
    assert!(gate.wait(SOON), "the model was not called");
    (fixture, gate)
}

fn spawn(fixture: &ProgramFixture, args: &[&str]) -> Child {
    let mut command = fixture.command(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("petasos starts")
}

/// A gateway that is not a child of the test. Killed on drop.
struct DetachedGateway(u32);

impl Drop for DetachedGateway {
    fn drop(&mut self) {
        let _gone_already =
            Command::new("kill").args(["-KILL", &self.0.to_string()]).stderr(Stdio::null()).status();
    }
}

fn pid_of(report: &Value) -> u32 {
    report["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid")
}

/// Waits until the gateway answers status requests.
#[track_caller]
fn wait_up(fixture: &ProgramFixture) {
    eventually("up", || fixture.status()["version"].is_string());
}
