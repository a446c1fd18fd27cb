//! Identifies the owner: only answers to the owner's turns may carry files from outside the workspace, and only the owner
//! or a named administrator may allow commands for longer than once.

use std::collections::BTreeMap;
use std::sync::Arc;

use petasos_core::access::{self, Access, Tiers};
use petasos_core::ids::InboxId;
use petasos_core::outbox::Item;
use petasos_core::{Platform, Source, TurnId};
use petasos_store::{Error as StoreError, Reads};

use crate::delivery::attachments::Reach;
use crate::inbound::ingest::Rules;
use crate::storage::database::Db;

/// Identifies the owner from the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Owners {
    pub(crate) rules: Arc<Rules>,
    pub(crate) tiers: BTreeMap<Platform, Tiers>,
}

type Rule = fn(&Access, Option<&Tiers>, &Source, &[String], bool) -> bool;

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

    /// Whether the author may allow commands for longer than once. False when it cannot be determined.
    pub(crate) async fn may_decide_lastingly(&self, db: &Db, source: &Source) -> bool {
        let (owners, source) = (self.clone(), source.clone());
        let read = db.read(move |reader| owners.judged(reader, &source, access::may_decide_lastingly)).await;
        read.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot tell whether the author is an administrator; the answer is no");
            false
        })
    }

    /// The author of the message that started the turn, answered where they wrote it.
    fn is_owner(&self, reads: &Reads, turn: TurnId, platform: Platform) -> Result<bool, StoreError> {
        let Some(asked) = reads.pending(InboxId(turn.0))? else { return Ok(false) };
        let source = &asked.inbound.source;
        if asked.inbound.internal || asked.inbound.answer_to.is_some() || source.platform != platform {
            return Ok(false);
        }
        self.judged(reads, source, access::is_owner)
    }

    fn judged(&self, reads: &Reads, source: &Source, rule: Rule) -> Result<bool, StoreError> {
        let book = reads.pairing_book(source.platform)?;
        let paired: Vec<String> = book.approved.into_iter().map(|it| it.user_id).collect();
        let upstream = self.rules.relayed.includes(source.platform);
        let tiers = self.tiers.get(&source.platform);
        Ok(rule(&self.rules.access, tiers, source, &paired, upstream))
    }
}
