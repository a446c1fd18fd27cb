//! The current home channel of each platform.
//!
//! Owns the list while the gateway runs, starting from the configuration. `/sethome` writes a change to disk first, so
//! a crash loses nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use petasos_core::Route;
use petasos_core::target::ChatAddress;

use crate::Error;
use crate::lifecycle::lifetime::HomeChannel;

#[derive(Debug)]
pub(crate) struct HomeChannels {
    list: Mutex<Vec<HomeChannel>>,
    writing: Mutex<()>,
}

impl HomeChannels {
    pub(crate) fn new(configured: Vec<HomeChannel>) -> Self {
        Self { list: Mutex::new(configured), writing: Mutex::default() }
    }

    pub(crate) fn places(&self) -> Vec<ChatAddress> {
        self.lock().iter().map(HomeChannel::address).collect()
    }

    pub(crate) fn routes(&self) -> Vec<Route> {
        self.places().iter().map(ChatAddress::route).collect()
    }

    /// Replaces a route "to the home channel" by the route of that channel.
    pub(crate) fn resolve(&self, route: Route) -> Result<Route, Error> {
        if !route.is_to_home() {
            return Ok(route);
        }
        let platform = route.platform;
        let home = self.routes().into_iter().find(|home| home.platform == platform);
        home.ok_or(Error::NoHome(platform))
    }

    /// Writes a home channel to disk, then applies it; one call at a time. Blocks.
    pub(crate) fn save<E>(
        &self,
        home: HomeChannel,
        write: impl FnOnce(&HomeChannel) -> Result<(), E>,
    ) -> Result<(), E> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        write(&home)?;
        self.replace(home);
        Ok(())
    }

    /// Keeps the index of the platform's previous home: `outages` remembers notified homes by index.
    fn replace(&self, home: HomeChannel) {
        let mut homes = self.lock();
        match homes.iter_mut().find(|known| known.platform == home.platform) {
            Some(known) => *known = home,
            None => homes.push(home),
        }
    }

    /// Never held across an await; no code under it can panic.
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
    fn keeps_all_home_channels_set_concurrently() {
        let folder = tempfile::tempdir().unwrap();
        let homes = HomeChannels::new(vec![]);
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
                    let homes = &homes;
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        homes.save(home, write).unwrap();
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
