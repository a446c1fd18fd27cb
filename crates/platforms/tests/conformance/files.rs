//! Files, out and in.

use petasos_core::message::Delivery;
use petasos_core::{Fault, Reached, Route};
use petasos_platforms::{Error, File, Part, Receipt, SendOptions, Show};

use crate::Verdict;
use crate::peer::{Peer, Place, Trouble};
use crate::sending::reveals_nothing;

/// Larger than what is read at once, and not text.
fn content() -> Vec<u8> {
    (0..300_000_u32).map(|n| n.to_le_bytes()[usize::try_from(n % 3).expect("small")]).collect()
}

struct OnDisk {
    _folder: tempfile::TempDir,
    file: File,
}

fn on_disk() -> OnDisk {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.bin");
    std::fs::write(&path, content()).expect("written");
    let file =
        File { path, name: "report.bin".into(), mime: "application/octet-stream", show: Show::Document };
    OnDisk { _folder: folder, file }
}

async fn send(peer: &dyn Peer, part: &Part) -> Result<Receipt, Error> {
    let to = Route {
        platform: peer.adapter().platform(),
        chat_id: peer.chat(Place::Private),
        thread_id: None,
        reply_to: None,
        delivery: Delivery::Push,
    };
    peer.adapter().send(&to, part, &SendOptions::default()).await
}

pub(crate) async fn whole(peer: &dyn Peer) -> Verdict {
    let disk = on_disk();
    let most = peer.adapter().capabilities().files.expect("a largest file");
    assert!(most >= 10 << 20, "{most}");
    send(peer, &Part::file(disk.file.clone())).await.expect("sent");
    send(peer, &Part::file(disk.file).led_by("maybe a copy\n\n")).await.expect("sent");
    let captions: Vec<_> = peer.seen(Place::Private).into_iter().map(|seen| seen.text).collect();
    assert_eq!(captions.iter().map(|text| text.trim()).collect::<Vec<_>>(), ["", "maybe a copy"]);
    let files = peer.files(Place::Private);
    assert_eq!(files.len(), 2);
    assert!(files.iter().all(|(name, bytes)| name == "report.bin" && *bytes == content()));
    Verdict::Passed
}

pub(crate) async fn lost(peer: &dyn Peer) -> Verdict {
    let disk = on_disk();
    peer.file_trouble(Trouble::LostAnswer);
    let error = send(peer, &Part::file(disk.file)).await.expect_err("lost");
    reveals_nothing(peer, &error);
    assert!(matches!(error.fault(), Fault::Later { .. }), "{error}");
    assert_eq!(error.reached(), Reached::Maybe, "{error}");
    assert_eq!(peer.files(Place::Private).len(), 1, "one try");
    Verdict::Passed
}

pub(crate) async fn gone(peer: &dyn Peer) -> Verdict {
    let OnDisk { _folder, file } = on_disk();
    drop(_folder);
    let error = send(peer, &Part::file(file)).await.expect_err("gone");
    assert!(matches!(error.fault(), Fault::Later { .. }), "{error}");
    assert_eq!(error.reached(), Reached::No, "{error}");
    assert!(peer.seen(Place::Private).is_empty());
    Verdict::Passed
}
