//! File transfer cases.

use petasos_core::message::Delivery;
use petasos_core::{Fault, Inbound, Reached, Route};
use petasos_platforms::{
    Error, Fetched, Kind, MediaKind, OpenFile, OutgoingFile, Part, Receipt, SendOptions, download,
};

use super::CellResult;
use super::link::{Inbox, with_link};
use super::platform::{ChatKind, DownloadFault, FileOffer, SendFault, TestPlatform};
use super::sending::reveals_nothing;

/// Larger than one read, and not text.
fn content() -> Vec<u8> {
    (0..300_000_u32).map(|n| n.to_le_bytes()[usize::try_from(n % 3).expect("small")]).collect()
}

struct OnDisk {
    _folder: tempfile::TempDir,
    file: OutgoingFile,
}

fn on_disk() -> OnDisk {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.bin");
    std::fs::write(&path, content()).expect("written");
    let file = OutgoingFile {
        opened: OpenFile::at(&path).expect("there"),
        name: "report.bin".into(),
        mime: "application/octet-stream",
        show: MediaKind::Document,
    };
    OnDisk { _folder: folder, file }
}

async fn send(platform: &dyn TestPlatform, part: &Part) -> Result<Receipt, Error> {
    let to = Route {
        platform: platform.adapter().platform(),
        chat_id: platform.chat(ChatKind::Private),
        thread_id: None,
        reply_to: None,
        delivery: Delivery::Push,
    };
    platform.adapter().send(&to, part, &SendOptions::default()).await
}

pub(crate) async fn whole(platform: &dyn TestPlatform) -> CellResult {
    let disk = on_disk();
    let most = platform.adapter().capabilities().files.expect("a largest file");
    assert!(most >= 10 << 20, "{most}");
    send(platform, &Part::file(disk.file.clone())).await.expect("sent");
    send(platform, &Part::file(disk.file).with_prefix("maybe a copy\n\n")).await.expect("sent");
    let captions: Vec<_> =
        platform.sent_messages(ChatKind::Private).into_iter().map(|seen| seen.text).collect();
    assert_eq!(captions.iter().map(|text| text.trim()).collect::<Vec<_>>(), ["", "maybe a copy"]);
    let files = platform.files(ChatKind::Private);
    assert_eq!(files.len(), 2);
    assert!(files.iter().all(|(name, bytes)| name == "report.bin" && *bytes == content()));
    CellResult::Passed
}

pub(crate) async fn unknown_outcome(platform: &dyn TestPlatform) -> CellResult {
    let disk = on_disk();
    platform.fail_next_file(SendFault::LostAnswer);
    let error = send(platform, &Part::file(disk.file)).await.expect_err("lost");
    reveals_nothing(platform, &error);
    assert!(matches!(error.fault(), Fault::Later { .. }), "{error}");
    assert_eq!(error.reached(), Reached::Maybe, "{error}");
    assert_eq!(platform.files(ChatKind::Private).len(), 1, "one try");
    CellResult::Passed
}

pub(crate) async fn files_forbidden(platform: &dyn TestPlatform) -> CellResult {
    let disk = on_disk();
    platform.fail_next_file(SendFault::NoFiles);
    let error = send(platform, &Part::file(disk.file)).await.expect_err("barred");
    reveals_nothing(platform, &error);
    assert_eq!((error.fault(), error.reached()), (Fault::Refused, Reached::No), "{error}");
    assert!(error.kind() == Kind::NoFiles && !error.kind().is_dead_chat(), "{:?}", error.kind());
    assert!(platform.files(ChatKind::Private).is_empty());
    send(platform, &Part::plain("a text")).await.expect("sent");
    assert_eq!(platform.sent_messages(ChatKind::Private).len(), 1);
    CellResult::Passed
}

pub(crate) async fn removed(platform: &dyn TestPlatform) -> CellResult {
    let OnDisk { _folder, file } = on_disk();
    drop(_folder);
    send(platform, &Part::file(file)).await.expect("the judged file is open");
    assert_eq!(platform.files(ChatKind::Private).len(), 1);
    CellResult::Passed
}

/// Downloads an attachment and reads it back.
async fn fetched(
    platform: &dyn TestPlatform,
    inbound: &Inbound,
    most: u64,
) -> Result<(Fetched, Vec<u8>), download::Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("part");
    let mut file = tokio::fs::File::create(&path).await.expect("made");
    let [attachment] = &inbound.attachments[..] else { panic!("one attachment: {inbound:?}") };
    let fetched = platform.adapter().fetch(&inbound.source, attachment, most, &mut file).await;
    if let Err(error) = &fetched {
        let output = format!("{error} {error:?}");
        platform.secrets().iter().for_each(|secret| assert!(!output.contains(secret), "{output}"));
    }
    Ok((fetched?, std::fs::read(&path).expect("readable")))
}

/// A user sends a file; returns the inbound event.
async fn receive_offer(platform: &dyn TestPlatform, shape: FileOffer) -> Inbound {
    let mut inbox = Inbox::default();
    let text = match shape {
        FileOffer::Valid => "a file",
        FileOffer::UnderstatedSize => "a small file",
        FileOffer::RedirectsTo(_) => "a file elsewhere",
    };
    with_link(platform, &mut inbox, async |link| {
        platform.receive_file(text, "report.bin", &content(), shape);
        link.commit_until_received(&[text]).await;
    })
    .await;
    inbox.all(text)[0].clone()
}

pub(crate) async fn received(platform: &dyn TestPlatform) -> CellResult {
    let inbound = receive_offer(platform, FileOffer::Valid).await;
    let attachment = &inbound.attachments[0];
    assert_eq!((attachment.kind.as_str(), attachment.name.as_deref()), ("document", Some("report.bin")));
    assert_eq!(attachment.size, Some(content().len() as u64));
    let (fetched, bytes) = fetched(platform, &inbound, u64::MAX).await.expect("fetched");
    assert!(bytes == content() && fetched.size == bytes.len() as u64 && bytes.starts_with(&fetched.head));
    CellResult::Passed
}

pub(crate) async fn too_large(platform: &dyn TestPlatform) -> CellResult {
    for shape in [FileOffer::Valid, FileOffer::UnderstatedSize] {
        let inbound = receive_offer(platform, shape.clone()).await;
        let most = content().len() as u64 - 1;
        let error = fetched(platform, &inbound, most).await.expect_err("too large");
        assert!(matches!(error, download::Error::TooLarge { .. }), "{shape:?}: {error}");
        assert!(!error.is_transient());
    }
    CellResult::Passed
}

pub(crate) async fn private_redirect(platform: &dyn TestPlatform) -> CellResult {
    let trap = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    trap.set_nonblocking(true).expect("a non-blocking socket");
    let to = format!("http://{}/latest/meta-data", trap.local_addr().expect("an address"));
    let inbound = receive_offer(platform, FileOffer::RedirectsTo(to)).await;
    let error = fetched(platform, &inbound, u64::MAX).await.expect_err("barred");
    assert!(matches!(error, download::Error::Blocked(_)), "{error}");
    assert!(trap.accept().is_err(), "no connection was made");
    CellResult::Passed
}

pub(crate) async fn download_errors(platform: &dyn TestPlatform) -> CellResult {
    let inbound = receive_offer(platform, FileOffer::Valid).await;
    for (fault, passing) in [
        (DownloadFault::Gone, false),
        (DownloadFault::ServerError, true),
        (DownloadFault::Reset, true),
        (DownloadFault::CutOff, true),
    ] {
        platform.fail_next_download(fault);
        let error = fetched(platform, &inbound, u64::MAX).await.expect_err("fault");
        assert_eq!(error.is_transient(), passing, "{fault:?}: {error}");
    }
    let (_, bytes) = fetched(platform, &inbound, u64::MAX).await.expect("well again");
    assert!(bytes == content());
    CellResult::Passed
}
