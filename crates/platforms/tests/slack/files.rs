//! Files that people share: fetched with the workspace's token, which nobody else is shown.

use petasos_core::Inbound;
use petasos_fakes::slack::{Incoming, TOKEN};
use petasos_platforms::{Fetched, download};
use serde_json::{Value, json};

use crate::rig::{Rig, rig, take};

/// Somebody shares a file; this is what we hear of it.
async fn shared(rig: &Rig, file: Value) -> Inbound {
    let (events, _) = rig
        .listen(None, async |batches| {
            let said = Incoming::new("D1", "U5", "look");
            rig.fake.push(said.with(json!({ "subtype": "file_share", "files": [file] })));
            take(batches, 1).await
        })
        .await;
    events[0].clone()
}

async fn fetch(rig: &Rig, inbound: &Inbound) -> Result<Fetched, download::Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut file = tokio::fs::File::create(folder.path().join("part")).await.expect("made");
    rig.adapter.fetch(&inbound.source, &inbound.attachments[0], u64::MAX, &mut file).await
}

/// The tokens that a method was called with since `from` calls of it.
fn tokens(rig: &Rig, method: &str, from: usize) -> Vec<String> {
    rig.fake.calls_of(method).into_iter().skip(from).map(|call| call.token).collect()
}

#[tokio::test]
async fn an_address_of_somebody_elses_choice_is_not_shown_the_token() {
    for (led, downloads) in [(false, 0), (true, 1)] {
        let rig = rig();
        let method = format!("{}/auth.test", rig.fake.api_base());
        let url = if led { rig.fake.add_redirect("a.txt", &method) } else { method };
        let inbound = shared(&rig, json!({ "id": "F1", "name": "a.txt", "url_private": url })).await;
        let signed_in = rig.fake.calls_of("auth.test").len();
        // It comes to nothing but an answer to a stranger.
        drop(fetch(&rig, &inbound).await);
        assert_eq!(tokens(&rig, "auth.test", signed_in), [""], "{url}");
        assert_eq!(tokens(&rig, "download", 0), vec![TOKEN; downloads], "{url}");
    }
}

#[tokio::test]
async fn what_slack_does_not_keep_is_said_to_be_elsewhere_and_nobody_is_asked() {
    for about in [json!({ "is_external": true }), json!({ "mode": "external" })] {
        let rig = rig();
        let url = rig.fake.add_file("plan.gdoc", "not ours");
        let mut file = json!({ "id": "F1", "name": "plan.gdoc", "url_private": url });
        let fields = file.as_object_mut().expect("an object");
        fields.extend(about.as_object().expect("an object").clone());
        let inbound = shared(&rig, file).await;
        let error = fetch(&rig, &inbound).await.expect_err("no file");
        assert!(matches!(error, download::Error::Elsewhere) && !error.is_passing(), "{about}: {error}");
        assert_eq!(rig.fake.calls_of("download").len(), 0, "{about}");
    }
}
