//! Whole units as they are written, and every way a path can be odd.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;

fn unit<'a>(program: &'a str, home: &'a str) -> Unit<'a> {
    Unit {
        service: "petasos",
        scope: Scope::User,
        program: Path::new(program),
        home: Path::new(home),
        user: None,
        drain: Duration::from_secs(60),
        watchdog: None,
    }
}

#[test]
fn a_unit_for_the_users_own_manager() {
    let want = "\
# Written by `petasos service install`, which also replaces it.

[Unit]
Description=Petasos gateway (petasos)
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
Environment=PETASOS_HOME=/home/ann/.petasos
ExecStartPre=-/usr/bin/petasos --home /home/ann/.petasos config check
ExecStart=/usr/bin/petasos --home /home/ann/.petasos run
ExecReload=/bin/kill -USR1 $MAINPID
ExecStop=-/usr/bin/petasos --home /home/ann/.petasos stop
Restart=always
RestartSec=5
RestartForceExitStatus=75
RestartPreventExitStatus=78
KillMode=mixed
TimeoutStartSec=600
TimeoutStopSec=90
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
";
    assert_eq!(unit("/usr/bin/petasos", "/home/ann/.petasos").text().unwrap(), want);
}

#[test]
fn a_unit_for_the_systems_manager() {
    let unit = Unit {
        service: "petasos-den",
        scope: Scope::System,
        user: Some(1000),
        drain: Duration::ZERO,
        watchdog: Some(Duration::from_secs(30)),
        ..unit("/usr/bin/petasos", "/srv/petasos")
    };
    let want = "\
# Written by `petasos service install`, which also replaces it.

[Unit]
Description=Petasos gateway (petasos-den)
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
User=1000
Environment=PETASOS_HOME=/srv/petasos
ExecStartPre=-/usr/bin/petasos --home /srv/petasos config check
ExecStart=/usr/bin/petasos --home /srv/petasos run
ExecReload=/bin/kill -USR1 $MAINPID
ExecStop=-/usr/bin/petasos --home /srv/petasos stop
Restart=always
RestartSec=5
RestartForceExitStatus=75
RestartPreventExitStatus=78
KillMode=mixed
TimeoutStartSec=600
TimeoutStopSec=60
WatchdogSec=30
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=full
ReadWritePaths=-/srv/petasos

[Install]
WantedBy=multi-user.target
";
    assert_eq!(unit.text().unwrap(), want);
}

#[track_caller]
fn line<'a>(text: &'a str, key: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap()
}

#[test]
fn odd_paths_reach_the_program_as_they_are() {
    let unit = Unit {
        scope: Scope::System,
        ..unit("/opt/my $1 100%/petasos", r#"/a b/50%/$HOME/"q"/it's/back\slash"#)
    };
    let text = unit.text().unwrap();
    let program = r#""/opt/my $1 100%%/petasos""#;
    let home = r#""/a b/50%%/$$HOME/\"q\"/it's/back\\slash""#;
    assert_eq!(line(&text, "ExecStart"), format!("{program} --home {home} run"));
    assert_eq!(line(&text, "ExecStop"), format!("-{program} --home {home} stop"));
    // Variables are replaced in command lines only.
    let home = r#"/a b/50%%/$HOME/\"q\"/it's/back\\slash""#;
    assert_eq!(line(&text, "Environment"), format!(r#""PETASOS_HOME={home}"#));
    assert_eq!(line(&text, "ReadWritePaths"), format!(r#""-{home}"#));
}

#[test]
fn a_single_odd_character_is_enough_for_quotes() {
    for (text, want) in [
        ("/plain/path-1_2.3", "/plain/path-1_2.3"),
        ("/50%", r#""/50%%""#),
        ("/$x", r#""/$$x""#),
        ("/a;b", r#""/a;b""#),
        ("/'", r#""/'""#),
        ("/größe", r#""/größe""#),
    ] {
        assert_eq!(argument(text), want);
    }
}

#[test]
fn paths_that_no_unit_can_hold_are_refused_with_the_reason() {
    let why = |unit: Unit<'_>| unit.text().unwrap_err().to_string();
    assert!(why(unit("/it's/petasos", "/h")).contains("quotes or backslashes"));
    assert!(why(unit(r"/back\slash/petasos", "/h")).contains("quotes or backslashes"));
    assert!(why(unit("/p", "/two\nlines")).contains("control characters"));
    let home = Path::new(OsStr::from_bytes(b"/caf\xe9"));
    assert!(why(Unit { home, ..unit("/p", "/h") }).contains("not UTF-8"));
}

#[test]
fn a_stop_has_the_time_its_drain_needs_and_never_less_than_a_minute() {
    let stop = |drain: Duration| {
        let text = Unit { drain, ..unit("/p", "/h") }.text().unwrap();
        line(&text, "TimeoutStopSec").to_owned()
    };
    assert_eq!(stop(Duration::ZERO), "60");
    assert_eq!(stop(Duration::from_secs(30)), "60");
    assert_eq!(stop(Duration::from_secs(31)), "61");
    assert_eq!(stop(Duration::from_millis(45_500)), "75500ms");
    assert_eq!(stop(Duration::MAX), "infinity");
}
