use std::fs;
use std::os::unix::fs::symlink;

use petasos_core::media::extract;
use rustix::fs::{FileType, mknodat};

use super::*;
use crate::links::channels::pulled;

struct FilesFixture {
    root: tempfile::TempDir,
}

impl FilesFixture {
    fn new() -> Self {
        let fixture = Self { root: tempfile::tempdir().expect("a folder") };
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
            let path = fixture.path(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "content").expect("written");
        }
        fs::write(fixture.path("user/empty"), "").expect("written");
        symlink(fixture.path("user/.ssh/id_ed25519"), fixture.path("user/harmless.txt")).expect("linked");
        symlink(fixture.path("shared"), fixture.path("also")).expect("linked");
        symlink(fixture.path("user/.ssh"), fixture.path("user/keys")).expect("linked");
        let workspace = |name: &str| fixture.path("user/.hermes/workspace").join(name);
        symlink(fixture.path("user/project/main.rs"), workspace("link.rs")).expect("linked");
        symlink(fixture.path("user/.hermes/.env"), workspace("settings.txt")).expect("linked");
        symlink(fixture.path("user/project"), workspace("project")).expect("linked");
        fs::hard_link(fixture.path("user/.hermes/.env"), workspace("notes.txt")).expect("linked");
        fs::hard_link(fixture.path("user/project/.env"), fixture.path("user/.hermes/cache/images/b.png"))
            .expect("linked");
        fs::write(workspace("cert.txt"), "-----BEGIN EC PRIVATE KEY-----\nabc").expect("written");
        mknodat(CWD, fixture.path("user/pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn policy(&self) -> AttachmentPolicy {
        let home = self.path("user/.hermes");
        let allowed = vec![home.join("cache"), home.join("workspace"), self.path("also")];
        AttachmentPolicy {
            home,
            user: Some(self.path("user")),
            allowed,
            strict: false,
            access: FileAccess::Owner,
        }
    }

    /// For a turn of a person who is not the owner.
    fn guarded(&self) -> AttachmentPolicy {
        self.policy().with_access(FileAccess::AllowedFolders)
    }
}

fn capabilities(files: Option<u64>) -> Capabilities {
    Capabilities { files, label: "Fake".into(), ..pulled() }
}

#[test]
fn sends_files_outside_allowed_folders_only_to_the_owner() {
    let fixture = FilesFixture::new();
    for (path, owner, anyone) in [
        ("~/report.pdf", Ok(()), Err(FileRefusal::Denied)),
        ("~/project/main.rs", Ok(()), Err(FileRefusal::Denied)),
        ("~/.hermes/workspace/link.rs", Ok(()), Err(FileRefusal::Denied)),
        ("~/.hermes/workspace/project/main.rs", Ok(()), Err(FileRefusal::Denied)),
        ("~/nothing.txt", Err(FileRefusal::Missing), Err(FileRefusal::Denied)),
        ("~/.hermes/workspace/a.txt", Ok(()), Ok(())),
        ("~/.hermes/cache/images/a.png", Ok(()), Ok(())),
        ("~/../also/song.ogg", Ok(()), Ok(())),
    ] {
        let open_checked =
            |policy: AttachmentPolicy| policy.open_checked(path, &capabilities(Some(100))).map(drop);
        assert_eq!(
            (open_checked(fixture.policy()), open_checked(fixture.guarded())),
            (owner, anyone),
            "{path}"
        );
    }
}

#[test]
fn never_sends_credentials_or_hard_links() {
    let fixture = FilesFixture::new();
    for (path, why) in [
        ("~/.claude/.credentials.json", FileRefusal::Denied),
        ("~/.codex/auth.json", FileRefusal::Denied),
        ("~/project/.env", FileRefusal::Denied),
        ("~/.hermes/workspace/.env", FileRefusal::Denied),
        ("~/.hermes/workspace/settings.txt", FileRefusal::Denied),
        ("~/.hermes/workspace/project/.env", FileRefusal::Denied),
        ("~/.hermes/workspace/cert.txt", FileRefusal::Denied),
        ("~/.hermes/workspace/notes.txt", FileRefusal::Linked),
        ("~/.hermes/cache/images/b.png", FileRefusal::Linked),
    ] {
        for policy in [fixture.policy(), fixture.guarded()] {
            let checked = policy.open_checked(path, &capabilities(Some(100))).map(drop);
            assert_eq!(checked.as_ref(), Err(&why), "{path} {:?}", policy.access);
        }
    }
}

#[test]
fn checks_the_resolved_path_not_the_written_one() {
    let fixture = FilesFixture::new();
    let policy = fixture.policy();
    let open_checked = |path: &str| policy.open_checked(path, &capabilities(Some(100))).map(|(path, _)| path);
    for sent in ["user/report.pdf", "user/.hermes/cache/images/a.png", "user/.hermes/workspace/a.txt"] {
        assert_eq!(
            open_checked(fixture.path(sent).to_str().expect("text")),
            Ok(fixture.path(sent)),
            "{sent}"
        );
    }
    assert_eq!(open_checked("~/report.pdf"), Ok(fixture.path("user/report.pdf")));
    assert_eq!(open_checked("~/../shared/song.ogg"), Ok(fixture.path("shared/song.ogg")));
    for (path, why) in [
        ("~/.ssh/id_ed25519", FileRefusal::Denied),
        ("~/harmless.txt", FileRefusal::Denied),
        ("~/.hermes/.env", FileRefusal::Denied),
        ("~/.hermes/petasos.db", FileRefusal::Denied),
        ("~/.hermes/config.yaml", FileRefusal::Denied),
        ("~/.hermes/cache/../.env", FileRefusal::Denied),
        ("/etc/hostname", FileRefusal::Denied),
        ("/proc/self/environ", FileRefusal::Denied),
        ("/dev/null", FileRefusal::Denied),
        ("~/pipe", FileRefusal::NoFile),
        ("~/nothing.txt", FileRefusal::Missing),
        ("~/report.pdf/x", FileRefusal::Missing),
        ("~/empty", FileRefusal::Empty),
    ] {
        assert_eq!(open_checked(path), Err(why), "{path}");
    }
    assert_eq!(open_checked(fixture.path("shared").to_str().expect("text")), Err(FileRefusal::NoFile));
}

#[test]
fn keeps_gateway_home_closed_when_everything_is_allowed() {
    let fixture = FilesFixture::new();
    let policy =
        AttachmentPolicy { allowed: vec!["/".into(), fixture.path("user/.hermes")], ..fixture.policy() };
    assert_eq!(policy.open_checked("~/.hermes/.env", &capabilities(Some(100))), Err(FileRefusal::Denied));
    let key = policy.open_checked("~/.ssh/id_ed25519", &capabilities(Some(100))).map(|(path, _)| path);
    assert_eq!(key, Err(FileRefusal::Denied), "credentials are never sent");
    for path in ["/etc/hostname", "~/.config/browser/history"] {
        assert_eq!(policy.open_checked(path, &capabilities(Some(100))), Err(FileRefusal::Denied), "{path}");
    }
    let policy = AttachmentPolicy { allowed: vec![fixture.path("user/.config/shared")], ..fixture.guarded() };
    let shared = policy.open_checked("~/.config/shared/a.txt", &capabilities(Some(100))).map(drop);
    assert_eq!(shared, Ok(()), "what is allowed by name may be sent");
}

#[test]
fn does_not_reveal_whether_a_forbidden_file_exists() {
    let fixture = FilesFixture::new();
    let policy = fixture.policy();
    for (there, not_there) in [
        ("~/.ssh/id_ed25519", "~/.ssh/id_rsa"),
        ("~/keys/id_ed25519", "~/keys/id_rsa"),
        ("~/.netrc", "~/.pgpass"),
        ("~/.hermes/.env", "~/.hermes/.env.old"),
        ("~/.hermes/petasos.db", "~/.hermes/backup/petasos.db"),
        ("/etc/hostname", "/etc/no-such-file"),
    ] {
        for path in [there, not_there] {
            assert_eq!(
                policy.open_checked(path, &capabilities(Some(100))),
                Err(FileRefusal::Denied),
                "{path}"
            );
        }
    }
    let strict = AttachmentPolicy { strict: true, ..policy };
    assert_eq!(strict.open_checked("~/nothing.txt", &capabilities(Some(100))), Err(FileRefusal::Old));
}

#[test]
fn does_not_follow_a_link_swapped_in_after_the_check() {
    let fixture = FilesFixture::new();
    for link in ["user/harmless.txt", "also/song.ogg"] {
        assert!(open(&fixture.path(link)).is_err() && fixture.path(link).is_file(), "{link}");
    }
    assert!(open(&fixture.path("shared/song.ogg")).is_ok());
}

#[test]
fn strict_mode_sends_allowed_or_recent_files_only() {
    let fixture = FilesFixture::new();
    let policy = AttachmentPolicy { strict: true, ..fixture.policy() };
    let old = Some(Duration::from_secs(601));
    let new = Some(Duration::from_secs(599));
    for (name, age, want) in [
        ("user/report.pdf", old, Err(FileRefusal::Old)),
        ("user/report.pdf", None, Err(FileRefusal::Old)),
        ("user/report.pdf", new, Ok(())),
        ("shared/song.ogg", old, Ok(())),
        ("user/.ssh/id_ed25519", new, Err(FileRefusal::Denied)),
    ] {
        assert_eq!(policy.check_path(&fixture.path(name), age), want, "{name} {age:?}");
    }
}

#[tokio::test]
async fn every_file_of_an_answer_yields_one_part() {
    let fixture = FilesFixture::new();
    let media = extract("Look.\nMEDIA:~/report.pdf\nMEDIA:~/.ssh/id_ed25519\nMEDIA:/gone.png");
    let parts = fixture.policy().parts(&media, &capabilities(Some(3))).await;
    let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "📎 report.pdf was not sent: it has 1 MB, but Fake accepts at most 0 MB.",
            "📎 id_ed25519 was not sent: I may not send this file.",
            "📎 gone.png was not sent: it does not exist.",
        ]
    );
    let parts = fixture.policy().parts(&media, &capabilities(None)).await;
    assert!(parts.iter().all(|part| part.text.ends_with("files cannot be sent here.")), "{parts:?}");
    let parts = fixture.policy().parts(&media, &capabilities(Some(100))).await;
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[0].file.as_ref().map(|file| file.name.as_str()), Some("report.pdf"));
}

#[test]
fn name_and_flags_choose_how_a_file_is_shown() {
    for (name, flags, show) in [
        ("a.png", "", SendKind::Photo),
        ("a.png", "[[as_document]]", SendKind::Document),
        ("a.gif", "", SendKind::Document),
        ("a.ogg", "", SendKind::Document),
        ("a.ogg", "[[audio_as_voice]]", SendKind::Voice),
        ("a.opus", "[[audio_as_voice]]", SendKind::Voice),
        ("a.mp3", "[[audio_as_voice]]", SendKind::Audio),
        ("a.m4a", "", SendKind::Audio),
        ("a.wav", "", SendKind::Document),
        ("a.mp4", "", SendKind::Video),
        ("a.pdf", "", SendKind::Document),
    ] {
        let media = extract(&format!("{flags} MEDIA:/{name}"));
        let opened = OpenFile::from(tempfile::tempfile().expect("a file"));
        assert_eq!(
            describe_file(Path::new(&format!("/{name}")), opened, &media).show,
            show,
            "{name} {flags}"
        );
    }
}
