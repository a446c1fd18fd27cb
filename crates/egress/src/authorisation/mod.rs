//! Authorises connections: by the rules, by a remembered decision, or by asking once for all connections that wait.
//!
//! Owns the open questions and the decisions that are not stored: `Once` and a missing answer for one run, `Denied` for the
//! session. A restart forgets them and asks again. Both are bounded.

mod memory;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use self::memory::DecisionMemory;
use crate::approver::{Approver, HostDecision};
use crate::credentials::SandboxId;
use crate::policy::host_port::HostPort;
use crate::policy::rule::HostRule;
use crate::policy::{AddressScope, NetworkPolicy, Verdict};
use crate::refusal::Refusal;

/// Open questions of one run. A program that tries many hosts must not flood a chat.
const MAX_OPEN_QUESTIONS: usize = 8;

#[derive(Debug)]
pub(crate) struct Authoriser {
    pub(crate) policy: NetworkPolicy,
    approver: Arc<dyn Approver>,
    timeout: Duration,
    state: Mutex<AuthoriserState>,
}

type QuestionKey = (SandboxId, HostRule);

#[derive(Debug, Default)]
struct AuthoriserState {
    memory: DecisionMemory,
    open: BTreeMap<QuestionKey, watch::Sender<Option<HostDecision>>>,
}

impl Authoriser {
    pub(crate) fn new(policy: NetworkPolicy, approver: Arc<dyn Approver>, timeout: Duration) -> Self {
        Self { policy, approver, timeout, state: Mutex::default() }
    }

    pub(crate) async fn authorise(
        self: &Arc<Self>,
        sandbox: &SandboxId,
        to: &HostPort,
    ) -> Result<AddressScope, Refusal> {
        let scope = match self.policy.judge(to) {
            Verdict::Allowed(scope) => return Ok(scope),
            Verdict::Refused(refusal) => return Err(refusal),
            Verdict::NeedsApproval(scope) => scope,
        };
        match self.decision(sandbox, &HostRule::covering(to)).await? {
            HostDecision::Once | HostDecision::Session | HostDecision::Always => Ok(scope),
            HostDecision::Denied => Err(Refusal::DeniedByPerson),
            HostDecision::NoAnswer => Err(Refusal::NoAnswer),
            HostDecision::CannotAsk => Err(Refusal::CannotAsk),
        }
    }

    async fn decision(
        self: &Arc<Self>,
        sandbox: &SandboxId,
        host: &HostRule,
    ) -> Result<HostDecision, Refusal> {
        if self.approver.is_granted(sandbox, host).await {
            return Ok(HostDecision::Session);
        }
        let mut answer = match self.lookup(sandbox, host)? {
            Lookup::Remembered(decision) => return Ok(decision),
            Lookup::Open(answer) => answer,
        };
        let decided = answer.wait_for(Option::is_some).await.ok().and_then(|decided| *decided);
        // The question task ends without a decision only if it panicked.
        Ok(decided.unwrap_or(HostDecision::CannotAsk))
    }

    fn lookup(self: &Arc<Self>, sandbox: &SandboxId, host: &HostRule) -> Result<Lookup, Refusal> {
        let mut state = self.lock();
        if let Some(decision) = state.memory.decision(sandbox, host) {
            return Ok(Lookup::Remembered(decision));
        }
        let key = (sandbox.clone(), host.clone());
        if let Some(open) = state.open.get(&key) {
            return Ok(Lookup::Open(open.subscribe()));
        }
        let open = state.open.keys().filter(|(asking, _)| asking == sandbox).count();
        if open >= MAX_OPEN_QUESTIONS || !state.memory.may_ask(sandbox) {
            return Err(Refusal::TooManyQuestions);
        }
        let (decided, answer) = watch::channel(None);
        state.open.insert(key.clone(), decided.clone());
        drop(state);
        petasos_runtime::spawn(self.clone().ask(key, decided));
        Ok(Lookup::Open(answer))
    }

    /// Asks until there is a decision or no connection waits for it any more.
    async fn ask(self: Arc<Self>, key: QuestionKey, decided: watch::Sender<Option<HostDecision>>) {
        let _open = OpenQuestion { authoriser: &self, key: &key };
        let asking = tokio::time::timeout(self.timeout, self.approver.ask(&key.0, &key.1));
        let withdrawn = async {
            loop {
                decided.closed().await;
                if self.withdraw(&key, &decided) {
                    return;
                }
            }
        };
        let decision = petasos_runtime::select! {
            decision = asking => decision.unwrap_or(HostDecision::NoAnswer),
            () = withdrawn => return,
        };
        let mut state = self.lock();
        state.memory.record(&key.0, &key.1, decision);
        state.open.remove(&key);
        drop(state);
        decided.send_replace(Some(decision));
    }

    /// Removes a question that no connection waits for. A connection can join until then.
    fn withdraw(&self, key: &QuestionKey, decided: &watch::Sender<Option<HostDecision>>) -> bool {
        let mut state = self.lock();
        let abandoned = decided.receiver_count() == 0;
        if abandoned {
            state.open.remove(key);
        }
        abandoned
    }

    fn lock(&self) -> MutexGuard<'_, AuthoriserState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Lookup {
    Remembered(HostDecision),
    Open(watch::Receiver<Option<HostDecision>>),
}

/// Removes the question if its task panics, so that the host can be asked about again.
struct OpenQuestion<'a> {
    authoriser: &'a Authoriser,
    key: &'a QuestionKey,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.authoriser.lock().open.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests;
