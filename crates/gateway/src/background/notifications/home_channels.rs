//! Where each platform's owner wants to hear what nobody asked for, as it is now.
//!
//! Owns the list while the gateway runs. It starts with what is configured; `/sethome` changes it after the new place is
//! on disk, so whatever is lost with the process is read again by the next one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use petasos_core::Route;
use petasos_core::target::Place;

use crate::Error;
use crate::lifecycle::lifetime::HomeChannel;

#[derive(Debug)]
pub(crate) struct Homes {
    list: Mutex<Vec<HomeChannel>>,
    /// Held by whoever writes a home to disk.
    writing: Mutex<()>,
}

impl Homes {
    pub(crate) fn new(configured: Vec<HomeChannel>) -> Self {
        Self { list: Mutex::new(configured), writing: Mutex::default() }
    }

    /// In the order in which the platforms are configured.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.lock().iter().map(HomeChannel::place).collect()
    }

    /// The way to each of them.
    pub(crate) fn routes(&self) -> Vec<Route> {
        self.places().iter().map(Place::route).collect()
    }

    /// The same way, or to the home that it means.
    pub(crate) fn lead(&self, route: Route) -> Result<Route, Error> {
        if !route.is_to_home() {
            return Ok(route);
        }
        let platform = route.platform;
        let home = self.routes().into_iter().find(|home| home.platform == platform);
        home.ok_or(Error::NoHome(platform))
    }

    /// Puts a home on disk, then in force: one after the other, so that two at once lose none. Blocks.
    pub(crate) fn keep<E>(
        &self,
        home: HomeChannel,
        write: impl FnOnce(&HomeChannel) -> Result<(), E>,
    ) -> Result<(), E> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        write(&home)?;
        self.set(home);
        Ok(())
    }

    /// Takes the place of the platform's home before, and its number: `outages` remembers who was told by it.
    fn set(&self, home: HomeChannel) {
        let mut homes = self.lock();
        match homes.iter_mut().find(|known| known.platform == home.platform) {
            Some(known) => *known = home,
            None => homes.push(home),
        }
    }

    /// Held for a moment and never across a wait; nothing under it can panic half-way.
    fn lock(&self) -> MutexGuard<'_, Vec<HomeChannel>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use petasos_core::Platform;

    use super::*;
    use crate::home::env;

    #[test]
    fn homes_that_are_set_at_once_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let homes = Homes::new(vec![]);
        let all =
            ["telegram", "discord", "slack", "matrix", "signal"].map(|name| Platform::parse(name).unwrap());
        for round in ["1", "2", "3", "4", "5"] {
            let start = Barrier::new(all.len());
            std::thread::scope(|scope| {
                for platform in all {
                    let home =
                        HomeChannel { platform, chat_id: round.into(), thread_id: None, name: "x".into() };
                    let write = |home: &HomeChannel| {
                        env::set(folder.path(), &[(home.platform.as_str(), Some(&home.chat_id))])
                    };
                    let (homes, start) = (&homes, &start);
                    scope.spawn(move || {
                        start.wait();
                        homes.keep(home, write).unwrap();
                    });
                }
            });
            let text = std::fs::read_to_string(env::path(folder.path())).unwrap();
            for platform in all {
                assert!(text.contains(&format!("{platform}={round}\n")), "{platform} {round}: {text}");
            }
            assert!(homes.places().iter().all(|place| place.chat_id == round));
        }
    }
}
