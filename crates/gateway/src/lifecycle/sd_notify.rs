//! Notifications to the service manager: ready, stopping, watchdog.
//!
//! Owns one datagram socket. Best effort: messages that cannot be sent are lost, and without `NOTIFY_SOCKET` everything
//! here does nothing. The `sd-notify` crate is not used because it reads the environment at every call, which tests cannot
//! change without `unsafe`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::debug;

const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Cheap to clone. The default does nothing.
#[derive(Debug, Clone, Default)]
pub struct Notifier {
    socket: Option<Arc<NotifySocket>>,
    watchdog: Option<Duration>,
}

#[derive(Debug)]
struct NotifySocket {
    socket: UnixDatagram,
    manager: SocketAddr,
    warned: AtomicBool,
}

impl Notifier {
    /// Reads `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    pub fn from_env(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let socket = lookup("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let socket = socket.and_then(|name| match open(&name) {
            Ok(socket) => Some(Arc::new(socket)),
            Err(error) => {
                debug!(%error, "cannot open the service manager's socket");
                None
            }
        });
        let number = |name: &str| lookup(name).and_then(|text| text.to_str()?.trim().parse::<u64>().ok());
        // A watchdog for another process, such as a wrapping shell, does not apply.
        let ours =
            lookup("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(std::process::id().into());
        let interval =
            number("WATCHDOG_USEC").filter(|micros| ours && *micros > 0).map(Duration::from_micros);
        Self { watchdog: interval.filter(|_| socket.is_some()), socket }
    }

    pub fn ready(&self) {
        self.send("READY=1");
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// One line for `systemctl status`; must not contain message text.
    pub fn status(&self, text: &str) {
        let plain = text.replace(|c: char| c.is_control(), " ");
        self.send(&format!("STATUS={plain}"));
    }

    /// Extends the start or stop timeout, counted from now.
    pub fn extend(&self, time: Duration) {
        self.send(&format!("EXTEND_TIMEOUT_USEC={}", time.as_micros()));
    }

    /// The watchdog timeout; call [`Self::alive`] at half of it. `None`: no watchdog.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog
    }

    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        let Some(notify) = &self.socket else { return };
        if let Err(error) = notify.socket.send_to_addr(message.as_bytes(), &notify.manager)
            && !notify.warned.swap(true, Ordering::Relaxed)
        {
            debug!(%error, "cannot notify the service manager");
        }
    }
}

fn open(name: &OsStr) -> io::Result<NotifySocket> {
    let manager = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "NOTIFY_SOCKET is no local socket")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
    Ok(NotifySocket { socket, manager, warned: AtomicBool::new(false) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notifier(env: &[(&str, &OsStr)]) -> Notifier {
        let lookup = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
        Notifier::from_env(lookup)
    }

    #[track_caller]
    fn expect_message(manager: &UnixDatagram, want: &str) {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).unwrap();
        assert_eq!(std::str::from_utf8(&bytes[..length]).unwrap(), want);
    }

    #[test]
    fn sends_messages_in_systemd_format() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = notifier(&[("NOTIFY_SOCKET", path.as_os_str())]);
        let calls: [(&dyn Fn(), &str); 5] = [
            (&|| notifier.ready(), "READY=1"),
            (&|| notifier.stopping(), "STOPPING=1"),
            (&|| notifier.clone().alive(), "WATCHDOG=1"),
            (&|| notifier.extend(Duration::from_millis(1500)), "EXTEND_TIMEOUT_USEC=1500000"),
            (&|| notifier.status("2 turns\nREADY=1"), "STATUS=2 turns READY=1"),
        ];
        for (call, want) in calls {
            call();
            expect_message(&manager, want);
        }
    }

    #[test]
    fn sends_to_abstract_socket() {
        let name = format!("petasos-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        notifier(&[("NOTIFY_SOCKET", format!("@{name}").as_ref())]).ready();
        expect_message(&manager, "READY=1");
    }

    #[test]
    fn ignores_missing_or_invalid_socket() {
        for socket in ["", "relative", "vsock:2:1", "/nowhere/notify"] {
            let notifier = notifier(&[("NOTIFY_SOCKET", socket.as_ref())]);
            notifier.ready();
            notifier.status("second error");
        }
        let silent = Notifier::default();
        silent.ready();
        assert_eq!(silent.watchdog_interval(), None);
    }

    #[test]
    fn uses_watchdog_only_in_the_process_it_names() {
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
        let without_socket = notifier(&[("WATCHDOG_USEC", "30000000".as_ref())]);
        assert_eq!(without_socket.watchdog_interval(), None);
    }
}
