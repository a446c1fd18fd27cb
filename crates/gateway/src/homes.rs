//! Where each platform's owner wants to hear what nobody asked for, as it is now.
//!
//! Owns the list while the gateway runs. It starts with what is configured; `/sethome` changes it after the new place is
//! on disk, so whatever is lost with the process is read again by the next one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use petasos_core::Route;
use petasos_core::target::Place;

use crate::lifetime::HomeChannel;

#[derive(Debug)]
pub(crate) struct Homes(Mutex<Vec<HomeChannel>>);

impl Homes {
    pub(crate) fn new(configured: Vec<HomeChannel>) -> Self {
        Self(Mutex::new(configured))
    }

    /// In the order in which the platforms are configured.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.lock().iter().map(HomeChannel::place).collect()
    }

    /// The way to each of them.
    pub(crate) fn routes(&self) -> Vec<Route> {
        self.places().iter().map(Place::route).collect()
    }

    /// Takes the place of the platform's home before, and its number: `outages` remembers who was told by it.
    pub(crate) fn set(&self, home: HomeChannel) {
        let mut homes = self.lock();
        match homes.iter_mut().find(|known| known.platform == home.platform) {
            Some(known) => *known = home,
            None => homes.push(home),
        }
    }

    /// Held for a moment and never across a wait; nothing under it can panic half-way.
    fn lock(&self) -> MutexGuard<'_, Vec<HomeChannel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
