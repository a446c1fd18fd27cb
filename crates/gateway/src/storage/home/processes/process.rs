//! Process identity: the pid, and the start time that tells reused pids apart.

use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::home::files::read::{self, or_default};

/// Value of `kind` in all compatible gateways.
pub const KIND: &str = "hermes-gateway";

/// A process as `gateway.pid`, `gateway.lock` and `gateway_state.json` describe it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    pub pid: u32,
    #[serde(default, deserialize_with = "or_default")]
    pub kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub argv: Vec<String>,
    /// Start time in ticks since boot. `None`: unknown.
    #[serde(default, deserialize_with = "or_default")]
    pub start_time: Option<u64>,
}

impl ProcessRecord {
    pub fn of_this_process() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            kind: KIND.into(),
            argv: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            start_time: start_time_of(pid),
        }
    }

    /// Parses a record, or the bare pid that older programs write.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bare = |pid| Self { pid, kind: String::new(), argv: Vec::new(), start_time: None };
        let record: Self = read::object(bytes).or_else(|_| serde_json::from_slice(bytes).map(bare)).ok()?;
        (record.pid > 0).then_some(record)
    }

    /// Whether this process still runs. Zombies do not count.
    pub fn is_alive(&self) -> bool {
        let Some(stat) = ProcStat::of(self.pid) else {
            return exists(self.pid);
        };
        let same = match (self.start_time, stat.start_time) {
            (Some(recorded), Some(now)) => recorded == now,
            (Some(_) | None, None) | (None, Some(_)) => true,
        };
        same && !matches!(stat.state, 'Z' | 'X' | 'x')
    }

    /// Whether the process is stopped by a signal or a debugger.
    pub fn is_suspended(&self) -> bool {
        ProcStat::of(self.pid).is_some_and(|stat| matches!(stat.state, 'T' | 't'))
    }

    pub fn is_same(&self, other: &Self) -> bool {
        self.pid == other.pid && self.start_time == other.start_time
    }
}

/// In ticks since boot. `None`: no such process, or no `/proc`.
pub fn start_time_of(pid: u32) -> Option<u64> {
    ProcStat::of(pid)?.start_time
}

/// Whether a process has the command line of a gateway. `false` if it cannot be read.
pub fn is_gateway(pid: u32) -> bool {
    let Ok(line) = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")) else {
        return false;
    };
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    runs_gateway(&words.map(String::from_utf8_lossy).collect::<Vec<_>>())
}

/// Matches `petasos [gateway] run` and `hermes gateway run|restart`, with any interpreter and options.
pub fn runs_gateway(argv: &[impl AsRef<str>]) -> bool {
    let words: Vec<&str> = argv.iter().map(AsRef::as_ref).collect();
    let program = |word: &&str| Program::of(word);
    let Some((at, program)) =
        words.iter().take(MAX_PREFIX_WORDS).enumerate().find_map(|(at, word)| Some((at, program(word)?)))
    else {
        return false;
    };
    matches!(
        (program, commands(&words[at + 1..]).as_slice()),
        (Program::Petasos, ["run", ..] | ["gateway", "run", ..])
            | (Program::Hermes, ["gateway", "run" | "restart", ..])
    )
}

/// Words before the program's name: an interpreter and its options.
const MAX_PREFIX_WORDS: usize = 5;
const OPTIONS_WITH_VALUE: [&str; 3] = ["--home", "-p", "--profile"];

enum Program {
    Petasos,
    Hermes,
}

impl Program {
    fn of(word: &str) -> Option<Self> {
        match word.rsplit('/').next().unwrap_or(word) {
            "petasos" => Some(Self::Petasos),
            "hermes" | "hermes_cli.main" => Some(Self::Hermes),
            "main.py" if word.ends_with("hermes_cli/main.py") => Some(Self::Hermes),
            _ => None,
        }
    }
}

/// The arguments without options and their values.
fn commands<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut words = words.iter();
    let mut commands = Vec::new();
    while let Some(word) = words.next() {
        if OPTIONS_WITH_VALUE.contains(word) {
            words.next();
        } else if !word.starts_with('-') {
            commands.push(*word);
        }
    }
    commands
}

struct ProcStat {
    state: char,
    start_time: Option<u64>,
}

impl ProcStat {
    fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&stat))
    }

    /// Fields are counted after the process name, which may contain brackets and spaces.
    fn parse(stat: &str) -> Option<Self> {
        let (_, behind) = stat.rsplit_once(')')?;
        let mut fields = behind.split_whitespace();
        let state = fields.next()?.chars().next()?;
        Some(Self { state, start_time: fields.nth(18).and_then(|ticks| ticks.parse().ok()) })
    }
}

/// Fallback for systems without `/proc`, or with a restricted one.
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0).and_then(Pid::from_raw);
    pid.is_some_and(|pid| matches!(test_kill_process(pid), Ok(()) | Err(Errno::PERM)))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::home::files::testing::JUNK;

    #[test]
    fn process_is_alive_only_with_its_start_time() {
        let me = ProcessRecord::of_this_process();
        assert!(me.is_alive() && me.is_same(&me) && me.start_time.is_some());
        assert!(ProcessRecord { start_time: None, ..me.clone() }.is_alive());
        let reborn = ProcessRecord { start_time: Some(1), ..me.clone() };
        assert!(!reborn.is_alive() && !reborn.is_same(&me));
        assert_eq!(ProcessRecord::parse(&serde_json::to_vec(&me).unwrap()), Some(me));
    }

    #[test]
    fn zombies_and_unused_pids_are_not_alive() {
        let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
        let record = ProcessRecord { pid: child.id(), start_time: None, ..ProcessRecord::of_this_process() };
        // After its output ends, the child is a zombie until it is waited for.
        std::io::copy(child.stdout.as_mut().unwrap(), &mut std::io::sink()).unwrap();
        while ProcStat::of(record.pid).is_some_and(|stat| stat.state != 'Z') {
            std::thread::yield_now();
        }
        assert!(!record.is_alive());
        child.wait().unwrap();
        assert!(!record.is_alive());
        for pid in [0, u32::MAX, i32::MAX as u32 + 1] {
            assert!(!ProcessRecord { pid, ..record.clone() }.is_alive(), "{pid}");
        }
        assert!(exists(std::process::id()));
    }

    #[test]
    fn parses_valid_fields_of_a_record() {
        for (text, want) in [
            ("18998\n", Some((18998, None))),
            (r#"{"pid":7}"#, Some((7, None))),
            (r#"{"pid":7,"kind":1,"argv":"x","start_time":76366,"more":[]}"#, Some((7, Some(76366)))),
            (r#"{"pid":7,"start_time":-1}"#, Some((7, None))),
            (r#"{"pid":0}"#, None),
            (r#"{"pid":"7"}"#, None),
            (r#"{"kind":"hermes-gateway"}"#, None),
            ("0", None),
        ] {
            let read = ProcessRecord::parse(text.as_bytes()).map(|record| (record.pid, record.start_time));
            assert_eq!(read, want, "{text}");
        }
        for junk in JUNK {
            assert_eq!(ProcessRecord::parse(junk), None, "{junk:?}");
        }
    }

    #[test]
    fn record_can_be_flattened_into_another_struct() {
        #[derive(Serialize, Deserialize)]
        struct Outer {
            #[serde(flatten)]
            process: ProcessRecord,
            url: Option<String>,
        }
        let text = r#"{"pid":7,"kind":"k","argv":["a"],"start_time":3,"url":"u"}"#;
        let outer: Outer = serde_json::from_str(text).unwrap();
        assert_eq!((outer.process.start_time, outer.url.as_deref()), (Some(3), Some("u")));
        assert_eq!(serde_json::to_string(&outer).unwrap(), text);
    }

    #[test]
    fn recognises_gateway_command_lines() {
        for (line, want) in [
            ("petasos run", true),
            ("/opt/bin/petasos --home /srv/run gateway run", true),
            ("petasos -v --home=/x run --json", true),
            ("/usr/bin/python3 /usr/local/bin/hermes gateway run", true),
            ("hermes -p coder gateway restart", true),
            ("python -u -m hermes_cli.main gateway run --replace", true),
            ("python /x/hermes_cli/main.py gateway run", true),
            ("petasos chat run", false),
            ("petasos --home run status", false),
            ("hermes gateway stop", false),
            ("hermes run", false),
            ("vim petasos run.txt", false),
            ("cargo run", false),
            ("", false),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(runs_gateway(&words), want, "{line}");
        }
        assert!(!is_gateway(std::process::id()) && !is_gateway(u32::MAX));
    }

    #[test]
    fn stat_fields_start_after_the_last_bracket() {
        let behind = "S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 76366 9 9";
        for name in ["(bash)", "(a b) c)", "(()", "(:)"] {
            let stat = ProcStat::parse(&format!("1 {name} {behind}")).unwrap();
            assert_eq!((stat.state, stat.start_time), ('S', Some(76366)), "{name}");
        }
        assert!(ProcStat::parse("").is_none() && ProcStat::parse("1 (x)").is_none());
        assert_eq!(ProcStat::parse("1 (x) S 1").unwrap().start_time, None);
    }
}
