//! Whose message it is: authorised, wanted, and then for one instance. Nobody's is dropped before it costs anything.
//!
//! Where one instance has everybody, the lists of the configuration say who may talk, and so does a binding. Otherwise
//! an author who is bound speaks to that instance, wherever it is; whoever is not speaks to the instance that has the
//! scope: a guild, a workspace, a group; there the instance's policy says what it wants to hear. What an author says to
//! an instance of their own is always wanted.

use petasos_core::access::{self, Standing, Verdict};
use petasos_core::message::ChatType;
use petasos_core::{Millis, Source};
use petasos_store::connector::Policy;
use petasos_store::{Error as StoreError, Reads, Tx};

use crate::shell::Shell;

/// The instance it goes to; `None`: nobody's.
pub(crate) fn instance_for(db: &Reads, shell: &Shell, source: &Source) -> Result<Option<String>, StoreError> {
    let bound = match &source.user_id {
        Some(user) => db.instance_of_author(source.platform, user)?,
        None => None,
    };
    if let Some(single) = &shell.single {
        let standing = Standing {
            role: source.role_authorized,
            paired: bound.as_ref() == Some(single),
            ..Standing::default()
        };
        let may = access::decide(&shell.access, source, standing) == Verdict::Allow;
        return Ok(may.then(|| single.clone()));
    }
    if bound.is_some() {
        return Ok(bound);
    }
    if source.chat_type == ChatType::Dm {
        return Ok(None);
    }
    let Some(scope) = source.scope_id.as_ref().or(source.chat_id.as_ref()) else { return Ok(None) };
    let Some(instance) = db.instance_of_scope(source.platform, scope)? else { return Ok(None) };
    let policy = db.policy(&instance, source.platform)?;
    Ok(is_wanted(&policy, source).then_some(instance))
}

/// What is said to the instance, and what else it listens to.
fn is_wanted(policy: &Policy, source: &Source) -> bool {
    let places = [&source.chat_id, &source.thread_id, &source.parent_chat_id, &source.scope_id];
    let free = places.into_iter().flatten().any(|place| policy.free_scopes.contains(place));
    (policy.other_bots || !source.is_bot) && (!source.overheard || free || !policy.require_address)
}

/// `/link CODE` in a direct message.
pub(crate) fn link_code<'a>(source: &Source, text: &'a str) -> Option<&'a str> {
    let code = text.trim().strip_prefix("/link ")?.trim();
    (source.chat_type == ChatType::Dm && source.user_id.is_some() && !code.is_empty()).then_some(code)
}

/// Binds the author of the message to what the code leads to. `false`: it leads nowhere.
pub(crate) fn link(tx: &Tx<'_>, source: &Source, code: &str, now: Millis) -> Result<bool, StoreError> {
    let (Some(user), Some(instance)) = (&source.user_id, tx.use_link_code(code, now)?) else {
        return Ok(false);
    };
    tx.bind_author(source.platform, user, &instance)?;
    Ok(true)
}
