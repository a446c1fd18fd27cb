//! What is said to nobody: files below `cron/output/`. One file per text, never replaced.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use petasos_core::Millis;
use petasos_core::session::Civil;

use crate::home::create;

/// What a text belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Job {
    pub id: Option<String>,
    pub name: Option<String>,
    /// Shown above the text.
    pub about: BTreeMap<String, String>,
}

/// Names that one second may need.
const TRIES: u32 = 100;

/// `cron/output/<job>/<time>.md`, with a head that says what it is.
pub(crate) fn save(home: &Path, job: &Job, text: &str, now: Millis) -> io::Result<PathBuf> {
    let folder = home.join("cron/output").join(folder_of(job));
    let (stamp, shown) = times(now);
    let mut page = format!("# {}\n\n", job.name.as_deref().or(job.id.as_deref()).unwrap_or("Message"));
    // Writing into a string never fails.
    let _ = writeln!(page, "**Timestamp:** {shown}");
    if let Some(id) = &job.id {
        let _ = writeln!(page, "**Job ID:** {id}");
    }
    for (name, value) in &job.about {
        let _ = writeln!(page, "**{name}:** {value}");
    }
    let _ = write!(page, "\n---\n\n{text}\n");
    fresh(&folder, &stamp, "md", &page)
}

/// `cron/output/<job>_<time>.txt`: all of a text that is too long for one message.
pub(crate) fn save_whole(home: &Path, job: &Job, text: &str, now: Millis) -> io::Result<PathBuf> {
    fresh(&home.join("cron/output"), &format!("{}_{}", folder_of(job), times(now).0), "txt", text)
}

fn fresh(folder: &Path, name: &str, ending: &str, text: &str) -> io::Result<PathBuf> {
    for number in 1..=TRIES {
        let number = if number == 1 { String::new() } else { format!("_{number}") };
        let path = folder.join(format!("{name}{number}.{ending}"));
        match create(&path, text.as_bytes()) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// An id comes from outside: what could lead elsewhere is taken out of it.
fn folder_of(job: &Job) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let id: String = job.id.as_deref().unwrap_or_default().chars().take(80).map(safe).collect();
    if id.is_empty() { "misc".to_owned() } else { id }
}

/// For a file's name, and for people.
fn times(now: Millis) -> (String, String) {
    let Civil { year, month, day, hour, minute, second, .. } = petasos_store::local_time(now).civil();
    (
        format!("{year:04}{month:02}{day:02}_{hour:02}{minute:02}{second:02}"),
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_794_766_325_741);

    #[test]
    fn a_page_says_what_it_is_and_no_page_replaces_another() {
        let home = tempfile::tempdir().unwrap();
        let about = BTreeMap::from([("Schedule".to_owned(), "daily".to_owned())]);
        let job = Job { id: Some("a1".into()), name: Some("News".into()), about };
        let first = save(home.path(), &job, "one", NOW).unwrap();
        let second = save(home.path(), &job, "two", NOW).unwrap();
        assert!(first.starts_with(home.path().join("cron/output/a1")) && first != second);
        let page = std::fs::read_to_string(&first).unwrap();
        assert!(page.starts_with("# News\n\n**Timestamp:** 20"), "{page}");
        assert!(page.ends_with("**Job ID:** a1\n**Schedule:** daily\n\n---\n\none\n"), "{page}");
    }

    #[test]
    fn an_id_leads_nowhere_else() {
        let home = tempfile::tempdir().unwrap();
        for (id, want) in [("../../etc", "______etc"), ("", "misc"), ("a/b", "a_b"), (".", "_")] {
            let job = Job { id: Some(id.into()), ..Job::default() };
            let path = save(home.path(), &job, "x", NOW).unwrap();
            assert_eq!(path.parent().unwrap(), home.path().join("cron/output").join(want), "{id:?}");
        }
    }
}
