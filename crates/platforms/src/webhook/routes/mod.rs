//! Routes of the configuration, and of a subscriptions file that is reloaded when it changes.
//!
//! Owns the routes last loaded from the file. An unreadable or invalid file changes nothing and is logged.

pub(in crate::webhook) mod filter;
pub(in crate::webhook) mod route;
mod template;

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tracing::{info, warn};

use route::{RouteDefaults, WebhookRoute};

pub(in crate::webhook) type RouteMap = BTreeMap<String, Arc<WebhookRoute>>;

const MAX_FILE: u64 = 1 << 20;

#[derive(Debug)]
pub(in crate::webhook) struct Routes {
    fixed: RouteMap,
    defaults: RouteDefaults,
    file: Option<PathBuf>,
    loaded: Mutex<LoadedFile>,
}

#[derive(Debug, Default)]
struct LoadedFile {
    routes: RouteMap,
    /// Of the last attempt, successful or not.
    stamp: Option<FileStamp>,
}

/// Inode, modification time and size.
type FileStamp = (u64, i64, i64, u64);

impl Routes {
    pub(in crate::webhook) fn new(fixed: RouteMap, defaults: RouteDefaults, file: Option<PathBuf>) -> Self {
        Self { fixed, defaults, file, loaded: Mutex::default() }
    }

    /// Blocks: it may read the file.
    pub(in crate::webhook) fn find(&self, name: &str) -> Option<Arc<WebhookRoute>> {
        if let Some(fixed) = self.fixed.get(name) {
            return Some(fixed.clone());
        }
        let file = self.file.as_ref()?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = std::fs::metadata(file).ok().map(|meta| file_stamp(&meta));
        if stamp != loaded.stamp {
            loaded.stamp = stamp;
            match self.load(file) {
                Ok(routes) => {
                    info!(platform = "webhook", routes = routes.len(), "subscriptions loaded");
                    loaded.routes = routes;
                }
                Err(error) => {
                    let file = file.display();
                    warn!(platform = "webhook", %file, error, "invalid subscriptions file; keeping the previous routes");
                }
            }
        }
        loaded.routes.get(name).cloned()
    }

    fn load(&self, file: &Path) -> Result<RouteMap, String> {
        let text = match read_file(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(RouteMap::new()),
            Err(error) => return Err(error.to_string()),
        };
        let written: Map<String, Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        parse(&written, &self.defaults).map_err(|(name, why)| format!("{name}: {why}"))
    }
}

/// The error is the name of the first invalid route, and the reason.
pub(in crate::webhook) fn parse(
    written: &Map<String, Value>,
    defaults: &RouteDefaults,
) -> Result<RouteMap, (String, String)> {
    let one = |(name, value): (&String, &Value)| match WebhookRoute::parse(name, value, defaults) {
        Ok(route) => Ok((name.clone(), Arc::new(route))),
        Err(why) => Err((name.clone(), why)),
    };
    written.iter().map(one).collect()
}

fn read_file(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other("the file is larger than 1 MiB"));
    }
    Ok(text)
}

fn file_stamp(meta: &Metadata) -> FileStamp {
    (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len())
}

#[cfg(test)]
mod tests {
    use petasos_core::Secret;
    use serde_json::json;

    use super::*;

    fn defaults() -> RouteDefaults {
        let targets = Default::default();
        RouteDefaults { secret: Some(Secret::new("s")), loopback: true, targets, github: false }
    }

    fn text_of(routes: &Routes, name: &str) -> Option<String> {
        routes.find(name).map(|route| route.text(&json!({})))
    }

    #[test]
    fn reloads_a_changed_file_and_ignores_a_broken_one() {
        let home = std::env::temp_dir().join(format!("petasos-routes-{}", std::process::id()));
        std::fs::create_dir_all(&home).expect("a folder");
        let file = home.join("webhook_subscriptions.json");
        let fixed = json!({ "fixed": { "prompt": "from the configuration" } });
        let fixed = parse(fixed.as_object().expect("a section"), &defaults()).expect("routes");
        let routes = Routes::new(fixed, defaults(), Some(file.clone()));
        assert_eq!(text_of(&routes, "a"), None, "no file yet");
        let write = |text: &str| std::fs::write(&file, text).expect("written");
        write(r#"{"a": {"prompt": "one"}, "fixed": {"prompt": "from the file"}}"#);
        assert_eq!(text_of(&routes, "a").as_deref(), Some("one"));
        assert_eq!(text_of(&routes, "fixed").as_deref(), Some("from the configuration"));
        for broken in ["{\"a\": {\"prom", r#"{"a": {"prompt": "two"}, "b": {"deliver": "pigeon"}}"#, "[]", ""]
        {
            write(broken);
            assert_eq!(text_of(&routes, "a").as_deref(), Some("one"), "{broken}");
        }
        write(r#"{"b": {"prompt": "three"}}"#);
        assert_eq!((text_of(&routes, "a"), text_of(&routes, "b").as_deref()), (None, Some("three")));
        std::fs::remove_file(&file).expect("removed");
        assert_eq!(text_of(&routes, "b"), None, "removing the file removes its routes");
        std::fs::remove_dir_all(&home).expect("removed");
    }
}
