//! How the launcher starts and ends.

use std::process::{Command, Stdio};

use petasos_sandbox::{Limits, Network, launcher};

use crate::machine::{LAUNCHER, Machine, supports, text};

#[test]
fn exit_codes_are_those_of_the_command() {
    let machine = Machine::new();
    for layers in supports() {
        let policy = machine.policy(layers);
        for (script, code) in
            [("exit 0", 0), ("exit 7", 7), ("exec missing-program", 127), ("exec /etc/passwd", 126)]
        {
            let output = machine.confined(&policy, script);
            assert_eq!(output.status.code(), Some(code), "{layers:?} {script}: {}", text(&output));
        }
    }
}

#[test]
fn command_that_cannot_be_executed_is_named() {
    let machine = Machine::new();
    for layers in supports() {
        for (program, code) in [("/missing/program", 127), ("/etc/passwd", 126)] {
            let mut command = Command::new(LAUNCHER);
            let arguments = launcher::arguments(&machine.policy(layers)).unwrap();
            let output = command.args(arguments).arg(program).current_dir(&machine.work).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{layers:?}: {}", text(&output));
            assert!(text(&output).starts_with(program), "{}", text(&output));
        }
    }
}

#[test]
fn malformed_policy_runs_nothing() {
    for policy in ["", "{}", "[]", r#"{"read": ["/"], "unknown": 1}"#] {
        let mut command = Command::new(LAUNCHER);
        let output = command.args([launcher::SUBCOMMAND, policy, "echo", "ran"]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{policy}");
        assert_eq!(output.stdout, b"", "{policy}");
    }
}

#[test]
fn missing_writable_directory_runs_nothing() {
    let machine = Machine::new();
    for layers in supports() {
        let mut policy = machine.policy(layers);
        policy.write.push("/missing/directory".into());
        let output = machine.confined(&policy, "echo ran");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{}", text(&output));
    }
}

#[test]
fn inherited_files_are_closed() {
    let machine = Machine::new();
    for layers in supports() {
        let arguments = launcher::arguments(&machine.policy(layers)).unwrap();
        let mut command = Command::new("bash");
        command.args(["-c", "exec 7</etc/hostname; \"$0\" \"$@\"", LAUNCHER]).args(arguments);
        command.args(["ls", "/proc/self/fd"]).current_dir(&machine.work);
        let output = command.output().unwrap();
        assert_eq!(text(&output).split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"], "{layers:?}");
    }
}

#[test]
fn namespace_ends_with_its_command() {
    let machine = Machine::new();
    let layers = supports()[0];
    assert!(layers.namespaces, "this test needs user namespaces");
    let script = "mkfifo p; (trap '' TERM HUP; setsid sh -c 'exec sleep 1000 <p') & disown; echo $$";
    let output = machine.confined(&machine.policy(layers), script);
    assert!(output.status.success(), "{}", text(&output));
    // The reader would be waiting for a writer.
    use rustix::fs::{Mode, OFlags};
    let writer = rustix::fs::open(machine.work.join("p"), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
    assert_eq!(writer.unwrap_err(), rustix::io::Errno::NXIO);
}

#[test]
fn command_gets_time_to_end_when_its_group_is_told_to() {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::os::unix::process::CommandExt as _;
    let machine = Machine::new();
    for layers in supports() {
        let arguments = launcher::arguments(&machine.policy(layers)).unwrap();
        let mut command = Command::new(LAUNCHER);
        let script = "trap 'echo ending; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
        command.args(arguments).args(["bash", "-c", script]).current_dir(&machine.work).process_group(0);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        output.read_line(&mut ready).unwrap();
        let leader = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process_group(leader, rustix::process::Signal::TERM).unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!((ready.as_str(), rest.as_str()), ("ready\n", "ending\n"), "{layers:?}");
        assert_eq!(child.wait().unwrap().code(), Some(3), "{layers:?}");
    }
}

#[test]
fn network_follows_the_policy() {
    let mut machine = Machine::new();
    for layers in supports() {
        let port = machine.port();
        for (network, reached) in [
            (Network::None, false),
            (Network::Port(port), true),
            (Network::Port(port ^ 1), false),
            (Network::Full, true),
        ] {
            let mut policy = machine.policy(layers);
            policy.network = network;
            machine.confined(&policy, "exec 3<>/dev/tcp/127.0.0.1/$PORT");
            assert_eq!(machine.was_connected(), reached, "{layers:?} {network:?}");
        }
    }
}

#[test]
fn limits_end_what_grows() {
    let machine = Machine::new();
    for layers in supports() {
        let mut policy = machine.policy(layers);
        policy.limits = Limits { file_size: Some(1 << 20), ..Limits::default() };
        let output = machine.confined(&policy, "head -c 2M /dev/zero >big; ulimit -c");
        assert!(text(&output).contains("0\n"), "{}", text(&output));
        assert!(std::fs::metadata(machine.work.join("big")).unwrap().len() <= 1 << 20);
        std::fs::remove_file(machine.work.join("big")).unwrap();
    }
}
