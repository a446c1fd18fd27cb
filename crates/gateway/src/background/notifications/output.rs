//! Output files below `cron/output/`: one file per text, never replaced.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use petasos_core::Millis;
use petasos_core::session::Civil;

use crate::home::create;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputJob {
    pub id: Option<String>,
    pub name: Option<String>,
    pub about: BTreeMap<String, String>,
}

/// Files of one job within one second.
const MAX_NAMES: u32 = 100;

/// Writes `cron/output/<job>/<time>.md` with a header.
pub(crate) fn save(home: &Path, job: &OutputJob, text: &str, now: Millis) -> io::Result<PathBuf> {
    let folder = home.join("cron/output").join(folder_name(job));
    let (stamp, shown) = format_times(now);
    let mut page = format!("# {}\n\n", job.name.as_deref().or(job.id.as_deref()).unwrap_or("Message"));
    // Writing to a string cannot fail.
    let _ = writeln!(page, "**Timestamp:** {shown}");
    if let Some(id) = &job.id {
        let _ = writeln!(page, "**OutputJob ID:** {id}");
    }
    for (name, value) in &job.about {
        let _ = writeln!(page, "**{name}:** {value}");
    }
    let _ = write!(page, "\n---\n\n{text}\n");
    create_unique(&folder, &stamp, "md", &page)
}

/// Writes `cron/output/<job>_<time>.txt`: the full text of a message that is too long for the platform.
pub(crate) fn save_whole(home: &Path, job: &OutputJob, text: &str, now: Millis) -> io::Result<PathBuf> {
    create_unique(
        &home.join("cron/output"),
        &format!("{}_{}", folder_name(job), format_times(now).0),
        "txt",
        text,
    )
}

fn create_unique(folder: &Path, name: &str, ending: &str, text: &str) -> io::Result<PathBuf> {
    for number in 1..=MAX_NAMES {
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

/// Ids are external input: removes characters that could leave the folder.
fn folder_name(job: &OutputJob) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let id: String = job.id.as_deref().unwrap_or_default().chars().take(80).map(safe).collect();
    if id.is_empty() { "misc".to_owned() } else { id }
}

fn format_times(now: Millis) -> (String, String) {
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
    fn writes_header_and_never_replaces_a_file() {
        let home = tempfile::tempdir().unwrap();
        let about = BTreeMap::from([("Schedule".to_owned(), "daily".to_owned())]);
        let job = OutputJob { id: Some("a1".into()), name: Some("News".into()), about };
        let first = save(home.path(), &job, "one", NOW).unwrap();
        let second = save(home.path(), &job, "two", NOW).unwrap();
        assert!(first.starts_with(home.path().join("cron/output/a1")) && first != second);
        let page = std::fs::read_to_string(&first).unwrap();
        assert!(page.starts_with("# News\n\n**Timestamp:** 20"), "{page}");
        assert!(page.ends_with("**OutputJob ID:** a1\n**Schedule:** daily\n\n---\n\none\n"), "{page}");
    }

    #[test]
    fn keeps_ids_inside_the_output_folder() {
        let home = tempfile::tempdir().unwrap();
        for (id, want) in [("../../etc", "______etc"), ("", "misc"), ("a/b", "a_b"), (".", "_")] {
            let job = OutputJob { id: Some(id.into()), ..OutputJob::default() };
            let path = save(home.path(), &job, "x", NOW).unwrap();
            assert_eq!(path.parent().unwrap(), home.path().join("cron/output").join(want), "{id:?}");
        }
    }
}
