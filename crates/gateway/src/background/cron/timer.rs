//! A timer for a wall-clock time (`timerfd`): counts during suspend and wakes up when the clock is set.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use petasos_core::Millis;
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::clock;

#[derive(Debug)]
pub(super) struct Timer(Backend);

#[derive(Debug)]
enum Backend {
    Kernel(AsyncFd<OwnedFd>),
    /// A simulated clock does not report that it was set, so it is polled.
    Simulated,
}

const SIMULATED_POLL: Duration = Duration::from_secs(5);

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        if petasos_runtime::is_simulated() {
            return Ok(Self(Backend::Simulated));
        }
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        #[expect(deprecated, reason = "its replacement is unsafe; an owned descriptor stays valid")]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self(Backend::Kernel(timer)))
    }

    /// Returns at `until`, or earlier if the clock was set. Never returns for `None`.
    pub(super) async fn wait(&self, until: Option<Millis>) -> io::Result<()> {
        let Some(until) = until else { return std::future::pending().await };
        let wait = until.since(clock::now());
        let timer = match &self.0 {
            Backend::Kernel(timer) => timer,
            Backend::Simulated => {
                clock::sleep(wait.min(SIMULATED_POLL)).await;
                return Ok(());
            }
        };
        set(timer, wait)?;
        loop {
            let mut ready = timer.readable().await?;
            match rustix::io::read(timer.get_ref(), &mut [0; 8]) {
                // Expired, or the clock was set.
                Ok(_) | Err(Errno::CANCELED) => return Ok(()),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn set(timer: &AsyncFd<OwnedFd>, wait: Duration) -> io::Result<()> {
    let now = clock_gettime(ClockId::Realtime);
    let wait = i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX / 2);
    let nanos = now.tv_nsec + wait % 1_000_000_000;
    let at = Timespec {
        tv_sec: now.tv_sec + wait / 1_000_000_000 + nanos / 1_000_000_000,
        // Never zero as a whole: that would disarm the timer.
        tv_nsec: nanos % 1_000_000_000,
    };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    timerfd_settime(timer.get_ref(), flags, &once)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_for_future_times_only() {
        let timer = Timer::new().unwrap();
        let begun = clock::monotonic();
        timer.wait(Some(clock::now().before(Duration::from_secs(5)))).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(1));
        timer.wait(Some(clock::now().after(Duration::from_millis(80)))).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(79));
        let never = tokio::time::timeout(Duration::from_millis(50), timer.wait(None)).await;
        assert!(never.is_err());
        // A cancelled wait does not affect the next one.
        let far = timer.wait(Some(clock::now().after(Duration::from_secs(3600))));
        assert!(tokio::time::timeout(Duration::from_millis(50), far).await.is_err());
        timer.wait(Some(clock::now().after(Duration::from_millis(20)))).await.unwrap();
    }
}
