//! Several workspaces, and outages of single ones.

use petasos_core::Fault as ExpectedFault;
use petasos_core::Route;
use petasos_core::message::Delivery;
use petasos_fakes::slack::{Fault, Incoming, Side, TOKEN};
use petasos_platforms::{Error, InboundSink, Part, Receipt, Secret, SendOptions};

use super::fixture::{
    SlackFixture, TEST_TIMEOUT, commit_events, degraded, fixture, fixture_with, route, texts,
};

#[tokio::test]
async fn answers_each_workspace_with_its_own_token() {
    let fixture = fixture_with(|config| config.bot_tokens.push(Secret::new("xoxb-2")));
    fixture.fake.add_workspace("T2", "xoxb-2");
    fixture.fake.push(Incoming::new("C1", "U7", "<@U1BOT> first"));
    fixture.fake.push(Incoming::new("C2", "U9", "<@U2BOT> second").team("T2"));
    fixture.fake.push(Incoming::new("C2", "U9", "<@U1BOT> not this one").team("T2"));
    let (events, _) = fixture.listen(None, async |batches| commit_events(batches, 2).await).await;
    let scopes: Vec<_> = events.iter().filter_map(|event| event.source.scope_id.as_deref()).collect();
    assert_eq!((texts(&events), scopes), (vec!["first", "second"], vec!["T1", "T2"]));
    for event in &events {
        let to = Route::to_source(&event.source, Delivery::Push);
        fixture.adapter.send(&to, &Part::plain("yes"), &SendOptions::default()).await.expect("sent");
    }
    let tokens: Vec<_> =
        fixture.fake.calls_of("chat.postMessage").into_iter().map(|call| call.token).collect();
    assert_eq!(tokens, ["xoxb-1", "xoxb-2"]);
    assert_eq!(fixture.fake.calls_of("conversations.info").len(), 0, "recorded from the events");
}

#[tokio::test]
async fn refused_token_does_not_stop_the_other_workspace() {
    let fixture = fixture_with(|config| config.bot_tokens.insert(0, Secret::new("xoxb-gone")));
    fixture.fake.push_text("D1", "U7", "hello");
    fixture
        .listen(None, async |batches| {
            assert_eq!(texts(&commit_events(batches, 1).await), ["hello"]);
            let [outage] = &fixture.adapter.partial_outages()[..] else { panic!("one is missing") };
            assert_eq!(
                (outage.part.as_str(), outage.code.as_str()),
                ("the workspace of bot token 1", "slack_invalid_auth")
            );
            assert!(outage.reason.contains("SLACK_BOT_TOKEN"), "{}", outage.reason);
        })
        .await;
}

async fn send(fixture: &SlackFixture, chat: &str) -> Result<Receipt, Error> {
    fixture.adapter.send(&route(chat, None), &Part::plain("hi"), &SendOptions::default()).await
}

#[tokio::test]
async fn revoked_token_ends_the_link_with_the_next_message() {
    for (scope, code) in [(false, "slack_invalid_auth"), (true, "slack_missing_scope")] {
        let fixture = fixture();
        fixture.fake.push_text("D1", "U7", "hello");
        let (sink, mut batches) = InboundSink::new(4);
        let mut health = |_| {};
        let work = async {
            commit_events(&mut batches, 1).await;
            send(&fixture, "D1").await.expect("accepted so far");
            if scope {
                fixture.fake.on("chat.postMessage").always().does(Fault::missing_scope("chat:write"));
            } else {
                fixture.fake.revoke(TOKEN);
            }
            send(&fixture, "D1").await.expect_err("refused");
            std::future::pending::<()>().await;
        };
        let ended = async {
            tokio::select! {
                error = fixture.adapter.receive(None, &sink, &mut health) => error,
                () = work => unreachable!("it waits"),
            }
        };
        let error = tokio::time::timeout(TEST_TIMEOUT, ended).await.expect("an end");
        assert_eq!((error.code(), error.fault()), (code, ExpectedFault::Fatal));
        assert!(error.to_string().contains("api.slack.com/apps"), "{error}");
    }
}

#[tokio::test]
async fn reports_a_lost_workspace_until_it_is_back() {
    let fixture = fixture_with(|config| config.bot_tokens.push(Secret::new("xoxb-2")));
    fixture.fake.add_workspace("T2", "xoxb-2");
    fixture.fake.push_text("D1", "U7", "first");
    fixture.fake.push(Incoming::new("D2", "U9", "second").team("T2"));
    fixture.fake.add_channel("T2", "C9");
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            commit_events(batches, 2).await;
            assert!(fixture.adapter.partial_outages().is_empty());
            fixture.fake.revoke(TOKEN);
            send(&fixture, "D1").await.expect_err("refused");
            let [outage] = &fixture.adapter.partial_outages()[..] else { panic!("one is missing") };
            let lost = ("workspace Team T1 (T1)", "slack_invalid_auth");
            assert_eq!((outage.part.as_str(), outage.code.as_str()), lost);
            send(&fixture, "D2").await.expect("the other one accepts it");
            send(&fixture, "C9").await.expect("found behind the lost one");
            fixture.fake.add_workspace("T1", TOKEN);
            send(&fixture, "D1").await.expect("it is back");
            assert!(fixture.adapter.partial_outages().is_empty());
            fixture.fake.push(Incoming::new("D2", "U9", "still here?").team("T2"));
            assert_eq!(texts(&commit_events(batches, 1).await), ["still here?"]);
        })
        .await;
    assert_eq!(degraded(&health_log), [""; 0], "the link continues");
    assert!(health_log.len() >= 4, "both changes are reported at once: {health_log:?}");
}

#[tokio::test]
async fn ignores_refusals_from_before_the_link() {
    let fixture = fixture();
    fixture.fake.push_text("D1", "U7", "hello");
    fixture.listen(None, async |batches| commit_events(batches, 1).await).await;
    let gate = fixture.fake.gate("chat.postMessage", Side::Before);
    let completed = std::cell::Cell::new(false);
    let first = async {
        let refused = send(&fixture, "D1").await;
        completed.set(true);
        refused
    };
    let new_link = async {
        until("the message is under way", || gate.waiting() > 0).await;
        fixture.fake.push_text("D1", "U7", "again");
        fixture
            .listen(None, async |batches| {
                commit_events(batches, 1).await;
                fixture.fake.revoke(TOKEN);
                gate.open();
                until("it is refused", || completed.get()).await;
                fixture.fake.add_workspace("T1", TOKEN);
                fixture.fake.push_text("D1", "U7", "and again");
                commit_events(batches, 1).await;
                send(&fixture, "D1").await.expect("accepted");
            })
            .await;
    };
    let (refused, ()) = tokio::join!(first, new_link);
    assert_eq!(refused.expect_err("refused").fault(), ExpectedFault::Fatal);
    assert!(fixture.adapter.partial_outages().is_empty());
}

async fn until(description: &str, condition: impl FnMut() -> bool) {
    petasos_fakes::wait::eventually_async(description, TEST_TIMEOUT, condition).await;
}
