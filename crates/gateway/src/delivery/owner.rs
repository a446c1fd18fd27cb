//! Identifies the owner: only the owner's turns may attach files from outside the allowed folders, and only the owner or a
//! named administrator may approve commands for longer than once.

use std::collections::BTreeMap;
use std::sync::Arc;

use petasos_core::access::{self, Access, Tiers};
use petasos_core::ids::InboxId;
use petasos_core::outbox::Item;
use petasos_core::{Platform, Source, TurnId};
use petasos_store::{Error as StoreError, Reads};

use crate::delivery::attachments::FileAccess;
use crate::inbound::ingest::IngestRules;
use crate::storage::database::Db;

#[derive(Debug, Clone)]
pub(crate) struct Owners {
    pub(crate) rules: Arc<IngestRules>,
    pub(crate) tiers: BTreeMap<Platform, Tiers>,
}

type Rule = fn(&Access, Option<&Tiers>, &Source, &[String], bool) -> bool;

impl Owners {
    /// Which files the item may attach; the narrow choice if the store cannot be read.
    pub(super) async fn file_access(&self, db: &Db, item: &Item) -> FileAccess {
        let Some(turn) = item.draft.turn else { return FileAccess::AllowedFolders };
        let owners = self.clone();
        let platform = item.draft.route.platform;
        let read = db.read(move |reader| owners.is_owner(reader, turn.0, platform)).await;
        match read {
            Ok(true) => FileAccess::Owner,
            Ok(false) => FileAccess::AllowedFolders,
            Err(error) => {
                tracing::warn!(%error, "cannot read the author of a turn; its files are limited to allowed folders");
                FileAccess::AllowedFolders
            }
        }
    }

    /// Whether the author may approve commands for longer than once. False if the store cannot be read.
    pub(crate) async fn may_approve_lastingly(&self, db: &Db, source: &Source) -> bool {
        let owners = self.clone();
        let source = source.clone();
        let read =
            db.read(move |reader| owners.evaluate(reader, &source, access::may_grant_lasting_approval)).await;
        read.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read whether the author is an administrator; assuming not");
            false
        })
    }

    /// True if the owner wrote the message that started the turn, in the chat that gets the answer.
    fn is_owner(&self, reads: &Reads, turn: TurnId, platform: Platform) -> Result<bool, StoreError> {
        let Some(message) = reads.pending(InboxId(turn.0))? else { return Ok(false) };
        let source = &message.inbound.source;
        if message.inbound.internal || message.inbound.reply_route.is_some() || source.platform != platform {
            return Ok(false);
        }
        self.evaluate(reads, source, access::is_owner)
    }

    fn evaluate(&self, reads: &Reads, source: &Source, rule: Rule) -> Result<bool, StoreError> {
        let book = reads.pairing_state(source.platform)?;
        let paired: Vec<String> = book.approved.into_iter().map(|it| it.user_id).collect();
        let upstream = self.rules.relayed.includes(source.platform);
        let tiers = self.tiers.get(&source.platform);
        Ok(rule(&self.rules.access, tiers, source, &paired, upstream))
    }
}
