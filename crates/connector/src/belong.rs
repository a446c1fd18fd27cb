//! Whose message it is: authorised, wanted, and then for one instance. Nobody's is dropped before it costs anything.
//!
//! Where one instance has everybody, the lists of the configuration say who may talk, and so does a binding. Otherwise
//! an author who is bound speaks to that instance, wherever it is, and in direct messages to the one that takes those;
//! whoever is not bound speaks to the instance that has the scope: a guild, a workspace, a group. There it says of
//! people by name whether they are heard, and of all others its policy does. What an author says to an instance of
//! their own is always wanted.

use petasos_core::access::{self, Standing, Verdict};
use petasos_core::message::{ChatType, Delivery};
use petasos_core::{Millis, Route, Source};
use petasos_store::connector::Policy;
use petasos_store::{Error as StoreError, Reads, Tx};

use crate::shell::Shell;

/// The instance it goes to; `None`: nobody's.
pub(crate) fn instance_for(db: &Reads, shell: &Shell, source: &Source) -> Result<Option<String>, StoreError> {
    let bound = match &source.user_id {
        Some(user) if source.chat_type == ChatType::Dm => db.instance_of_direct(source.platform, user)?,
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
    let named = match &source.user_id {
        Some(user) => db.principal(&instance, source.platform, user)?,
        None => None,
    };
    let wanted = match named {
        Some(allowed) => allowed,
        None => is_wanted(&db.policy(&instance, source.platform)?, source),
    };
    Ok(wanted.then_some(instance))
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
    // Whoever had them before does not write to them any more.
    tx.take_chat(source.platform, &Route::back_to(source, Delivery::Push).chat_id, &instance)?;
    Ok(true)
}
