//! Routing: which instance gets an event. With a single instance, access lists and bindings decide. Otherwise events of
//! a bound author go to the bound instance, and other events to the instance of the scope if its policy allows them.

use petasos_core::access::{self, Access, AccessDecision, SenderTrust};
use petasos_core::message::{ChatType, Delivery};
use petasos_core::session::KeyOptions;
use petasos_core::{InstanceId, Millis, Route, Source};
use petasos_store::connector::ChatPolicy;
use petasos_store::{Error as StoreError, Reads, Tx};

#[derive(Debug)]
pub(crate) struct RoutingRules {
    pub(crate) access: Access,
    pub(crate) single: Option<InstanceId>,
    pub(crate) keys: KeyOptions,
}

/// `None`: dropped.
pub(crate) fn instance_for(
    db: &Reads,
    rules: &RoutingRules,
    source: &Source,
) -> Result<Option<InstanceId>, StoreError> {
    let bound = match &source.user_id {
        Some(user) if source.chat_type == ChatType::Dm => db.instance_of_direct(source.platform, user)?,
        Some(user) => db.instance_of_author(source.platform, user)?,
        None => None,
    };
    if let Some(single) = &rules.single {
        let trust = SenderTrust {
            role: source.role_authorized,
            paired: bound.as_ref() == Some(single),
            ..SenderTrust::default()
        };
        let allowed = access::decide(&rules.access, source, trust) == AccessDecision::Allow;
        return Ok(allowed.then(|| single.clone()));
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

/// Whether the scope's policy allows the event: addressed to the instance, or in a free scope.
fn is_wanted(policy: &ChatPolicy, source: &Source) -> bool {
    let scopes = [&source.chat_id, &source.thread_id, &source.parent_chat_id, &source.scope_id];
    let free = scopes.into_iter().flatten().any(|scope| policy.free_scopes.contains(scope));
    (policy.other_bots || !source.is_bot) && (!source.unaddressed || free || !policy.require_address)
}

/// Parses `/link CODE` in a direct message.
pub(crate) fn link_code<'a>(source: &Source, text: &'a str) -> Option<&'a str> {
    let code = text.trim().strip_prefix("/link ")?.trim();
    (source.chat_type == ChatType::Dm && source.user_id.is_some() && !code.is_empty()).then_some(code)
}

/// Binds the author to the instance of the code. `false`: invalid code.
pub(crate) fn bind_author(tx: &Tx<'_>, source: &Source, code: &str, now: Millis) -> Result<bool, StoreError> {
    let (Some(user), Some(instance)) = (&source.user_id, tx.use_link_code(code, now)?) else {
        return Ok(false);
    };
    tx.bind_author(source.platform, user, &instance)?;
    // The former instance no longer writes to the author.
    tx.assign_chat(source.platform, &Route::to_source(source, Delivery::Push).chat_id, &instance)?;
    Ok(true)
}
