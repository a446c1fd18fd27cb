//! `petasos service` against a systemctl that writes down what it is told, and the unit against systemd itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{Gateway, failed, fine, json, petasos, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

/// Fails for the verb in `$REFUSE`; answers `show` with the file `shown`.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$@" >> "$DESK/calls"
[ "$1" = --user ] && shift
if [ "$1" = "$REFUSE" ]; then echo "Failed to $1: no medium found" >&2; exit 1; fi
if [ "$1" = show ]; then cat "$DESK/shown" 2>/dev/null; fi
exit 0
"#;

/// A user: a home for the gateway, a place for units, and a systemctl of their own.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self::with("model: {provider: demo}\nweb: {enabled: false}\n")
    }

    fn with(config: &str) -> Self {
        let desk = Self(TempDir::new().expect("a directory"));
        fs::create_dir_all(desk.home()).expect("home");
        fs::write(desk.home().join("config.yaml"), config).expect("config");
        fs::create_dir(desk.path("bin")).expect("bin");
        let program = desk.path("bin/systemctl");
        fs::write(&program, SYSTEMCTL).expect("systemctl");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// With everything in it that a unit file treats in its own way.
    fn home(&self) -> PathBuf {
        self.path("50% of $HOME \"q\"")
    }

    fn unit(&self) -> PathBuf {
        self.path("xdg/systemd/user/petasos.service")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = petasos(&self.home(), &["service"]);
        let path = std::env::var("PATH").expect("a path");
        command.args(args).env("PATH", format!("{}:{path}", self.path("bin").display()));
        command
            .env("DESK", self.0.path())
            .env("HOME", self.0.path())
            .env("XDG_CONFIG_HOME", self.path("xdg"));
        command.env_remove("GATEWAY_ALLOW_ALL_USERS").stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("petasos runs")
    }

    /// What systemctl was told since the last time.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        let _none = fs::remove_file(self.path("calls"));
        calls.lines().map(|call| call.split(" --property").next().unwrap_or_default().to_owned()).collect()
    }
}

#[test]
fn install_writes_enables_and_starts_and_says_each_step() {
    let desk = Desk::new();
    let output = desk.run(&["install"]);
    let said = fine(&output);
    assert_eq!(
        desk.calls(),
        ["--user daemon-reload", "--user enable petasos", "--user show", "--user start petasos"]
    );
    for step in ["wrote ", "read its units again", "enabled petasos", "started petasos"] {
        assert!(said.contains(step), "{step}: {said}");
    }
    assert!(stderr(&output).contains("loginctl enable-linger"), "{}", stderr(&output));
    let unit = fs::read_to_string(desk.unit()).expect("a unit");
    assert!(unit.starts_with("# Written by `petasos service install`"), "{unit}");
    assert_eq!(fine(&desk.run(&["install", "--print"])), unit);
    assert_eq!(desk.calls(), [""; 0]);
    // Once more: the same, and nothing to write.
    assert!(fine(&desk.run(&["install"])).contains("is up to date"));
}

#[test]
fn install_can_leave_the_start_to_the_next_login() {
    let desk = Desk::new();
    let told = json(&desk.run(&["install", "--no-start", "--name", "den", "--json"]));
    assert_eq!(
        (&told["name"], &told["started"], &told["changed"]),
        (&"petasos-den".into(), &false.into(), &true.into())
    );
    assert_eq!(
        told["unit"].as_str().map(Path::new),
        Some(desk.path("xdg/systemd/user/petasos-den.service").as_path())
    );
    assert_eq!(desk.calls(), ["--user daemon-reload", "--user enable petasos-den"]);
}

#[test]
fn a_configuration_that_cannot_be_used_is_found_before_anything_is_done() {
    let desk = Desk::with("model: {provider: anthropic}\n");
    assert!(failed(&desk.run(&["install"]), 78).contains("ANTHROPIC_API_KEY"));
    assert!(!desk.unit().exists() && desk.calls().is_empty());
}

#[test]
fn variables_of_the_shell_are_named_because_the_service_will_not_see_them() {
    let desk = Desk::new();
    let output = desk.command(&["install"]).env("GATEWAY_ALLOWED_USERS", "1").output().expect("runs");
    fine(&output);
    assert!(
        stderr(&output).contains("variables of this shell: GATEWAY_ALLOWED_USERS"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_unit_that_somebody_else_wrote_is_left_alone() {
    let desk = Desk::new();
    fs::create_dir_all(desk.unit().parent().expect("a directory")).expect("made");
    fs::write(desk.unit(), "[Service]\n").expect("written");
    assert!(failed(&desk.run(&["install"]), 1).contains("--force"));
    assert!(failed(&desk.run(&["uninstall"]), 1).contains("--force"));
    assert_eq!(fs::read_to_string(desk.unit()).expect("kept"), "[Service]\n");
    assert!(desk.calls().is_empty());
    assert_eq!(json(&desk.run(&["status", "--json"]))["ours"], false);
    fine(&desk.run(&["install", "--force"]));
    assert_eq!(json(&desk.run(&["status", "--json"]))["ours"], true);
}

#[test]
fn a_systemd_that_refuses_is_told_with_what_was_done_and_what_to_do() {
    let desk = Desk::new();
    let refused = |verb: &str, args: &[&str]| {
        failed(&desk.command(args).env("REFUSE", verb).output().expect("runs"), 1)
    };
    let said = refused("enable", &["install"]);
    assert!(said.contains("no medium found") && said.contains("done before that: wrote "), "{said}");
    assert!(said.contains("next: ") && said.contains("systemctl --user enable --now petasos"), "{said}");
    assert!(desk.unit().exists());
    let said = refused("start", &["install"]);
    assert!(said.contains("journalctl --user -u petasos"), "{said}");
    let said = refused("stop", &["uninstall"]);
    assert!(said.contains("nothing was changed") && desk.unit().exists(), "{said}");
    fine(&desk.command(&["uninstall", "--force"]).env("REFUSE", "stop").output().expect("runs"));
    assert!(!desk.unit().exists());
}

#[test]
fn without_systemctl_the_unit_can_be_seen_and_removed_but_not_installed() {
    let desk = Desk::new();
    let bare = |args: &[&str]| desk.command(args).env("PATH", desk.path("nothing")).output().expect("runs");
    assert!(fine(&bare(&["install", "--print"])).contains("[Service]"));
    let said = failed(&bare(&["install"]), 1);
    assert!(said.contains("no program systemctl") && said.contains("exit code 75"), "{said}");
    let told = json(&bare(&["status", "--json"]));
    assert_eq!((&told["installed"], &told["systemd"]), (&true.into(), &Value::Null));
    assert!(told["trouble"].as_str().is_some_and(|it| it.contains("systemctl")), "{told}");
    assert!(fine(&bare(&["status"])).contains("cannot be asked"));
    fine(&bare(&["uninstall"]));
    assert!(!desk.unit().exists());
}

#[test]
fn uninstall_stops_disables_removes_and_may_be_repeated() {
    let desk = Desk::new();
    fine(&desk.run(&["install"]));
    desk.calls();
    let said = fine(&desk.run(&["uninstall"]));
    assert_eq!(desk.calls(), ["--user stop petasos", "--user disable petasos", "--user daemon-reload"]);
    assert!(said.contains("removed ") && !desk.unit().exists(), "{said}");
    assert!(fine(&desk.run(&["uninstall"])).contains("not installed"));
    assert_eq!(json(&desk.run(&["uninstall", "--json"]))["steps"][0], "petasos is not installed");
}

#[test]
fn status_tells_what_is_installed_what_runs_and_what_has_changed() {
    let desk = Desk::new();
    assert!(fine(&desk.run(&["status"])).contains("not installed; petasos service install"));
    fine(&desk.run(&["install"]));
    fs::write(
        desk.path("shown"),
        "UnitFileState=enabled\nActiveState=active\nSubState=running\nMainPID=42\n\
         ActiveEnterTimestamp=Tue 2026-01-06 10:00:00 UTC\n",
    )
    .expect("written");
    let said = fine(&desk.run(&["status"]));
    assert!(said.contains("installed, up to date") && said.contains("enabled  enabled"), "{said}");
    assert!(said.contains("active (running), pid 42, since Tue 2026-01-06 10:00:00 UTC"), "{said}");
    let config = "model: {provider: demo}\nagent: {restart_drain_timeout: 100}\n";
    fs::write(desk.home().join("config.yaml"), config).expect("written");
    assert!(fine(&desk.run(&["status"])).contains("not as it would be now"));
    let told = json(&desk.run(&["status", "--json"]));
    assert_eq!((&told["up_to_date"], &told["systemd"]["pid"]), (&false.into(), &42.into()));
    let output = desk.run(&["install"]);
    fine(&output);
    assert!(stderr(&output).contains("systemctl --user restart petasos"), "{}", stderr(&output));
    assert!(fs::read_to_string(desk.unit()).expect("a unit").contains("TimeoutStopSec=130"));
    assert_eq!(json(&desk.run(&["status", "--json"]))["up_to_date"], true);
}

#[test]
fn a_gateway_that_runs_by_hand_is_not_fought_over() {
    let desk = Desk::new();
    let mut child = petasos(&desk.home(), &["run"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    crate::support::read_until(&mut child, "petasos chat");
    let gateway = Gateway::of(child);
    let said = failed(&desk.run(&["install"]), 1);
    assert!(
        said.contains(&format!("pid {}", gateway.pid())) && said.contains("petasos stop, then"),
        "{said}"
    );
    assert!(!desk.calls().contains(&"--user start petasos".to_owned()));
    gateway.kill();
}

#[test]
fn a_service_of_the_machine_runs_as_the_owner_of_the_home() {
    let desk = Desk::new();
    let unit = fine(&desk.run(&["install", "--system", "--print"]));
    for line in ["ProtectSystem=full", "WantedBy=multi-user.target", "After=network-online.target"] {
        assert!(unit.contains(line), "{line}: {unit}");
    }
    let told = json(&desk.run(&["install", "--system", "--print", "--json"]));
    assert_eq!(told["unit"], "/etc/systemd/system/petasos.service");
    let nowhere = desk.path("nowhere");
    let output = petasos(&nowhere, &["service", "install", "--system"]).output().expect("runs");
    assert!(failed(&output, 1).contains("install -d -m 700 -o USER"));
}

/// systemd reads both units as we mean them.
#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let version = Command::new("systemd-analyze").arg("--version").output();
    if version.is_err() {
        eprintln!("skipped: there is no systemd-analyze here");
        return;
    }
    let desk = Desk::with("model: {provider: demo}\ngateway: {systemd_watchdog_seconds: 30}\n");
    for (scope, install) in
        [("--user", &["install", "--print"][..]), ("--system", &["install", "--print", "--system"])]
    {
        let unit = desk.path("petasos.service");
        fs::write(&unit, fine(&desk.run(install))).expect("written");
        let verified = Command::new("systemd-analyze")
            .args(["verify", "--man=no", scope])
            .arg(&unit)
            .env("XDG_RUNTIME_DIR", desk.0.path())
            .output()
            .expect("runs");
        let said = format!("{}{}", stdout(&verified), stderr(&verified));
        let about_us = said.lines().filter(|line| line.contains("petasos")).collect::<Vec<_>>();
        assert!(verified.status.success() && about_us.is_empty(), "{scope}: {said}");
    }
}
