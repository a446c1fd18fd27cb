//! Several workspaces, and what becomes of the link when one of them takes us no more.

use petasos_core::Fault as Meaning;
use petasos_core::Route;
use petasos_core::message::Delivery;
use petasos_fakes::slack::{Fault, Incoming, Side, TOKEN};
use petasos_platforms::{Error, Intake, Part, Receipt, Secret, SendOptions};

use crate::rig::{Rig, SOON, degraded, rig, rig_with, route, take, texts};

#[tokio::test]
async fn two_workspaces_are_heard_and_answered_each_with_its_own_token() {
    let rig = rig_with(|config| config.bot_tokens.push(Secret::new("xoxb-2")));
    rig.fake.add_workspace("T2", "xoxb-2");
    rig.fake.push(Incoming::new("C1", "U7", "<@U1BOT> first"));
    rig.fake.push(Incoming::new("C2", "U9", "<@U2BOT> second").team("T2"));
    rig.fake.push(Incoming::new("C2", "U9", "<@U1BOT> not this one").team("T2"));
    let (events, _) = rig.listen(None, async |batches| take(batches, 2).await).await;
    let scopes: Vec<_> = events.iter().filter_map(|event| event.source.scope_id.as_deref()).collect();
    assert_eq!((texts(&events), scopes), (vec!["first", "second"], vec!["T1", "T2"]));
    for event in &events {
        let to = Route::back_to(&event.source, Delivery::Push);
        rig.adapter.send(&to, &Part::plain("yes"), &SendOptions::default()).await.expect("sent");
    }
    let tokens: Vec<_> = rig.fake.calls_of("chat.postMessage").into_iter().map(|call| call.token).collect();
    assert_eq!(tokens, ["xoxb-1", "xoxb-2"]);
    assert_eq!(rig.fake.calls_of("conversations.info").len(), 0, "learnt from what came in");
}

#[tokio::test]
async fn one_workspace_that_threw_us_out_does_not_silence_the_other() {
    let rig = rig_with(|config| config.bot_tokens.insert(0, Secret::new("xoxb-gone")));
    rig.fake.push_text("D1", "U7", "hello");
    rig.listen(None, async |batches| {
        assert_eq!(texts(&take(batches, 1).await), ["hello"]);
        let [lack] = &rig.adapter.lacks()[..] else { panic!("one is missing") };
        assert_eq!(
            (lack.what.as_str(), lack.code.as_str()),
            ("the workspace of bot token 1", "slack_invalid_auth")
        );
        assert!(lack.reason.contains("SLACK_BOT_TOKEN"), "{}", lack.reason);
    })
    .await;
}

async fn say(rig: &Rig, chat: &str) -> Result<Receipt, Error> {
    rig.adapter.send(&route(chat, None), &Part::plain("hi"), &SendOptions::default()).await
}

#[tokio::test]
async fn a_token_that_is_revoked_while_the_socket_stands_ends_the_link_with_the_next_message() {
    for (scope, code) in [(false, "slack_invalid_auth"), (true, "slack_missing_scope")] {
        let rig = rig();
        rig.fake.push_text("D1", "U7", "hello");
        let (intake, mut batches) = Intake::new(4);
        let mut health = |_| {};
        let work = async {
            take(&mut batches, 1).await;
            say(&rig, "D1").await.expect("taken so far");
            match scope {
                true => rig.fake.on("chat.postMessage").always().does(Fault::missing_scope("chat:write")),
                false => rig.fake.revoke(TOKEN),
            }
            say(&rig, "D1").await.expect_err("refused");
            std::future::pending::<()>().await;
        };
        let ended = async {
            tokio::select! {
                error = rig.adapter.receive(None, &intake, &mut health) => error,
                () = work => unreachable!("it waits"),
            }
        };
        let error = tokio::time::timeout(SOON, ended).await.expect("an end");
        assert_eq!((error.code(), error.fault()), (code, Meaning::Fatal));
        assert!(error.to_string().contains("api.slack.com/apps"), "{error}");
    }
}

#[tokio::test]
async fn one_workspace_of_two_that_is_lost_is_named_until_it_is_back() {
    let rig = rig_with(|config| config.bot_tokens.push(Secret::new("xoxb-2")));
    rig.fake.add_workspace("T2", "xoxb-2");
    rig.fake.push_text("D1", "U7", "first");
    rig.fake.push(Incoming::new("D2", "U9", "second").team("T2"));
    rig.fake.add_channel("T2", "C9");
    let ((), told) = rig
        .listen(None, async |batches| {
            take(batches, 2).await;
            assert!(rig.adapter.lacks().is_empty());
            rig.fake.revoke(TOKEN);
            say(&rig, "D1").await.expect_err("refused");
            let [lack] = &rig.adapter.lacks()[..] else { panic!("one is missing") };
            let lost = ("workspace Team T1 (T1)", "slack_invalid_auth");
            assert_eq!((lack.what.as_str(), lack.code.as_str()), lost);
            say(&rig, "D2").await.expect("the other takes it");
            say(&rig, "C9").await.expect("and is found behind the one that is lost");
            rig.fake.add_workspace("T1", TOKEN);
            say(&rig, "D1").await.expect("it is back");
            assert!(rig.adapter.lacks().is_empty());
            rig.fake.push(Incoming::new("D2", "U9", "still here?").team("T2"));
            assert_eq!(texts(&take(batches, 1).await), ["still here?"]);
        })
        .await;
    assert_eq!(degraded(&told), [""; 0], "the link goes on");
    assert!(told.len() >= 4, "that one is lost and that it is back is told at once: {told:?}");
}

#[tokio::test]
async fn a_message_that_was_refused_before_the_link_began_anew_says_nothing_about_it() {
    let rig = rig();
    rig.fake.push_text("D1", "U7", "hello");
    rig.listen(None, async |batches| take(batches, 1).await).await;
    let gate = rig.fake.gate("chat.postMessage", Side::Before);
    let answered = std::cell::Cell::new(false);
    let first = async {
        let refused = say(&rig, "D1").await;
        answered.set(true);
        refused
    };
    let anew = async {
        until("the message is under way", || gate.waiting() > 0).await;
        rig.fake.push_text("D1", "U7", "again");
        rig.listen(None, async |batches| {
            take(batches, 1).await;
            rig.fake.revoke(TOKEN);
            gate.open();
            until("it is refused", || answered.get()).await;
            rig.fake.add_workspace("T1", TOKEN);
            rig.fake.push_text("D1", "U7", "and again");
            take(batches, 1).await;
            say(&rig, "D1").await.expect("taken");
        })
        .await;
    };
    let (refused, ()) = tokio::join!(first, anew);
    assert_eq!(refused.expect_err("refused").fault(), Meaning::Fatal);
    assert!(rig.adapter.lacks().is_empty());
}

async fn until(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    while !look() {
        assert!(tokio::time::Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}
