//! Stopping, restarting, draining and replacing a gateway, as a person or a script does it.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod archive;
mod bad_input;
mod cli;
mod docs;
mod drain;
mod look;
mod replace;
mod stop;
#[path = "../support/mod.rs"]
mod support;
mod terminal;

use std::process::{Child, Command, Stdio};

use petasos_fakes::model::Point;
use serde_json::Value;
use support::{Bench, SOON, eventually};

/// The conversation of [`busy`].
const SESSION: &str = "agent:main:telegram:dm:7";

/// Long enough that nobody reaches its end.
const PATIENT: &str = "agent: {restart_drain_timeout: 600}\n";

const HASTY: &str = "agent: {restart_drain_timeout: 0.2}\n";

/// A gateway with a turn whose model does not answer before the gate is opened.
fn busy(more: &str) -> (Bench, petasos_fakes::Gate) {
    let mut bench = Bench::with(more);
    let gate = bench.model.gate(Point::Before);
    bench.start();
    bench.telegram.push_text(7, 7, "hello");
    assert!(gate.wait(SOON), "the model was asked");
    (bench, gate)
}

fn spawn(bench: &Bench, args: &[&str]) -> Child {
    let mut command = bench.command(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("petasos starts")
}

/// A gateway that is not our child. Ended with this, should the test fail.
struct Stranger(u32);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _gone_already =
            Command::new("kill").args(["-KILL", &self.0.to_string()]).stderr(Stdio::null()).status();
    }
}

fn pid_in(told: &Value) -> u32 {
    told["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid")
}

/// Waits until the gateway answers.
#[track_caller]
fn up(bench: &Bench) {
    eventually("up", || bench.status()["version"].is_string());
}
