//! `/retry NUMBER` and `/drop NUMBER`: messages whose turn was given up.

use petasos_core::admission::{Admission, Arrival};
use petasos_core::command::{Name, Parsed};
use petasos_core::journal::MessageOutcome;
use petasos_core::{Inbound, SessionKey, TurnId};
use petasos_store::{Error as StoreError, PendingMessage, Tx};

use crate::notices::commands as notices;
use crate::runtime::commit::Commit;
use crate::sessions::messages::reply::CommandReply;
use crate::sessions::{AdmissionPromise, SessionError, SessionTask, parsed};

impl SessionTask {
    /// Repeats a given-up message, optionally with new text. The command becomes that message in one commit, so a crash repeats
    /// nothing.
    pub(in crate::sessions) async fn retry_given_up(
        &mut self,
        mut pending: PendingMessage,
        args: &str,
    ) -> Result<(), SessionError> {
        if let Admission::Refuse(why) = self.admission(Arrival::Text) {
            return self.reply(&pending, why.text().into_owned(), MessageOutcome::Refused).await;
        }
        let (number, words) = args.split_once(char::is_whitespace).unwrap_or((args, ""));
        let turn = number.parse().ok().map(TurnId);
        let words = words.trim().to_owned();
        let key = self.key.clone();
        let command = pending.clone();
        let inbound = self
            .write(Commit::Rewrite, move |tx| {
                let Some(messages_of) = turn.map_or(Ok(None), |turn| messages_of(tx, &key, turn))? else {
                    return Ok(None);
                };
                let inbound = resubmit(&command.inbound, messages_of, &words);
                tx.rewrite(command.id, &inbound)?;
                Ok(Some(inbound))
            })
            .await?;
        let Some(inbound) = inbound else {
            return self.reply(&pending, notices::NOT_GIVEN_UP.into(), MessageOutcome::Refused).await;
        };
        pending.inbound = inbound;
        self.enqueue(pending, Arrival::Text, AdmissionPromise::Given);
        Ok(())
    }

    /// Removes a given-up message from the list.
    pub(in crate::sessions) async fn drop_given_up(
        &mut self,
        pending: &PendingMessage,
        args: &str,
    ) -> Result<(), SessionError> {
        let key = self.key.clone();
        let turn = args.trim().parse().ok().map(TurnId);
        self.reply_with(pending, move |tx, _| {
            let dropped = turn.map_or(Ok(false), |turn| tx.drop_given_up(&key, turn))?;
            Ok(if dropped {
                CommandReply::answered(notices::DROPPED)
            } else {
                CommandReply::refused(notices::NOT_GIVEN_UP)
            })
        })
        .await
    }
}

/// The messages of a given-up turn of this session, in order.
fn messages_of(tx: &Tx<'_>, key: &SessionKey, turn: TurnId) -> Result<Option<Vec<Inbound>>, StoreError> {
    let Some(known) = tx.turn(turn)?.filter(|known| known.turn.key == *key) else { return Ok(None) };
    if !matches!(known.ended, Some((MessageOutcome::Dead, _))) {
        return Ok(None);
    }
    let mut messages_of = Vec::new();
    for id in known.turn.inbox {
        messages_of.extend(tx.pending(id)?.map(|pending| pending.inbound));
    }
    Ok((!messages_of.is_empty()).then_some(messages_of))
}

/// The original message, resubmitted by the author of the command.
fn resubmit(command: &Inbound, messages_of: Vec<Inbound>, words: &str) -> Inbound {
    let mut inbound = command.clone();
    let texts: Vec<_> =
        messages_of.iter().map(text_without_command).filter(|text| !text.is_empty()).collect();
    inbound.text = if words.is_empty() { texts.join("\n") } else { words.to_owned() };
    if let Some(first) = messages_of.first() {
        inbound.context.clone_from(&first.context);
        inbound.quoted.clone_from(&first.quoted);
    }
    inbound.attachments = messages_of.into_iter().flat_map(|it| it.attachments).collect();
    inbound
}

fn text_without_command(messages_of: &Inbound) -> String {
    match parsed(messages_of) {
        Parsed::Known(Name::Queue, words) => words,
        Parsed::Known(..) | Parsed::Unknown(_) | Parsed::Text => messages_of.text.clone(),
    }
}
