//! Downloads of shared files with the workspace's token, which no other host receives.

use petasos_core::Inbound;
use petasos_fakes::slack::{Incoming, TOKEN};
use petasos_platforms::{Fetched, download};
use serde_json::{Value, json};

use super::fixture::{SlackFixture, commit_events, fixture};

/// A user shares a file; returns the inbound message.
async fn receive_file(fixture: &SlackFixture, file: Value) -> Inbound {
    let (events, _) = fixture
        .listen(None, async |batches| {
            let message = Incoming::new("D1", "U5", "look");
            fixture.fake.push(message.with(json!({ "subtype": "file_share", "files": [file] })));
            commit_events(batches, 1).await
        })
        .await;
    events[0].clone()
}

async fn fetch(fixture: &SlackFixture, inbound: &Inbound) -> Result<Fetched, download::Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut file = tokio::fs::File::create(folder.path().join("part")).await.expect("made");
    fixture.adapter.fetch(&inbound.source, &inbound.attachments[0], u64::MAX, &mut file).await
}

/// Tokens of the calls of a method, without the first `from` calls.
fn tokens(fixture: &SlackFixture, method: &str, from: usize) -> Vec<String> {
    fixture.fake.calls_of(method).into_iter().skip(from).map(|call| call.token).collect()
}

#[tokio::test]
async fn never_sends_the_token_to_a_foreign_address() {
    for (redirected, downloads) in [(false, 0), (true, 1)] {
        let fixture = fixture();
        let method = format!("{}/auth.test", fixture.fake.api_base());
        let url = if redirected { fixture.fake.add_redirect("a.txt", &method) } else { method };
        let inbound =
            receive_file(&fixture, json!({ "id": "F1", "name": "a.txt", "url_private": url })).await;
        let signed_in = fixture.fake.calls_of("auth.test").len();
        // The response does not matter here.
        drop(fetch(&fixture, &inbound).await);
        assert_eq!(tokens(&fixture, "auth.test", signed_in), [""], "{url}");
        assert_eq!(tokens(&fixture, "download", 0), vec![TOKEN; downloads], "{url}");
    }
}

#[tokio::test]
async fn reports_files_outside_slack_without_a_request() {
    for marker in [json!({ "is_external": true }), json!({ "mode": "external" })] {
        let fixture = fixture();
        let url = fixture.fake.add_file("plan.gdoc", "not ours");
        let mut file = json!({ "id": "F1", "name": "plan.gdoc", "url_private": url });
        let fields = file.as_object_mut().expect("an object");
        fields.extend(marker.as_object().expect("an object").clone());
        let inbound = receive_file(&fixture, file).await;
        let error = fetch(&fixture, &inbound).await.expect_err("no file");
        assert!(matches!(error, download::Error::NotStored) && !error.is_transient(), "{marker}: {error}");
        assert_eq!(fixture.fake.calls_of("download").len(), 0, "{marker}");
    }
}
