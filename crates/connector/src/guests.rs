//! What one guest has under way at the same time has an end, so that there is room for the others.
//!
//! Owns who has how many places, under one short lock; a place is given back when it is dropped, however that comes
//! about. Whoever has all of theirs waits a moment for one of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_store::connector::Gateway;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

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

/// How long one waits for a place.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

type Name = (Kind, String);

#[derive(Debug, Default)]
pub(crate) struct Guests(Mutex<HashMap<Name, Arc<Semaphore>>>);

#[derive(Debug)]
pub(crate) struct Place {
    guests: Arc<Guests>,
    name: Name,
    permit: Option<OwnedSemaphorePermit>,
}

impl Guests {
    /// `None`: it has enough under way.
    pub(crate) async fn enter(self: &Arc<Self>, kind: Kind, gateway: &Gateway) -> Option<Place> {
        let mut place = self.place(kind, gateway);
        let seats = self.seats(&place.name);
        place.permit = timeout(PATIENCE, seats.acquire_owned()).await.ok()?.ok();
        place.permit.is_some().then_some(place)
    }

    /// The same without waiting.
    pub(crate) fn enter_now(self: &Arc<Self>, kind: Kind, gateway: &Gateway) -> Option<Place> {
        let mut place = self.place(kind, gateway);
        place.permit = self.seats(&place.name).try_acquire_owned().ok();
        place.permit.is_some().then_some(place)
    }

    fn place(self: &Arc<Self>, kind: Kind, gateway: &Gateway) -> Place {
        let who = match kind {
            Kind::Socket | Kind::Request => &gateway.id,
            Kind::File => &gateway.tenant,
        };
        Place { guests: self.clone(), name: (kind, who.clone()), permit: None }
    }

    fn seats(&self, name: &Name) -> Arc<Semaphore> {
        let most = name.0.most();
        self.lock().entry(name.clone()).or_insert_with(|| Arc::new(Semaphore::new(most))).clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut all = self.guests.lock();
        // Whoever has a place, or waits for one, holds on to it, too.
        if all.get(&self.name).is_some_and(|seats| Arc::strong_count(seats) == 1) {
            all.remove(&self.name);
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

    #[tokio::test]
    async fn one_guest_takes_nobody_elses_place_and_leaves_its_own_when_it_goes() {
        let guests = Arc::new(Guests::default());
        let (ann, bob) = (gateway("a", "t1"), gateway("b", "t1"));
        let room = |kind, who| guests.enter_now(kind, who);
        let mut places: Vec<_> = (0..4).map(|_| room(Kind::Request, &ann).expect("room")).collect();
        assert!(room(Kind::Request, &ann).is_none());
        assert!(room(Kind::Request, &bob).is_some() && room(Kind::Socket, &ann).is_some());
        let (waited, ()) = tokio::join!(guests.enter(Kind::Request, &ann), async { drop(places.pop()) });
        assert!(waited.is_some(), "for the place that was given back");
        // Files are counted by tenant.
        let files: Vec<_> = (0..8).map(|_| room(Kind::File, &ann).expect("room")).collect();
        assert!(room(Kind::File, &bob).is_none());
        drop((waited, places, files));
        assert!(guests.lock().is_empty());
    }
}
