//! A machine with secrets, listeners and other processes, and commands that run on it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use petasos_sandbox::paths::Readable;
use petasos_sandbox::{Limits, Network, Policy, Support, launcher};
use tempfile::TempDir;

pub const LAUNCHER: &str = env!("CARGO_BIN_EXE_sandbox-fixture");
pub const CANARY: &str = "canary-7f3a91";

pub fn support() -> Support {
    let support = Support::probe(Path::new(LAUNCHER)).unwrap();
    assert!(support.is_complete(), "these tests need Linux 6.12 with Landlock: {support:?}");
    support
}

/// All layers, and those without namespaces.
pub fn supports() -> Vec<Support> {
    let all = support();
    let mut supports = vec![all, Support { namespaces: false, ..all }];
    supports.dedup();
    supports
}

/// Home directories of the gateway and its owner. They are not in `/tmp`, which the sandbox replaces.
pub struct Machine {
    _root: TempDir,
    pub home: PathBuf,
    pub owner: PathBuf,
    pub work: PathBuf,
    session: PathBuf,
    unix: UnixListener,
    tcp: TcpListener,
    udp: UdpSocket,
    victim: Child,
    /// Standard input and output of the victim, which answers with what it gets.
    echo: UnixStream,
}

impl Machine {
    pub fn new() -> Self {
        let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let base = root.path().canonicalize().unwrap();
        let home = base.join("home");
        let owner = base.join("owner");
        let work = home.join("workspace");
        let session = home.join("terminal/sessions/own");
        for directory in [&work, &session.join("home"), &session.join("tmp"), &owner] {
            fs::create_dir_all(directory).unwrap();
        }
        for file in [home.join(".env"), owner.join(".ssh/id"), home.join("terminal/sessions/other/env")] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("KEY={CANARY}\n")).unwrap();
        }
        fs::write(home.join("config.yaml"), "model: {}\n").unwrap();
        fs::write(owner.join("notes"), "notes\n").unwrap();
        let unix = UnixListener::bind(home.join("s")).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        unix.set_nonblocking(true).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        let (echo, end) = UnixStream::pair().unwrap();
        echo.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut victim = Command::new("cat");
        victim.env("PRIVATE", CANARY).current_dir(&home).process_group(0).stderr(Stdio::null());
        victim.stdin(OwnedFd::from(end.try_clone().unwrap())).stdout(OwnedFd::from(end));
        let victim = victim.spawn().unwrap();
        Self { _root: root, home, owner, work, session, unix, tcp, udp, victim, echo }
    }

    pub fn policy(&self, layers: Support) -> Policy {
        let search = std::env::var_os("PATH").unwrap();
        let real_home = std::env::home_dir();
        let mut read = Readable::find(real_home.as_deref(), &search, std::slice::from_ref(&self.home)).paths;
        read.push(LAUNCHER.into());
        Policy {
            read,
            write: vec![self.work.clone(), self.session.join("home"), self.session.join("tmp")],
            protected: vec![],
            tmp: self.session.join("tmp"),
            network: Network::None,
            limits: Limits::default(),
            layers,
        }
    }

    pub fn confined(&self, policy: &Policy, script: &str) -> Output {
        let mut arguments = vec![OsString::from(LAUNCHER)];
        arguments.extend(launcher::arguments(policy).unwrap());
        self.run(arguments, script)
    }

    pub fn unconfined(&self, script: &str) -> Output {
        self.run(vec![], script)
    }

    fn run(&self, launcher: Vec<OsString>, script: &str) -> Output {
        let mut command = Command::new("timeout");
        command.arg("60").args(launcher).args(["bash", "-c", script]).current_dir(&self.work).env_clear();
        command.envs(self.environment()).stdin(Stdio::null());
        command.output().unwrap()
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let real = std::env::home_dir().unwrap_or_default();
        let udp = self.udp.local_addr().unwrap().port();
        vec![
            ("PATH", std::env::var_os("PATH").unwrap()),
            ("RUSTUP_HOME", real.join(".rustup").into()),
            ("PYENV_ROOT", real.join(".pyenv").into()),
            ("HOME", self.session.join("home").into()),
            ("TMPDIR", self.session.join("tmp").into()),
            ("LANG", "C.UTF-8".into()),
            ("SECRET", self.home.join(".env").into()),
            ("OTHER", self.home.join("terminal/sessions/other/env").into()),
            ("KEY", self.owner.join(".ssh/id").into()),
            ("OUTSIDE", self.owner.clone().into()),
            ("SOCKET", self.home.join("s").into()),
            ("PORT", self.port().to_string().into()),
            ("UDP", udp.to_string().into()),
            ("VICTIM", self.victim.id().to_string().into()),
            ("WORK", self.work.clone().into()),
            ("LAUNCHER", LAUNCHER.into()),
        ]
    }

    pub fn port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }

    pub fn was_connected(&mut self) -> bool {
        self.tcp.accept().is_ok()
    }

    /// Everything outside of the sandbox that a command could have changed, reached or read.
    pub fn observe(&mut self) -> Observation {
        let mut files = BTreeMap::new();
        for directory in [&self.home, &self.owner] {
            record(directory, &[&self.work, &self.session], &mut files);
        }
        let limits = Path::new("/proc").join(self.victim.id().to_string()).join("limits");
        let limits = fs::read_to_string(limits).unwrap_or_default();
        // A process with a pending signal does not answer.
        let mut answer = [0];
        let answers = self.echo.write_all(b"x").and_then(|()| self.echo.read_exact(&mut answer)).is_ok();
        let reached =
            [self.unix.accept().is_ok(), self.tcp.accept().is_ok(), self.udp.recv(&mut [0]).is_ok()];
        Observation { files, limits, answers, reached }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // An attack may have removed permissions.
        let _ = fs::set_permissions(&self.owner, fs::Permissions::from_mode(0o700));
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Observation {
    /// Mode and content.
    files: BTreeMap<PathBuf, (u32, Vec<u8>)>,
    limits: String,
    answers: bool,
    reached: [bool; 3],
}

fn record(path: &Path, except: &[&PathBuf], files: &mut BTreeMap<PathBuf, (u32, Vec<u8>)>) {
    let Ok(about) = path.symlink_metadata() else { return };
    if except.contains(&&path.to_owned()) {
        return;
    }
    let content = if about.is_file() { fs::read(path).unwrap_or_default() } else { vec![] };
    files.insert(path.to_owned(), (about.permissions().mode(), content));
    for entry in fs::read_dir(path).into_iter().flatten().flatten().filter(|_| about.is_dir()) {
        record(&entry.path(), except, files);
    }
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
