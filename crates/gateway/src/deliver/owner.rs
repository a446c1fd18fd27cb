//! Whether an answer belongs to a turn of the owner's: only then may it carry files from outside the workspace.

use std::collections::BTreeMap;
use std::sync::Arc;

use petasos_core::access::{self, Tiers};
use petasos_core::ids::InboxId;
use petasos_core::outbox::Item;
use petasos_core::{Platform, Source, TurnId};
use petasos_store::{Error as StoreError, Reads};

use super::attach::Reach;
use crate::db::Db;
use crate::ingest::Rules;

/// Identifies the owner from the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Owners {
    pub(crate) rules: Arc<Rules>,
    pub(crate) tiers: BTreeMap<Platform, Tiers>,
}

impl Owners {
    /// False when it cannot be determined.
    pub(super) async fn reach(&self, db: &Db, item: &Item) -> Reach {
        let Some(turn) = item.draft.turn else { return Reach::Anyone };
        let (owners, platform) = (self.clone(), item.draft.route.platform);
        let read = db.read(move |reader| owners.is_owner(reader, turn.0, platform)).await;
        match read {
            Ok(true) => Reach::Owner,
            Ok(false) => Reach::Anyone,
            Err(error) => {
                tracing::warn!(%error, "cannot tell whose turn it was; its files are limited to allowed folders");
                Reach::Anyone
            }
        }
    }

    /// The author of the message that started the turn, answered where they wrote it.
    fn is_owner(&self, reads: &Reads, turn: TurnId, platform: Platform) -> Result<bool, StoreError> {
        let Some(asked) = reads.pending(InboxId(turn.0))? else { return Ok(false) };
        let source = &asked.inbound.source;
        if asked.inbound.internal || asked.inbound.answer_to.is_some() || source.platform != platform {
            return Ok(false);
        }
        self.owns(reads, source)
    }

    fn owns(&self, reads: &Reads, source: &Source) -> Result<bool, StoreError> {
        let book = reads.pairing_book(source.platform)?;
        let paired: Vec<String> = book.approved.into_iter().map(|it| it.user_id).collect();
        let upstream = self.rules.relayed.includes(source.platform);
        let tiers = self.tiers.get(&source.platform);
        Ok(access::is_owner(&self.rules.access, tiers, source, &paired, upstream))
    }
}
