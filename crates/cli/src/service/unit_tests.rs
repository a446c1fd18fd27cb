//! Complete units, and quoting of unusual paths.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;

fn unit<'a>(program: &'a str, home: &'a str) -> UnitFile<'a> {
    UnitFile {
        service: "petasos",
        scope: Scope::User,
        program: Path::new(program),
        home: Path::new(home),
        user: None,
        writable: &[],
        drain: Duration::from_secs(60),
        watchdog: None,
    }
}

#[test]
fn renders_user_unit() {
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
KeyringMode=private
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=user pid net mnt ipc uts
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap

[Install]
WantedBy=default.target
";
    assert_eq!(unit("/usr/bin/petasos", "/home/ann/.petasos").text().unwrap(), want);
}

#[test]
fn renders_system_unit() {
    let unit = UnitFile {
        service: "petasos-den",
        scope: Scope::System,
        user: Some(1000),
        writable: &["/home/ann".into()],
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
KeyringMode=private
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=user pid net mnt ipc uts
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap
CapabilityBoundingSet=
DevicePolicy=closed
PrivateDevices=yes
PrivateMounts=yes
PrivateTmp=yes
PrivateUsers=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=read-only
ProtectKernelModules=yes
ProtectProc=invisible
ProtectSystem=strict
RemoveIPC=yes
ReadWritePaths=-/srv/petasos
ReadWritePaths=-/home/ann

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
fn quotes_unusual_paths() {
    let unit = UnitFile {
        scope: Scope::System,
        ..unit("/opt/my $1 100%/petasos", r#"/a b/50%/$HOME/"q"/it's/back\slash"#)
    };
    let text = unit.text().unwrap();
    let program = r#""/opt/my $1 100%%/petasos""#;
    let home = r#""/a b/50%%/$$HOME/\"q\"/it's/back\\slash""#;
    assert_eq!(line(&text, "ExecStart"), format!("{program} --home {home} run"));
    assert_eq!(line(&text, "ExecStop"), format!("-{program} --home {home} stop"));
    // Variables are expanded in command lines only.
    let home = r#"/a b/50%%/$HOME/\"q\"/it's/back\\slash""#;
    assert_eq!(line(&text, "Environment"), format!(r#""PETASOS_HOME={home}"#));
    assert_eq!(line(&text, "ReadWritePaths"), format!(r#""-{home}"#));
}

#[test]
fn quotes_words_with_a_special_character() {
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
fn refuses_paths_that_systemd_cannot_hold() {
    let error = |unit: UnitFile<'_>| unit.text().unwrap_err().to_string();
    assert!(error(unit("/it's/petasos", "/h")).contains("quotes or backslashes"));
    assert!(error(unit(r"/back\slash/petasos", "/h")).contains("quotes or backslashes"));
    assert!(error(unit("/p", "/two\nlines")).contains("control characters"));
    let home = Path::new(OsStr::from_bytes(b"/caf\xe9"));
    assert!(error(UnitFile { home, ..unit("/p", "/h") }).contains("not UTF-8"));
}

#[test]
fn stop_timeout_covers_drain_and_is_at_least_a_minute() {
    let stop = |drain: Duration| {
        let text = UnitFile { drain, ..unit("/p", "/h") }.text().unwrap();
        line(&text, "TimeoutStopSec").to_owned()
    };
    assert_eq!(stop(Duration::ZERO), "60");
    assert_eq!(stop(Duration::from_secs(30)), "60");
    assert_eq!(stop(Duration::from_secs(31)), "61");
    assert_eq!(stop(Duration::from_millis(45_500)), "75500ms");
    assert_eq!(stop(Duration::MAX), "infinity");
}
