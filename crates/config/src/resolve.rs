//! Resolves written values to settings: finds and checks every key, and records its origin. Pure.
//!
//! The environment takes precedence over the file, except for keys that declare the reverse. All problems are returned at
//! once; with an error, no setting may be used.

use std::collections::BTreeMap;

use petasos_core::text::nearest;
use petasos_core::{Platform, Redactor, Secret};
use serde_json::{Map, Value};

use crate::catalogue::{self, CatalogueEntry, FoundKey};
use crate::environment::Environment;
use crate::expand::expand;
use crate::key::{Effect, Kind};
use crate::problem::{Problem, Severity};
use crate::settings::{Origin, Settings};
use crate::value::coerce;
use crate::yaml::{Document, describe};

/// Settings and problems of a configuration.
#[derive(Debug, Default)]
pub struct Resolved {
    pub settings: Settings,
    pub problems: Vec<Problem>,
    /// Every value that may be secret, for redaction.
    pub secrets: Vec<Secret>,
}

impl Resolved {
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }

    pub fn redactor(&self) -> Redactor {
        Redactor::new(self.secrets.iter().map(Secret::expose))
    }

    /// Sorts the problems in reading order of the files.
    pub fn sort(&mut self) {
        self.problems.sort_by_key(Problem::order);
    }
}

pub(crate) fn resolve(document: Document, env: &Environment) -> Resolved {
    let mut out = Resolved::default();
    let mut walk = DocumentWalk {
        lines: &document.lines,
        written: BTreeMap::new(),
        unread: Vec::new(),
        problems: &mut out.problems,
    };
    walk.section("", &document.value);
    let written = walk.written;
    let unread = walk.unread;
    for (path, line, value) in unread {
        out.settings.put(path, value, Origin::File { line });
    }
    for duplicate in &document.duplicates {
        let what = format!(
            "{} is set twice, on line {} and on line {}",
            duplicate.path, duplicate.first, duplicate.last
        );
        let problem = Problem::warning(format!("config.yaml:{}", duplicate.last), what);
        out.problems.push(problem.next("the last one is used"));
    }
    for entry in written.into_values() {
        from_file(entry, env, &mut out);
    }
    for key in catalogue::all() {
        from_environment(key, env, &mut out);
    }
    out
}

/// A value of the file and its key.
struct WrittenValue {
    found: FoundKey,
    spelled: String,
    line: u32,
    value: Value,
}

struct DocumentWalk<'a> {
    lines: &'a BTreeMap<String, u32>,
    written: BTreeMap<String, WrittenValue>,
    /// Unknown parts of partly known structures.
    unread: Vec<(String, u32, Value)>,
    problems: &'a mut Vec<Problem>,
}

impl DocumentWalk<'_> {
    fn section(&mut self, path: &str, section: &Map<String, Value>) {
        for (name, value) in section {
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.entry(path, name, &below, value);
        }
    }

    fn entry(&mut self, section: &str, name: &str, path: &str, value: &Value) {
        if let Value::Object(inner) = value
            && opens(path)
        {
            return self.section(path, inner);
        }
        if let Some(found) = catalogue::find(path) {
            return self.record(found, path, value);
        }
        match value {
            Value::Null if catalogue::is_section(path, false) => {}
            Value::Object(inner) if catalogue::is_section(path, false) => self.section(path, inner),
            _ if catalogue::is_section(path, false) => {
                let what = format!("{path}: expected a section, found {}", describe(value));
                self.problems.push(Problem::error(self.location(path), what));
            }
            _ if catalogue::find(section)
                .is_some_and(|it| it.key.path == section && it.key.declared.kind == Kind::Table) =>
            {
                if !value.is_null() {
                    self.unread.push((path.to_owned(), self.line(path), value.clone()));
                }
            }
            _ => self.unknown(section, name, path),
        }
    }

    fn record(&mut self, found: FoundKey, spelled: &str, value: &Value) {
        let entry =
            WrittenValue { spelled: spelled.into(), line: self.line(spelled), value: value.clone(), found };
        let Some(other) = self.written.get(&entry.found.path) else {
            self.written.insert(entry.found.path.clone(), entry);
            return;
        };
        let replaces = entry.spelled == entry.found.path;
        let (used, unused) = if replaces { (&entry, other) } else { (other, &entry) };
        let what = format!("{} means the same as {} on line {}", unused.spelled, used.spelled, used.line);
        let place = format!("config.yaml:{}", unused.line);
        self.problems.push(
            Problem::warning(place, what).next(format!("only {} is used, so remove the other", used.spelled)),
        );
        if replaces {
            self.written.insert(entry.found.path.clone(), entry);
        }
    }

    fn unknown(&mut self, section: &str, name: &str, path: &str) {
        let meant = nearest(name, catalogue::children(section));
        let problem = Problem::unknown(self.location(path), format!("unknown key {path}"));
        let join = |name: &str| if section.is_empty() { name.into() } else { format!("{section}.{name}") };
        self.problems.push(match meant {
            Some(name) => problem.next(format!("did you mean {}?", join(name))),
            None => problem.next("it has no effect, so remove it"),
        });
    }

    fn line(&self, path: &str) -> u32 {
        self.lines.get(path).copied().unwrap_or_default()
    }

    fn location(&self, path: &str) -> String {
        format!("config.yaml:{}", self.line(path))
    }
}

/// Whether a structure at this path is a section instead of the value of a key.
fn opens(path: &str) -> bool {
    let taken_whole = || catalogue::find(path).is_some_and(|found| found.key.declared.kind == Kind::Table);
    catalogue::is_section(path, true) || (catalogue::is_section(path, false) && !taken_whole())
}

fn from_file(entry: WrittenValue, env: &Environment, out: &mut Resolved) {
    let place = format!("config.yaml:{}", entry.line);
    let mut value = entry.value;
    let mut missing = Vec::new();
    expand(&mut value, env, &mut missing);
    for name in missing {
        let what = format!("{}: ${{{name}}} is not set", entry.spelled);
        out.problems.push(Problem::warning(&place, what).next("set it in .env or in the environment"));
    }
    if !value.is_null() {
        store_value(&entry.found, &entry.spelled, &value, place, Origin::File { line: entry.line }, out);
    }
}

fn from_environment(key: &'static CatalogueEntry, env: &Environment, out: &mut Resolved) {
    let names: Vec<&str> =
        if key.of_any_platform() { Platform::all().map(Platform::as_str).collect() } else { vec![""] };
    for name in names {
        let path = key.path.replace('*', name);
        let variables = key.env.iter().map(|variable| variable.replace("{P}", &name.to_ascii_uppercase()));
        let Some((variable, (text, place))) =
            variables.filter_map(|it| env.get(&it).map(|set| (it.clone(), set))).next()
        else {
            continue;
        };
        let Some(found) = catalogue::find(&path).filter(|found| std::ptr::eq(found.key, key)) else {
            continue; // a more exact key owns this path
        };
        if key.declared.file_first && out.settings.has(&path) {
            continue;
        }
        let origin = Origin::Variable { name: variable.clone(), place };
        let label = origin.to_string();
        store_value(&found, &variable, &Value::String(text.into()), label, origin, out);
    }
}

fn store_value(
    found: &FoundKey,
    named: &str,
    value: &Value,
    place: String,
    origin: Origin,
    out: &mut Resolved,
) {
    let declared = &found.key.declared;
    match coerce(declared.kind, value) {
        Ok(value) => out.settings.put(found.path.clone(), value, origin),
        Err(_) if declared.effect == Effect::Ignored => {}
        Err(reason) => {
            // A variable's place already names it.
            let what = if place.ends_with(named) { reason } else { format!("{named}: {reason}") };
            out.problems.push(match declared.default.shown().filter(|_| declared.forgiving) {
                Some(default) => Problem::warning(place, what).next(format!("{default} is used instead")),
                None => Problem::error(place, what),
            });
        }
    }
}
