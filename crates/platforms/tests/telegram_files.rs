//! Where files come from.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod rig;

use petasos_fakes::Telegram;
use petasos_fakes::telegram::Incoming;
use rig::{rig_with, take};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

#[tokio::test]
async fn files_are_fetched_from_where_the_owner_says() {
    let elsewhere = Telegram::start().expect("a fake");
    elsewhere.add_file("F1", &b"elsewhere"[..]);
    let own = format!("{}/file/bot", elsewhere.url());
    for (base, want) in [(None, "beside"), (Some(own), "elsewhere")] {
        let rig = rig_with(|config| config.base_file_url = base);
        rig.fake.add_file("F1", &b"beside"[..]);
        let document =
            json!({ "file_id": "F1", "file_unique_id": "u", "file_name": "a.bin", "file_size": 9 });
        let fields = json!({ "text": null, "caption": "look", "document": document });
        rig.fake.push(Incoming::text(5, 5, "").with(fields));
        let (events, _) = rig.listen(None, async |batches| take(batches, 1).await).await;
        let mut to = tokio::fs::File::from_std(tempfile::tempfile().expect("a file"));
        let event = &events[0];
        rig.adapter.fetch(&event.source, &event.attachments[0], 1 << 20, &mut to).await.expect("fetched");
        let mut text = String::new();
        to.rewind().await.expect("its beginning");
        to.read_to_string(&mut text).await.expect("read");
        assert_eq!(text, want);
    }
}
