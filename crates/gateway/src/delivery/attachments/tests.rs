use std::fs;
use std::os::unix::fs::symlink;

use petasos_core::media::extract;
use rustix::fs::{FileType, mknodat};

use super::*;
use crate::links::channels::pulled;

struct Disk {
    root: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let disk = Self { root: tempfile::tempdir().expect("a folder") };
        for file in [
            "user/report.pdf",
            "user/.ssh/id_ed25519",
            "user/.netrc",
            "user/.hermes/.env",
            "user/.hermes/petasos.db",
            "user/.hermes/config.yaml",
            "user/.hermes/cache/images/a.png",
            "user/.hermes/workspace/a.txt",
            "user/.hermes/workspace/.env",
            "user/.claude/.credentials.json",
            "user/.codex/auth.json",
            "user/project/.env",
            "user/project/main.rs",
            "user/.config/browser/history",
            "user/.config/shared/a.txt",
            "shared/song.ogg",
        ] {
            let path = disk.path(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "content").expect("written");
        }
        fs::write(disk.path("user/empty"), "").expect("written");
        symlink(disk.path("user/.ssh/id_ed25519"), disk.path("user/harmless.txt")).expect("linked");
        symlink(disk.path("shared"), disk.path("also")).expect("linked");
        symlink(disk.path("user/.ssh"), disk.path("user/keys")).expect("linked");
        let workspace = |name: &str| disk.path("user/.hermes/workspace").join(name);
        symlink(disk.path("user/project/main.rs"), workspace("link.rs")).expect("linked");
        symlink(disk.path("user/.hermes/.env"), workspace("settings.txt")).expect("linked");
        symlink(disk.path("user/project"), workspace("project")).expect("linked");
        fs::hard_link(disk.path("user/.hermes/.env"), workspace("notes.txt")).expect("linked");
        fs::hard_link(disk.path("user/project/.env"), disk.path("user/.hermes/cache/images/b.png"))
            .expect("linked");
        fs::write(workspace("cert.txt"), "-----BEGIN EC PRIVATE KEY-----\nabc").expect("written");
        mknodat(CWD, disk.path("user/pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        disk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn policy(&self) -> Policy {
        let home = self.path("user/.hermes");
        let allowed = vec![home.join("cache"), home.join("workspace"), self.path("also")];
        Policy { home, user: Some(self.path("user")), allowed, strict: false, reach: Reach::Owner }
    }

    /// For a turn of a person who is not the owner.
    fn guarded(&self) -> Policy {
        self.policy().reaching(Reach::Anyone)
    }
}

fn place(files: Option<u64>) -> Capabilities {
    Capabilities { files, label: "Fake".into(), ..pulled() }
}

#[test]
fn files_from_elsewhere_are_sent_only_in_a_turn_of_the_owner() {
    let disk = Disk::new();
    for (path, owner, anyone) in [
        ("~/report.pdf", Ok(()), Err(Kept::Denied)),
        ("~/project/main.rs", Ok(()), Err(Kept::Denied)),
        ("~/.hermes/workspace/link.rs", Ok(()), Err(Kept::Denied)),
        ("~/.hermes/workspace/project/main.rs", Ok(()), Err(Kept::Denied)),
        ("~/nothing.txt", Err(Kept::Missing), Err(Kept::Denied)),
        ("~/.hermes/workspace/a.txt", Ok(()), Ok(())),
        ("~/.hermes/cache/images/a.png", Ok(()), Ok(())),
        ("~/../also/song.ogg", Ok(()), Ok(())),
    ] {
        let judge = |policy: Policy| policy.judge(path, &place(Some(100))).map(drop);
        assert_eq!((judge(disk.policy()), judge(disk.guarded())), (owner, anyone), "{path}");
    }
}

#[test]
fn credentials_and_hard_links_are_never_sent() {
    let disk = Disk::new();
    for (path, why) in [
        ("~/.claude/.credentials.json", Kept::Denied),
        ("~/.codex/auth.json", Kept::Denied),
        ("~/project/.env", Kept::Denied),
        ("~/.hermes/workspace/.env", Kept::Denied),
        ("~/.hermes/workspace/settings.txt", Kept::Denied),
        ("~/.hermes/workspace/project/.env", Kept::Denied),
        ("~/.hermes/workspace/cert.txt", Kept::Denied),
        ("~/.hermes/workspace/notes.txt", Kept::Linked),
        ("~/.hermes/cache/images/b.png", Kept::Linked),
    ] {
        for policy in [disk.policy(), disk.guarded()] {
            let judged = policy.judge(path, &place(Some(100))).map(drop);
            assert_eq!(judged.as_ref(), Err(&why), "{path} {:?}", policy.reach);
        }
    }
}

#[test]
fn what_may_leave_is_decided_by_where_it_really_is() {
    let disk = Disk::new();
    let policy = disk.policy();
    let judge = |path: &str| policy.judge(path, &place(Some(100))).map(|(path, _)| path);
    for sent in ["user/report.pdf", "user/.hermes/cache/images/a.png", "user/.hermes/workspace/a.txt"] {
        assert_eq!(judge(disk.path(sent).to_str().expect("text")), Ok(disk.path(sent)), "{sent}");
    }
    assert_eq!(judge("~/report.pdf"), Ok(disk.path("user/report.pdf")));
    assert_eq!(judge("~/../shared/song.ogg"), Ok(disk.path("shared/song.ogg")));
    for (path, why) in [
        ("~/.ssh/id_ed25519", Kept::Denied),
        ("~/harmless.txt", Kept::Denied),
        ("~/.hermes/.env", Kept::Denied),
        ("~/.hermes/petasos.db", Kept::Denied),
        ("~/.hermes/config.yaml", Kept::Denied),
        ("~/.hermes/cache/../.env", Kept::Denied),
        ("/etc/hostname", Kept::Denied),
        ("/proc/self/environ", Kept::Denied),
        ("/dev/null", Kept::Denied),
        ("~/pipe", Kept::NoFile),
        ("~/nothing.txt", Kept::Missing),
        ("~/report.pdf/x", Kept::Missing),
        ("~/empty", Kept::Empty),
    ] {
        assert_eq!(judge(path), Err(why), "{path}");
    }
    assert_eq!(judge(disk.path("shared").to_str().expect("text")), Err(Kept::NoFile));
}

#[test]
fn even_where_everything_is_allowed_our_own_folder_stays_closed() {
    let disk = Disk::new();
    let policy = Policy { allowed: vec!["/".into(), disk.path("user/.hermes")], ..disk.policy() };
    assert_eq!(policy.judge("~/.hermes/.env", &place(Some(100))), Err(Kept::Denied));
    let key = policy.judge("~/.ssh/id_ed25519", &place(Some(100))).map(|(path, _)| path);
    assert_eq!(key, Err(Kept::Denied), "credentials are never sent");
    for path in ["/etc/hostname", "~/.config/browser/history"] {
        assert_eq!(policy.judge(path, &place(Some(100))), Err(Kept::Denied), "{path}");
    }
    let policy = Policy { allowed: vec![disk.path("user/.config/shared")], ..disk.guarded() };
    let shared = policy.judge("~/.config/shared/a.txt", &place(Some(100))).map(drop);
    assert_eq!(shared, Ok(()), "what is allowed by name may be sent");
}

#[test]
fn whether_a_file_that_may_not_leave_is_there_stays_here_too() {
    let disk = Disk::new();
    let policy = disk.policy();
    for (there, not_there) in [
        ("~/.ssh/id_ed25519", "~/.ssh/id_rsa"),
        ("~/keys/id_ed25519", "~/keys/id_rsa"),
        ("~/.netrc", "~/.pgpass"),
        ("~/.hermes/.env", "~/.hermes/.env.old"),
        ("~/.hermes/petasos.db", "~/.hermes/backup/petasos.db"),
        ("/etc/hostname", "/etc/no-such-file"),
    ] {
        for path in [there, not_there] {
            assert_eq!(policy.judge(path, &place(Some(100))), Err(Kept::Denied), "{path}");
        }
    }
    let strict = Policy { strict: true, ..policy };
    assert_eq!(strict.judge("~/nothing.txt", &place(Some(100))), Err(Kept::Old));
}

#[test]
fn a_link_that_takes_the_place_of_what_was_judged_is_not_followed() {
    let disk = Disk::new();
    for link in ["user/harmless.txt", "also/song.ogg"] {
        assert!(open(&disk.path(link)).is_err() && disk.path(link).is_file(), "{link}");
    }
    assert!(open(&disk.path("shared/song.ogg")).is_ok());
}

#[test]
fn strict_means_allowed_or_new() {
    let disk = Disk::new();
    let policy = Policy { strict: true, ..disk.policy() };
    let (old, new) = (Some(Duration::from_secs(601)), Some(Duration::from_secs(599)));
    for (name, age, want) in [
        ("user/report.pdf", old, Err(Kept::Old)),
        ("user/report.pdf", None, Err(Kept::Old)),
        ("user/report.pdf", new, Ok(())),
        ("shared/song.ogg", old, Ok(())),
        ("user/.ssh/id_ed25519", new, Err(Kept::Denied)),
    ] {
        assert_eq!(policy.permit(&disk.path(name), age), want, "{name} {age:?}");
    }
}

#[tokio::test]
async fn every_file_of_an_answer_has_a_part_whatever_becomes_of_it() {
    let disk = Disk::new();
    let media = extract("Look.\nMEDIA:~/report.pdf\nMEDIA:~/.ssh/id_ed25519\nMEDIA:/gone.png");
    let parts = disk.policy().parts(&media, &place(Some(3))).await;
    let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "📎 report.pdf was not sent: it has 1 MB, and Fake takes 0 MB at most.",
            "📎 id_ed25519 was not sent: files from there are not sent.",
            "📎 gone.png was not sent: it is not there.",
        ]
    );
    let parts = disk.policy().parts(&media, &place(None)).await;
    assert!(parts.iter().all(|part| part.text.ends_with("files cannot be sent here.")), "{parts:?}");
    let parts = disk.policy().parts(&media, &place(Some(100))).await;
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[0].file.as_ref().map(|file| file.name.as_str()), Some("report.pdf"));
}

#[test]
fn the_name_and_the_flags_say_how_a_file_appears() {
    for (name, flags, show) in [
        ("a.png", "", Show::Photo),
        ("a.png", "[[as_document]]", Show::Document),
        ("a.gif", "", Show::Document),
        ("a.ogg", "", Show::Document),
        ("a.ogg", "[[audio_as_voice]]", Show::Voice),
        ("a.opus", "[[audio_as_voice]]", Show::Voice),
        ("a.mp3", "[[audio_as_voice]]", Show::Audio),
        ("a.m4a", "", Show::Audio),
        ("a.wav", "", Show::Document),
        ("a.mp4", "", Show::Video),
        ("a.pdf", "", Show::Document),
    ] {
        let media = extract(&format!("{flags} MEDIA:/{name}"));
        let opened = Opened::from(tempfile::tempfile().expect("a file"));
        assert_eq!(file(Path::new(&format!("/{name}")), opened, &media).show, show, "{name} {flags}");
    }
}
