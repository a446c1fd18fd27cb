//! Telegram downloads.

use petasos_fakes::Telegram;
use petasos_fakes::telegram::Incoming;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::fixture::{commit_events, fixture_with};

#[tokio::test]
async fn downloads_from_the_configured_file_address() {
    let elsewhere = Telegram::start().expect("a fake");
    elsewhere.add_file("F1", &b"elsewhere"[..]);
    let own = format!("{}/file/bot", elsewhere.url());
    for (base, want) in [(None, "beside"), (Some(own), "elsewhere")] {
        let fixture = fixture_with(|config| config.base_file_url = base);
        fixture.fake.add_file("F1", &b"beside"[..]);
        let document =
            json!({ "file_id": "F1", "file_unique_id": "u", "file_name": "a.bin", "file_size": 9 });
        let fields = json!({ "text": null, "caption": "look", "document": document });
        fixture.fake.push(Incoming::text(5, 5, "").with(fields));
        let (events, _) = fixture.listen(None, async |batches| commit_events(batches, 1).await).await;
        let mut to = tokio::fs::File::from_std(tempfile::tempfile().expect("a file"));
        let event = &events[0];
        fixture.adapter.fetch(&event.source, &event.attachments[0], 1 << 20, &mut to).await.expect("fetched");
        let mut text = String::new();
        to.rewind().await.expect("its beginning");
        to.read_to_string(&mut text).await.expect("read");
        assert_eq!(text, want);
    }
}
