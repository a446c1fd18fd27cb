//! `petasos service` with a fake systemctl that records its calls, and the unit checked by systemd.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{GatewayProcess, expect_failure, expect_json, expect_success, petasos, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

/// Fails for the verb in `$REFUSE`; prints the file `shown` for `show`.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$@" >> "$FAKE_SYSTEMD/calls"
[ "$1" = --user ] && shift
if [ "$1" = "$REFUSE" ]; then echo "Failed to $1: no medium found" >&2; exit 1; fi
if [ "$1" = show ]; then cat "$FAKE_SYSTEMD/shown" 2>/dev/null; fi
exit 0
"#;

/// A gateway home, a folder for units, and a fake systemctl.
struct ServiceFixture(TempDir);

impl ServiceFixture {
    fn new() -> Self {
        Self::with("model: {provider: demo}\nweb: {enabled: false}\n")
    }

    fn with(config: &str) -> Self {
        let fixture = Self(TempDir::new().expect("a directory"));
        fs::create_dir_all(fixture.home()).expect("home");
        fs::write(fixture.home().join("config.yaml"), config).expect("config");
        fs::create_dir(fixture.path("bin")).expect("bin");
        let program = fixture.path("bin/systemctl");
        fs::write(&program, SYSTEMCTL).expect("systemctl");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The name contains every character that unit files treat specially.
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
            .env("FAKE_SYSTEMD", self.0.path())
            .env("HOME", self.0.path())
            .env("XDG_CONFIG_HOME", self.path("xdg"));
        command.env_remove("GATEWAY_ALLOW_ALL_USERS").stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("petasos runs")
    }

    /// The calls of systemctl since the last query.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        let _none = fs::remove_file(self.path("calls"));
        calls.lines().map(|call| call.split(" --property").next().unwrap_or_default().to_owned()).collect()
    }
}

#[test]
fn install_writes_enables_and_starts_the_unit() {
    let fixture = ServiceFixture::new();
    let output = fixture.run(&["install"]);
    let said = expect_success(&output);
    assert_eq!(
        fixture.calls(),
        ["--user daemon-reload", "--user enable petasos", "--user show", "--user start petasos"]
    );
    for step in ["wrote ", "reloaded the units of systemd", "enabled petasos", "started petasos"] {
        assert!(said.contains(step), "{step}: {said}");
    }
    assert!(stderr(&output).contains("loginctl enable-linger"), "{}", stderr(&output));
    let unit = fs::read_to_string(fixture.unit()).expect("a unit");
    assert!(unit.starts_with("# Written by `petasos service install`"), "{unit}");
    assert_eq!(expect_success(&fixture.run(&["install", "--print"])), unit);
    assert_eq!(fixture.calls(), [""; 0]);
    assert!(expect_success(&fixture.run(&["install"])).contains("is up to date"));
}

#[test]
fn install_no_start_only_enables_the_unit() {
    let fixture = ServiceFixture::new();
    let report = expect_json(&fixture.run(&["install", "--no-start", "--name", "den", "--json"]));
    assert_eq!(
        (&report["name"], &report["started"], &report["changed"]),
        (&"petasos-den".into(), &false.into(), &true.into())
    );
    assert_eq!(
        report["unit"].as_str().map(Path::new),
        Some(fixture.path("xdg/systemd/user/petasos-den.service").as_path())
    );
    assert_eq!(fixture.calls(), ["--user daemon-reload", "--user enable petasos-den"]);
}

#[test]
fn install_checks_configuration_first() {
    let fixture = ServiceFixture::with("model: {provider: anthropic}\n");
    assert!(expect_failure(&fixture.run(&["install"]), 78).contains("ANTHROPIC_API_KEY"));
    assert!(!fixture.unit().exists() && fixture.calls().is_empty());
}

#[test]
fn install_warns_about_shell_variables() {
    let fixture = ServiceFixture::new();
    let output = fixture.command(&["install"]).env("GATEWAY_ALLOWED_USERS", "1").output().expect("runs");
    expect_success(&output);
    assert!(
        stderr(&output).contains("variables of this shell: GATEWAY_ALLOWED_USERS"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn leaves_foreign_unit_file_alone() {
    let fixture = ServiceFixture::new();
    fs::create_dir_all(fixture.unit().parent().expect("a directory")).expect("made");
    fs::write(fixture.unit(), "[Service]\n").expect("written");
    assert!(expect_failure(&fixture.run(&["install"]), 1).contains("--force"));
    assert!(expect_failure(&fixture.run(&["uninstall"]), 1).contains("--force"));
    assert_eq!(fs::read_to_string(fixture.unit()).expect("kept"), "[Service]\n");
    assert!(fixture.calls().is_empty());
    assert_eq!(expect_json(&fixture.run(&["status", "--json"]))["ours"], false);
    expect_success(&fixture.run(&["install", "--force"]));
    assert_eq!(expect_json(&fixture.run(&["status", "--json"]))["ours"], true);
}

#[test]
fn systemctl_failure_reports_done_and_next_steps() {
    let fixture = ServiceFixture::new();
    let refused = |verb: &str, args: &[&str]| {
        expect_failure(&fixture.command(args).env("REFUSE", verb).output().expect("runs"), 1)
    };
    let said = refused("enable", &["install"]);
    assert!(said.contains("no medium found") && said.contains("completed before that: wrote "), "{said}");
    assert!(said.contains("next: ") && said.contains("systemctl --user enable --now petasos"), "{said}");
    assert!(fixture.unit().exists());
    let said = refused("start", &["install"]);
    assert!(said.contains("journalctl --user -u petasos"), "{said}");
    let said = refused("stop", &["uninstall"]);
    assert!(said.contains("nothing was changed") && fixture.unit().exists(), "{said}");
    expect_success(&fixture.command(&["uninstall", "--force"]).env("REFUSE", "stop").output().expect("runs"));
    assert!(!fixture.unit().exists());
}

#[test]
fn works_without_systemctl_except_for_install() {
    let fixture = ServiceFixture::new();
    let bare =
        |args: &[&str]| fixture.command(args).env("PATH", fixture.path("nothing")).output().expect("runs");
    assert!(expect_success(&bare(&["install", "--print"])).contains("[Service]"));
    let said = expect_failure(&bare(&["install"]), 1);
    assert!(said.contains("systemctl was not found") && said.contains("exit code 75"), "{said}");
    let report = expect_json(&bare(&["status", "--json"]));
    assert_eq!((&report["installed"], &report["systemd"]), (&true.into(), &Value::Null));
    assert!(report["trouble"].as_str().is_some_and(|it| it.contains("systemctl")), "{report}");
    assert!(expect_success(&bare(&["status"])).contains("unavailable"));
    expect_success(&bare(&["uninstall"]));
    assert!(!fixture.unit().exists());
}

#[test]
fn uninstall_is_complete_and_repeatable() {
    let fixture = ServiceFixture::new();
    expect_success(&fixture.run(&["install"]));
    fixture.calls();
    let said = expect_success(&fixture.run(&["uninstall"]));
    assert_eq!(fixture.calls(), ["--user stop petasos", "--user disable petasos", "--user daemon-reload"]);
    assert!(said.contains("removed ") && !fixture.unit().exists(), "{said}");
    assert!(expect_success(&fixture.run(&["uninstall"])).contains("not installed"));
    assert_eq!(expect_json(&fixture.run(&["uninstall", "--json"]))["steps"][0], "petasos is not installed");
}

#[test]
fn service_status_shows_unit_process_and_changes() {
    let fixture = ServiceFixture::new();
    assert!(expect_success(&fixture.run(&["status"])).contains("not installed; petasos service install"));
    expect_success(&fixture.run(&["install"]));
    fs::write(
        fixture.path("shown"),
        "UnitFileState=enabled\nActiveState=active\nSubState=running\nMainPID=42\n\
         ActiveEnterTimestamp=Tue 2026-01-06 10:00:00 UTC\n",
    )
    .expect("written");
    let said = expect_success(&fixture.run(&["status"]));
    assert!(said.contains("installed, up to date") && said.contains("enabled  enabled"), "{said}");
    assert!(said.contains("active (running), pid 42, since Tue 2026-01-06 10:00:00 UTC"), "{said}");
    let config = "model: {provider: demo}\nagent: {restart_drain_timeout: 100}\n";
    fs::write(fixture.home().join("config.yaml"), config).expect("written");
    assert!(expect_success(&fixture.run(&["status"])).contains("outdated"));
    let report = expect_json(&fixture.run(&["status", "--json"]));
    assert_eq!((&report["up_to_date"], &report["systemd"]["pid"]), (&false.into(), &42.into()));
    let output = fixture.run(&["install"]);
    expect_success(&output);
    assert!(stderr(&output).contains("systemctl --user restart petasos"), "{}", stderr(&output));
    assert!(fs::read_to_string(fixture.unit()).expect("a unit").contains("TimeoutStopSec=130"));
    assert_eq!(expect_json(&fixture.run(&["status", "--json"]))["up_to_date"], true);
}

#[test]
fn install_refuses_while_gateway_runs_manually() {
    let fixture = ServiceFixture::new();
    let mut child = petasos(&fixture.home(), &["run"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    crate::support::read_until(&mut child, "petasos chat");
    let gateway = GatewayProcess::new(child);
    let said = expect_failure(&fixture.run(&["install"]), 1);
    assert!(
        said.contains(&format!("pid {}", gateway.pid())) && said.contains("petasos stop, then"),
        "{said}"
    );
    assert!(!fixture.calls().contains(&"--user start petasos".to_owned()));
    gateway.kill();
}

#[test]
fn system_service_runs_as_owner_of_the_home() {
    let fixture = ServiceFixture::new();
    let unit = expect_success(&fixture.run(&["install", "--system", "--print"]));
    for line in ["ProtectSystem=strict", "WantedBy=multi-user.target", "After=network-online.target"] {
        assert!(unit.contains(line), "{line}: {unit}");
    }
    let report = expect_json(&fixture.run(&["install", "--system", "--print", "--json"]));
    assert_eq!(report["unit"], "/etc/systemd/system/petasos.service");
    let nowhere = fixture.path("nowhere");
    let output = petasos(&nowhere, &["service", "install", "--system"]).output().expect("runs");
    assert!(expect_failure(&output, 1).contains("install -d -m 700 -o USER"));
}

/// Maximum ratings of `systemd-analyze security`, times ten. A user manager has no mounts and no capabilities.
const SYSTEM_EXPOSURE: &str = "26";
const USER_EXPOSURE: &str = "73";

#[test]
fn systemd_accepts_and_rates_the_units() {
    let version = Command::new("systemd-analyze").arg("--version").output();
    if version.is_err() {
        eprintln!("skipped: there is no systemd-analyze here");
        return;
    }
    let fixture = ServiceFixture::with("model: {provider: demo}\ngateway: {systemd_watchdog_seconds: 30}\n");
    // Root owns the home of a test in a container; a service of root is rated lower.
    if fs::metadata(fixture.home()).expect("a home").uid() == 0 {
        std::os::unix::fs::chown(fixture.home(), Some(1000), Some(1000)).expect("root changes owners");
    }
    for (scope, install) in
        [("--user", &["install", "--print"][..]), ("--system", &["install", "--print", "--system"])]
    {
        let unit = fixture.path("petasos.service");
        fs::write(&unit, expect_success(&fixture.run(install))).expect("written");
        let verified = Command::new("systemd-analyze")
            .args(["verify", "--man=no", scope])
            .arg(&unit)
            .env("XDG_RUNTIME_DIR", fixture.0.path())
            .output()
            .expect("runs");
        let said = format!("{}{}", stdout(&verified), stderr(&verified));
        let about_us = said.lines().filter(|line| line.contains("petasos")).collect::<Vec<_>>();
        assert!(verified.status.success() && about_us.is_empty(), "{scope}: {said}");
        let threshold = if scope == "--user" { USER_EXPOSURE } else { SYSTEM_EXPOSURE };
        let rated = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager", "--threshold", threshold])
            .arg(&unit)
            .output()
            .expect("runs");
        assert!(rated.status.success(), "{scope}: {}{}", stdout(&rated), stderr(&rated));
    }
}
