//! Time that the sandbox adds to the start of a command.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use petasos_sandbox::launcher;

use crate::machine::{LAUNCHER, Machine, supports};

const ROUNDS: usize = 50;

#[expect(clippy::disallowed_methods, reason = "measures duration")]
fn median(mut start: impl FnMut() -> Command) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let mut command = start();
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let began = Instant::now();
            assert!(command.status().unwrap().success());
            began.elapsed()
        })
        .collect();
    times.sort();
    times[ROUNDS / 2]
}

#[test]
#[ignore = "a measurement for a quiet machine, with --release"]
fn confinement_costs_less_than_five_milliseconds() {
    let machine = Machine::new();
    let plain = median(|| {
        let mut command = Command::new("bash");
        command.args(["-c", ":"]);
        command
    });
    for layers in supports() {
        let arguments = launcher::arguments(&machine.policy(layers)).unwrap();
        let confined = median(|| {
            let mut command = Command::new(LAUNCHER);
            command.args(&arguments).args(["bash", "-c", ":"]).current_dir(&machine.work);
            command
        });
        println!("{layers:?}: {plain:?} plain, {confined:?} confined");
        assert!(
            confined - plain < Duration::from_millis(5),
            "{layers:?}: {plain:?} plain, {confined:?} confined"
        );
    }
}
