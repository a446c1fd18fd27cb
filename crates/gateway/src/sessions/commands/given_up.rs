//! `/retry NUMBER` and `/drop NUMBER`: messages that were given up with a notice.

use petasos_core::admission::{Admission, Arrival};
use petasos_core::command::{Name, Parsed};
use petasos_core::journal::Outcome;
use petasos_core::{Inbound, SessionKey, TurnId};
use petasos_store::{Error as StoreError, Pending, Tx};

use crate::runtime::commit::Commit;
use crate::sessions::messages::reply::Reply;
use crate::sessions::{Ended, Promise, Session, parsed};

const UNKNOWN: &str = "I gave up no message of that number here.";

impl Session {
    /// Asks a message that was given up again, with other words if there are any. The command becomes that message in one
    /// commit, so a crash repeats nothing.
    pub(in crate::sessions) async fn retry_given_up(
        &mut self,
        mut pending: Pending,
        args: &str,
    ) -> Result<(), Ended> {
        if let Admission::Refuse(why) = self.admission(Arrival::Text) {
            return self.answer(&pending, why.text().into_owned(), Outcome::Refused).await;
        }
        let (number, words) = args.split_once(char::is_whitespace).unwrap_or((args, ""));
        let (turn, words) = (number.parse().ok().map(TurnId), words.trim().to_owned());
        let (key, command) = (self.key.clone(), pending.clone());
        let inbound = self
            .change(Commit::Rewrite, move |tx| {
                let Some(asked) = turn.map_or(Ok(None), |turn| asked(tx, &key, turn))? else {
                    return Ok(None);
                };
                let inbound = again(&command.inbound, asked, &words);
                tx.rewrite(command.id, &inbound)?;
                Ok(Some(inbound))
            })
            .await?;
        let Some(inbound) = inbound else {
            return self.answer(&pending, UNKNOWN.into(), Outcome::Refused).await;
        };
        pending.inbound = inbound;
        self.enqueue(pending, Arrival::Text, Promise::Given);
        Ok(())
    }

    /// A message that was given up is listed no more.
    pub(in crate::sessions) async fn drop_given_up(
        &mut self,
        pending: &Pending,
        args: &str,
    ) -> Result<(), Ended> {
        let (key, turn) = (self.key.clone(), args.trim().parse().ok().map(TurnId));
        self.reply(pending, move |tx, _| {
            let dropped = turn.map_or(Ok(false), |turn| tx.drop_given_up(&key, turn))?;
            Ok(if dropped { Reply::answered("🗑 Dropped.") } else { Reply::refused(UNKNOWN) })
        })
        .await
    }
}

/// The messages of a turn of this session that was given up, the first one first.
fn asked(tx: &Tx<'_>, key: &SessionKey, turn: TurnId) -> Result<Option<Vec<Inbound>>, StoreError> {
    let Some(known) = tx.turn(turn)?.filter(|known| known.turn.key == *key) else { return Ok(None) };
    if !matches!(known.ended, Some((Outcome::Dead, _))) {
        return Ok(None);
    }
    let mut asked = Vec::new();
    for id in known.turn.inbox {
        asked.extend(tx.pending(id)?.map(|pending| pending.inbound));
    }
    Ok((!asked.is_empty()).then_some(asked))
}

/// The original message, resubmitted by the author of the command.
fn again(command: &Inbound, asked: Vec<Inbound>, words: &str) -> Inbound {
    let mut inbound = command.clone();
    let texts: Vec<_> = asked.iter().map(words_of).filter(|text| !text.is_empty()).collect();
    inbound.text = if words.is_empty() { texts.join("\n") } else { words.to_owned() };
    if let Some(first) = asked.first() {
        (inbound.context, inbound.quoted) = (first.context.clone(), first.quoted.clone());
    }
    inbound.attachments = asked.into_iter().flat_map(|it| it.attachments).collect();
    inbound
}

/// The text that the model gets: without the command `/queue`.
fn words_of(asked: &Inbound) -> String {
    match parsed(asked) {
        Parsed::Known(Name::Queue, words) => words,
        Parsed::Known(..) | Parsed::Unknown(_) | Parsed::Text => asked.text.clone(),
    }
}
