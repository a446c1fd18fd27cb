//! Telling the service manager how we are: ready, stopping, alive.
//!
//! Owns one datagram socket. It is a courtesy: no one waits for it, a message that cannot be sent is lost, and
//! without `NOTIFY_SOCKET` everything here does nothing. By hand, because the `sd-notify` crate takes its socket
//! from the environment of the process at every call, which no test can change without `unsafe`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::debug;

/// A service manager that does not read costs us no more than this.
const PATIENCE: Duration = Duration::from_secs(1);

/// Cheap to clone. The default one is silent.
#[derive(Debug, Clone, Default)]
pub struct Notifier {
    line: Option<Arc<Line>>,
    watchdog: Option<Duration>,
}

#[derive(Debug)]
struct Line {
    socket: UnixDatagram,
    manager: SocketAddr,
    /// One complaint is enough.
    complained: AtomicBool,
}

impl Notifier {
    /// As the service manager left it in the environment: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`.
    pub fn from_env(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let socket = lookup("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let line = socket.and_then(|name| match open(&name) {
            Ok(line) => Some(Arc::new(line)),
            Err(error) => {
                debug!(%error, "the service manager cannot be told anything");
                None
            }
        });
        let number = |name: &str| lookup(name).and_then(|text| text.to_str()?.trim().parse::<u64>().ok());
        // A watchdog that was set for another process, such as a shell around us, is not ours to feed.
        let ours =
            lookup("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(std::process::id().into());
        let interval =
            number("WATCHDOG_USEC").filter(|micros| ours && *micros > 0).map(Duration::from_micros);
        Self { watchdog: interval.filter(|_| line.is_some()), line }
    }

    /// Everything is up.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// The end has begun.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// One line for `systemctl status`. Never message text.
    pub fn status(&self, line: &str) {
        let plain = line.replace(|c: char| c.is_control(), " ");
        self.send(&format!("STATUS={plain}"));
    }

    /// Start or stop takes longer: give us this much more, counted from now.
    pub fn extend(&self, time: Duration) {
        self.send(&format!("EXTEND_TIMEOUT_USEC={}", time.as_micros()));
    }

    /// After this much silence we are taken to hang; half of it is a good rhythm. `None`: nobody watches.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Feeds the watchdog.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        let Some(line) = &self.line else { return };
        if let Err(error) = line.socket.send_to_addr(message.as_bytes(), &line.manager)
            && !line.complained.swap(true, Ordering::Relaxed)
        {
            debug!(%error, "the service manager does not listen");
        }
    }
}

fn open(name: &OsStr) -> io::Result<Line> {
    let manager = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "NOTIFY_SOCKET is no local socket")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(Line { socket, manager, complained: AtomicBool::new(false) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notifier(env: &[(&str, &OsStr)]) -> Notifier {
        let lookup = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
        Notifier::from_env(lookup)
    }

    #[track_caller]
    fn hears(manager: &UnixDatagram, want: &str) {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).unwrap();
        assert_eq!(std::str::from_utf8(&bytes[..length]).unwrap(), want);
    }

    #[test]
    fn everything_arrives_in_the_words_of_systemd() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = notifier(&[("NOTIFY_SOCKET", path.as_os_str())]);
        let said: [(&dyn Fn(), &str); 5] = [
            (&|| notifier.ready(), "READY=1"),
            (&|| notifier.stopping(), "STOPPING=1"),
            (&|| notifier.clone().alive(), "WATCHDOG=1"),
            (&|| notifier.extend(Duration::from_millis(1500)), "EXTEND_TIMEOUT_USEC=1500000"),
            (&|| notifier.status("2 turns\nREADY=1"), "STATUS=2 turns READY=1"),
        ];
        for (say, want) in said {
            say();
            hears(&manager, want);
        }
    }

    #[test]
    fn a_socket_without_a_file_works_too() {
        let name = format!("petasos-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        notifier(&[("NOTIFY_SOCKET", format!("@{name}").as_ref())]).ready();
        hears(&manager, "READY=1");
    }

    #[test]
    fn nobody_there_is_no_trouble() {
        for socket in ["", "relative", "vsock:2:1", "/nowhere/notify"] {
            let notifier = notifier(&[("NOTIFY_SOCKET", socket.as_ref())]);
            notifier.ready();
            notifier.status("twice is told once");
        }
        let silent = Notifier::default();
        silent.ready();
        assert_eq!(silent.watchdog_interval(), None);
    }

    #[test]
    fn a_watchdog_is_fed_by_the_process_it_was_set_for() {
        let ours = std::process::id().to_string();
        let check = |usec: &str, pid: Option<&str>, want: Option<u64>| {
            let mut env = vec![("NOTIFY_SOCKET", "/run/notify".as_ref()), ("WATCHDOG_USEC", usec.as_ref())];
            env.extend(pid.map(|pid| ("WATCHDOG_PID", OsStr::new(pid))));
            let want = want.map(Duration::from_secs);
            assert_eq!(notifier(&env).watchdog_interval(), want, "{usec} {pid:?}");
        };
        check("30000000", None, Some(30));
        check("30000000", Some(&ours), Some(30));
        check("30000000", Some("1"), None);
        check("30000000", Some("me"), None);
        check("0", Some(&ours), None);
        check("often", None, None);
        let deaf = notifier(&[("WATCHDOG_USEC", "30000000".as_ref())]);
        assert_eq!(deaf.watchdog_interval(), None);
    }
}
