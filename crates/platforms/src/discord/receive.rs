//! The link: two futures that live and end together (see `session.rs` and `digest.rs`), and what a new
//! session does once (`menu.rs`).

use tokio::sync::{mpsc, watch};

use super::cursor::Place;
use super::digest::{Digest, Ends};
use super::session::{Kept, Sockets};
use super::{Discord, Error};
use crate::intake::{Health, Intake};

/// Events that may wait to be kept. What finds no room comes again: the link ends and resumes.
const QUEUE: usize = 4096;
const TELLINGS: usize = 16;

impl Discord {
    pub async fn receive(
        &self,
        cursor: Option<String>,
        intake: &Intake,
        health: &mut (dyn FnMut(Health) + Send),
    ) -> Error {
        health(Health::Connecting);
        let place = Place::read(cursor.as_deref());
        let (told, mut tellings) = mpsc::channel(TELLINGS);
        let (arrive, arrived) = mpsc::channel(QUEUE);
        let session = place.session.as_ref();
        let start = session.map(|it| Kept { session: it.id.clone(), sequence: it.sequence });
        let (keep, kept) = watch::channel(start);
        let (greeted, application) = watch::channel(None);
        let (behind, mut catching) = watch::channel(false);
        let sockets = Sockets::new(self, session, arrive, kept, told.clone());
        let digest = Digest::new(self, place, intake, Ends { arrived, kept: keep, greeted, told, behind });
        let link = async {
            tokio::select! {
                error = sockets.run() => error,
                error = digest.run() => error,
                never = self.publish_menu(application) => match never {},
            }
        };
        tokio::pin!(link);
        let mut hears = false;
        let error = loop {
            let state = tokio::select! {
                biased;
                Some(state) = tellings.recv() => state,
                Ok(()) = catching.changed(), if hears => Health::Polling,
                error = &mut link => break error,
            };
            hears |= state == Health::Polling;
            health(said(state, *catching.borrow_and_update()));
        };
        while let Ok(state) = tellings.try_recv() {
            health(said(state, *catching.borrow()));
        }
        error
    }
}

/// A sign of life also says whether something that was missed is still being fetched.
fn said(state: Health, behind: bool) -> Health {
    if behind && state == Health::Polling { Health::CatchingUp } else { state }
}
