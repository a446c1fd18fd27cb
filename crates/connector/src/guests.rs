//! What one guest has under way at the same time has an end, so that there is room for the others.
//!
//! Owns the counts, under one short lock; a place is given back when it is dropped, however that comes about.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use petasos_store::connector::Gateway;

/// What is counted, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Sockets of a gateway: the one that counts, and those that it lost and we have not missed yet.
    Socket,
    /// Requests of a gateway over HTTP.
    Request,
    /// Files on their way to or from a tenant. Each is in memory as a whole.
    File,
}

impl Kind {
    const fn most(self) -> usize {
        match self {
            Self::Socket | Self::File => 8,
            Self::Request => 4,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Guests(Mutex<HashMap<(Kind, String), usize>>);

#[derive(Debug)]
pub(crate) struct Place {
    guests: Arc<Guests>,
    name: (Kind, String),
}

impl Guests {
    /// `None`: it has enough under way.
    pub(crate) fn enter(self: &Arc<Self>, kind: Kind, gateway: &Gateway) -> Option<Place> {
        let who = match kind {
            Kind::Socket | Kind::Request => &gateway.id,
            Kind::File => &gateway.tenant,
        };
        let name = (kind, who.clone());
        let mut counts = self.lock();
        let count = counts.entry(name.clone()).or_default();
        if *count >= kind.most() {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Place { guests: self.clone(), name })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Kind, String), usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.guests.lock();
        match counts.get_mut(&self.name) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(counts.remove(&self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(id: &str, tenant: &str) -> Gateway {
        let (id, tenant) = (id.to_owned(), tenant.to_owned());
        Gateway { instance: id.clone(), id, tenant, secrets: vec![], delivery_key: String::new() }
    }

    #[test]
    fn one_guest_takes_nobody_elses_place_and_leaves_its_own_when_it_goes() {
        let guests = Arc::new(Guests::default());
        let (ann, bob) = (gateway("a", "t1"), gateway("b", "t1"));
        let mut places: Vec<_> = (0..4).map(|_| guests.enter(Kind::Request, &ann).expect("room")).collect();
        assert!(guests.enter(Kind::Request, &ann).is_none());
        assert!(guests.enter(Kind::Request, &bob).is_some() && guests.enter(Kind::Socket, &ann).is_some());
        places.pop();
        assert!(guests.enter(Kind::Request, &ann).is_some());
        // Files are weighed by tenant.
        let files: Vec<_> = (0..8).map(|_| guests.enter(Kind::File, &ann).expect("room")).collect();
        assert!(guests.enter(Kind::File, &bob).is_none());
        drop((places, files));
        assert!(guests.lock().is_empty());
    }
}
