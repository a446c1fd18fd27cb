use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::*;
use crate::approver::DecisionFuture;

/// Answers after `release`, and counts.
#[derive(Debug, Default)]
struct TestApprover {
    asked: AtomicUsize,
    withdrawn: AtomicUsize,
    granted: Mutex<Vec<String>>,
    decision: Mutex<Option<HostDecision>>,
    started: Notify,
    release: Notify,
}

struct Withdrawal<'a>(&'a TestApprover);

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        self.0.withdrawn.fetch_add(1, Ordering::SeqCst);
        self.0.started.notify_one();
    }
}

impl Approver for TestApprover {
    fn is_granted<'a>(&'a self, _: &'a SandboxId, host: &'a HostRule) -> DecisionFuture<'a, bool> {
        Box::pin(async move { self.granted.lock().unwrap().contains(&host.to_string()) })
    }

    fn ask<'a>(&'a self, _: &'a SandboxId, _: &'a HostRule) -> DecisionFuture<'a, HostDecision> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let immediate = *self.decision.lock().unwrap();
            if let Some(decision) = immediate {
                return decision;
            }
            let withdrawal = Withdrawal(self);
            self.started.notify_one();
            self.release.notified().await;
            std::mem::forget(withdrawal);
            self.decision.lock().unwrap().unwrap_or(HostDecision::Once)
        })
    }
}

fn sandbox(session: &str, run: &str) -> SandboxId {
    SandboxId::new(session, run).unwrap()
}

fn to(authority: &str) -> HostPort {
    HostPort::parse(authority).unwrap()
}

fn authoriser(approver: &Arc<TestApprover>, timeout: Duration) -> Arc<Authoriser> {
    Arc::new(Authoriser::new(NetworkPolicy::default(), approver.clone(), timeout))
}

fn answering(decision: HostDecision) -> Arc<TestApprover> {
    Arc::new(TestApprover { decision: Mutex::new(Some(decision)), ..TestApprover::default() })
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn connections_to_one_host_share_one_question() {
    let approver = Arc::new(TestApprover::default());
    let authoriser = authoriser(&approver, MINUTE);
    let mut waiting = tokio::task::JoinSet::new();
    for port in [80, 443, 443, 80, 443] {
        let authoriser = authoriser.clone();
        petasos_runtime::spawn_into(&mut waiting, async move {
            authoriser.authorise(&sandbox("s", "r"), &to(&format!("example.org:{port}"))).await
        });
    }
    approver.started.notified().await;
    while authoriser.lock().open.values().next().is_none_or(|open| open.receiver_count() < 5) {
        tokio::task::yield_now().await;
    }
    approver.release.notify_one();
    let allowed = waiting.join_all().await;
    assert!(allowed.iter().all(|one| *one == Ok(AddressScope::Public)), "{allowed:?}");
    assert_eq!(approver.asked.load(Ordering::SeqCst), 1);
    assert!(authoriser.lock().open.is_empty());
}

#[tokio::test]
async fn decisions_have_the_reach_that_was_chosen() {
    for (decision, want, same_run, same_session, elsewhere) in [
        (HostDecision::Once, Ok(AddressScope::Public), 1, 2, 2),
        (HostDecision::Denied, Err(Refusal::DeniedByPerson), 1, 1, 2),
        (HostDecision::NoAnswer, Err(Refusal::NoAnswer), 1, 2, 2),
        (HostDecision::CannotAsk, Err(Refusal::CannotAsk), 2, 2, 2),
    ] {
        for (later, questions) in [
            (sandbox("s", "r"), same_run),
            (sandbox("s", "r2"), same_session),
            (sandbox("s2", "r"), elsewhere),
        ] {
            let approver = answering(decision);
            let authoriser = authoriser(&approver, MINUTE);
            let first = authoriser.authorise(&sandbox("s", "r"), &to("example.org:443")).await;
            assert_eq!(first, want, "{decision:?}");
            assert_eq!(
                authoriser.authorise(&later, &to("example.org:443")).await,
                want,
                "{decision:?} {later}"
            );
            assert_eq!(approver.asked.load(Ordering::SeqCst), questions, "{decision:?} {later}");
        }
    }
}

#[tokio::test]
async fn granted_hosts_are_not_asked_about() {
    let approver = answering(HostDecision::Denied);
    approver.granted.lock().unwrap().push("example.org".into());
    let authoriser = authoriser(&approver, MINUTE);
    let run = sandbox("s", "r");
    assert_eq!(authoriser.authorise(&run, &to("example.org:443")).await, Ok(AddressScope::Public));
    assert_eq!(approver.asked.load(Ordering::SeqCst), 0);
    approver.granted.lock().unwrap().clear();
    assert_eq!(
        authoriser.authorise(&run, &to("example.org:443")).await,
        Err(Refusal::DeniedByPerson),
        "revoked"
    );
}

#[tokio::test]
async fn silence_is_no_consent() {
    let approver = Arc::new(TestApprover::default());
    let authoriser = authoriser(&approver, Duration::from_millis(20));
    let refused = authoriser.authorise(&sandbox("s", "r"), &to("example.org:443")).await;
    assert_eq!(refused, Err(Refusal::NoAnswer));
}

#[tokio::test]
async fn questions_without_a_waiting_connection_are_withdrawn() {
    let approver = Arc::new(TestApprover::default());
    let authoriser = authoriser(&approver, MINUTE);
    let asking = petasos_runtime::spawn({
        let authoriser = authoriser.clone();
        async move { authoriser.authorise(&sandbox("s", "r"), &to("example.org:443")).await }
    });
    approver.started.notified().await;
    asking.abort();
    approver.started.notified().await;
    assert_eq!(approver.withdrawn.load(Ordering::SeqCst), 1);
    assert!(authoriser.lock().open.is_empty());
}

#[tokio::test]
async fn a_run_cannot_ask_without_end() {
    let approver = answering(HostDecision::Denied);
    let authoriser = authoriser(&approver, MINUTE);
    let mut last = Ok(AddressScope::Public);
    for index in 0..60 {
        last = authoriser.authorise(&sandbox("s", "r"), &to(&format!("h{index}.example.org:443"))).await;
    }
    assert_eq!(last, Err(Refusal::TooManyQuestions));
    assert_eq!(approver.asked.load(Ordering::SeqCst), 50);
}

#[tokio::test]
async fn open_questions_of_a_run_are_limited() {
    let approver = Arc::new(TestApprover::default());
    let authoriser = authoriser(&approver, MINUTE);
    let mut waiting = tokio::task::JoinSet::new();
    for index in 0..20 {
        let authoriser = authoriser.clone();
        petasos_runtime::spawn_into(&mut waiting, async move {
            authoriser.authorise(&sandbox("s", "r"), &to(&format!("h{index}.example.org:443"))).await
        });
    }
    for _refused in 0..12 {
        let refused = waiting.join_next().await.unwrap().unwrap();
        assert_eq!(refused, Err(Refusal::TooManyQuestions));
    }
    assert_eq!(approver.asked.load(Ordering::SeqCst), 8);
}
