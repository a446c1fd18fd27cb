//! Files, out and in.

use petasos_core::message::Delivery;
use petasos_core::{Fault, Inbound, Reached, Route};
use petasos_platforms::{Error, Fetched, File, Kind, Opened, Part, Receipt, SendOptions, Show, download};

use crate::Verdict;
use crate::link::{Inbox, hold};
use crate::peer::{FileTrouble, Peer, Place, Shape, Trouble};
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
    let file = File {
        opened: Opened::at(&path).expect("there"),
        name: "report.bin".into(),
        mime: "application/octet-stream",
        show: Show::Document,
    };
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

pub(crate) async fn barred(peer: &dyn Peer) -> Verdict {
    let disk = on_disk();
    peer.file_trouble(Trouble::NoFiles);
    let error = send(peer, &Part::file(disk.file)).await.expect_err("barred");
    reveals_nothing(peer, &error);
    assert_eq!((error.fault(), error.reached()), (Fault::Refused, Reached::No), "{error}");
    assert!(error.kind() == Kind::NoFiles && !error.kind().is_dead_chat(), "{:?}", error.kind());
    assert!(peer.files(Place::Private).is_empty());
    send(peer, &Part::plain("a text")).await.expect("sent");
    assert_eq!(peer.seen(Place::Private).len(), 1);
    Verdict::Passed
}

pub(crate) async fn removed(peer: &dyn Peer) -> Verdict {
    let OnDisk { _folder, file } = on_disk();
    drop(_folder);
    send(peer, &Part::file(file)).await.expect("the judged file is open");
    assert_eq!(peer.files(Place::Private).len(), 1);
    Verdict::Passed
}

/// Fetches what somebody has sent, into a file that is then read back.
async fn fetched(
    peer: &dyn Peer,
    inbound: &Inbound,
    most: u64,
) -> Result<(Fetched, Vec<u8>), download::Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("part");
    let mut file = tokio::fs::File::create(&path).await.expect("made");
    let [attachment] = &inbound.attachments[..] else { panic!("one attachment: {inbound:?}") };
    let fetched = peer.adapter().fetch(&inbound.source, attachment, most, &mut file).await;
    if let Err(error) = &fetched {
        let said = format!("{error} {error:?}");
        peer.secrets().iter().for_each(|secret| assert!(!said.contains(secret), "{said}"));
    }
    Ok((fetched?, std::fs::read(&path).expect("readable")))
}

/// Somebody sends a file; this is what we hear of it.
async fn heard(peer: &dyn Peer, shape: Shape) -> Inbound {
    let mut inbox = Inbox::default();
    let text = match shape {
        Shape::Sound => "a file",
        Shape::SaysItIsSmall => "a small file",
        Shape::LeadsTo(_) => "a file elsewhere",
    };
    hold(peer, &mut inbox, async |line| {
        peer.say_file(text, "report.bin", &content(), shape);
        line.hear(&[text]).await;
    })
    .await;
    inbox.all(text)[0].clone()
}

pub(crate) async fn received(peer: &dyn Peer) -> Verdict {
    let inbound = heard(peer, Shape::Sound).await;
    let attachment = &inbound.attachments[0];
    assert_eq!((attachment.kind.as_str(), attachment.name.as_deref()), ("document", Some("report.bin")));
    assert_eq!(attachment.size, Some(content().len() as u64));
    let (fetched, bytes) = fetched(peer, &inbound, u64::MAX).await.expect("fetched");
    assert!(bytes == content() && fetched.size == bytes.len() as u64 && bytes.starts_with(&fetched.head));
    Verdict::Passed
}

pub(crate) async fn too_large(peer: &dyn Peer) -> Verdict {
    for shape in [Shape::Sound, Shape::SaysItIsSmall] {
        let inbound = heard(peer, shape.clone()).await;
        let most = content().len() as u64 - 1;
        let error = fetched(peer, &inbound, most).await.expect_err("too large");
        assert!(matches!(error, download::Error::TooLarge { .. }), "{shape:?}: {error}");
        assert!(!error.is_passing());
    }
    Verdict::Passed
}

pub(crate) async fn led_astray(peer: &dyn Peer) -> Verdict {
    let trap = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    trap.set_nonblocking(true).expect("it can be asked");
    let to = format!("http://{}/latest/meta-data", trap.local_addr().expect("an address"));
    let inbound = heard(peer, Shape::LeadsTo(to)).await;
    let error = fetched(peer, &inbound, u64::MAX).await.expect_err("barred");
    assert!(matches!(error, download::Error::Barred(_)), "{error}");
    assert!(trap.accept().is_err(), "nobody went there");
    Verdict::Passed
}

pub(crate) async fn fetched_badly(peer: &dyn Peer) -> Verdict {
    let inbound = heard(peer, Shape::Sound).await;
    for (trouble, passing) in [
        (FileTrouble::Gone, false),
        (FileTrouble::NotWell, true),
        (FileTrouble::Reset, true),
        (FileTrouble::CutOff, true),
    ] {
        peer.download_trouble(trouble);
        let error = fetched(peer, &inbound, u64::MAX).await.expect_err("trouble");
        assert_eq!(error.is_passing(), passing, "{trouble:?}: {error}");
    }
    let (_, bytes) = fetched(peer, &inbound, u64::MAX).await.expect("well again");
    assert!(bytes == content());
    Verdict::Passed
}
