//! Every route that can be called: those of the configuration, and those of a file that is read again when it changes.
//!
//! Owns what was last read of the file. One that cannot be read, or that makes no sense, changes nothing: the routes it
//! had before stay, and the log says why.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tracing::{info, warn};

use super::hook::{Hook, Terms};

pub(super) type Hooks = BTreeMap<String, Arc<Hook>>;

const LARGEST_FILE: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Routes {
    fixed: Hooks,
    terms: Terms,
    file: Option<PathBuf>,
    /// Held only to look and to replace; never across a wait.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    hooks: Hooks,
    /// What the file was when it was last looked at, good or bad.
    stamp: Option<Stamp>,
}

/// What tells one state of a file from another.
type Stamp = (u64, i64, i64, u64);

impl Routes {
    pub(super) fn new(fixed: Hooks, terms: Terms, file: Option<PathBuf>) -> Self {
        Self { fixed, terms, file, known: Mutex::default() }
    }

    /// The route of this name. Looks at the file, so it belongs on a thread that may wait.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Hook>> {
        if let Some(fixed) = self.fixed.get(name) {
            return Some(fixed.clone());
        }
        let file = self.file.as_ref()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = std::fs::metadata(file).ok().map(|meta| stamp(&meta));
        if stamp != known.stamp {
            known.stamp = stamp;
            match self.load(file) {
                Ok(hooks) => {
                    info!(platform = "webhook", routes = hooks.len(), "subscriptions read");
                    known.hooks = hooks;
                }
                Err(error) => {
                    let file = file.display();
                    warn!(platform = "webhook", %file, error, "subscriptions cannot be used; those from before stay");
                }
            }
        }
        known.hooks.get(name).cloned()
    }

    fn load(&self, file: &Path) -> Result<Hooks, String> {
        let text = match content(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Hooks::new()),
            Err(error) => return Err(error.to_string()),
        };
        let written: Map<String, Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        parse(&written, &self.terms).map_err(|(name, why)| format!("{name}: {why}"))
    }
}

/// Every route of a section, or the first that makes no sense.
pub(super) fn parse(written: &Map<String, Value>, terms: &Terms) -> Result<Hooks, (String, String)> {
    let one = |(name, value): (&String, &Value)| match Hook::parse(name, value, terms) {
        Ok(hook) => Ok((name.clone(), Arc::new(hook))),
        Err(why) => Err((name.clone(), why)),
    };
    written.iter().map(one).collect()
}

fn content(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST_FILE {
        return Err(io::Error::other("the file is larger than 1 MiB"));
    }
    Ok(text)
}

fn stamp(meta: &Metadata) -> Stamp {
    (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len())
}

#[cfg(test)]
mod tests {
    use petasos_core::Secret;
    use serde_json::json;

    use super::*;

    fn terms() -> Terms {
        Terms { secret: Some(Secret::new("s")), loopback: true, targets: Default::default(), github: false }
    }

    /// What the route of this name says about a payload.
    fn says(routes: &Routes, name: &str) -> Option<String> {
        routes.find(name).map(|hook| hook.text(&json!({})))
    }

    #[test]
    fn the_file_is_read_again_when_it_changes_and_a_broken_one_changes_nothing() {
        let home = std::env::temp_dir().join(format!("petasos-routes-{}", std::process::id()));
        std::fs::create_dir_all(&home).expect("a folder");
        let file = home.join("webhook_subscriptions.json");
        let fixed = json!({ "fixed": { "prompt": "from the configuration" } });
        let fixed = parse(fixed.as_object().expect("a section"), &terms()).expect("routes");
        let routes = Routes::new(fixed, terms(), Some(file.clone()));
        assert_eq!(says(&routes, "a"), None, "no file yet");
        let write = |text: &str| std::fs::write(&file, text).expect("written");
        write(r#"{"a": {"prompt": "one"}, "fixed": {"prompt": "from the file"}}"#);
        assert_eq!(says(&routes, "a").as_deref(), Some("one"));
        assert_eq!(says(&routes, "fixed").as_deref(), Some("from the configuration"));
        for broken in ["{\"a\": {\"prom", r#"{"a": {"prompt": "two"}, "b": {"deliver": "pigeon"}}"#, "[]", ""]
        {
            write(broken);
            assert_eq!(says(&routes, "a").as_deref(), Some("one"), "{broken}");
        }
        write(r#"{"b": {"prompt": "three"}}"#);
        assert_eq!((says(&routes, "a"), says(&routes, "b").as_deref()), (None, Some("three")));
        std::fs::remove_file(&file).expect("removed");
        assert_eq!(says(&routes, "b"), None, "whoever removes the file removes its routes");
        std::fs::remove_dir_all(&home).expect("removed");
    }
}
