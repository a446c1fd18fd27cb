//! From what was written to what counts: every key found, checked and given its origin. Pure.
//!
//! The environment beats the file, except for keys that say otherwise. If anything is wrong nothing is
//! used: all problems come back at once.

use std::collections::BTreeMap;

use petasos_core::Platform;
use petasos_core::text::nearest;
use serde_json::{Map, Value};

use crate::catalogue::{self, Entry, Found};
use crate::environment::Environment;
use crate::expand::expand;
use crate::key::{Effect, Kind};
use crate::problem::{Problem, Severity};
use crate::settings::{Origin, Settings};
use crate::value::coerce;
use crate::yaml::{Document, describe};

/// What was found, and everything that must be said about it.
#[derive(Debug, Default)]
pub struct Resolved {
    pub settings: Settings,
    pub problems: Vec<Problem>,
}

impl Resolved {
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// As a person reads the files.
    pub fn sort(&mut self) {
        self.problems.sort_by_key(Problem::order);
    }
}

pub(crate) fn resolve(document: Document, env: &Environment) -> Resolved {
    let mut out = Resolved::default();
    let mut walk = Walk {
        lines: &document.lines,
        written: BTreeMap::new(),
        unread: Vec::new(),
        problems: &mut out.problems,
    };
    walk.section("", &document.value);
    let (written, unread) = (walk.written, walk.unread);
    for (path, line, value) in unread {
        out.settings.put(path, value, Origin::File { line });
    }
    for twice in &document.twice {
        let what = format!("{} is set twice, on line {} and on line {}", twice.path, twice.first, twice.last);
        let problem = Problem::warning(format!("config.yaml:{}", twice.last), what);
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

/// One value of the file and the key it belongs to.
struct Written {
    found: Found,
    spelled: String,
    line: u32,
    value: Value,
}

struct Walk<'a> {
    lines: &'a BTreeMap<String, u32>,
    written: BTreeMap<String, Written>,
    /// Unknown parts of structures that are known in part.
    unread: Vec<(String, u32, Value)>,
    problems: &'a mut Vec<Problem>,
}

impl Walk<'_> {
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
            return self.keep(found, path, value);
        }
        match value {
            Value::Null if catalogue::is_section(path, false) => {}
            Value::Object(inner) if catalogue::is_section(path, false) => self.section(path, inner),
            _ if catalogue::is_section(path, false) => {
                let what = format!("{path}: expected a section, found {}", describe(value));
                self.problems.push(Problem::error(self.place(path), what));
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

    fn keep(&mut self, found: Found, spelled: &str, value: &Value) {
        let entry =
            Written { spelled: spelled.into(), line: self.line(spelled), value: value.clone(), found };
        let Some(other) = self.written.get(&entry.found.path) else {
            self.written.insert(entry.found.path.clone(), entry);
            return;
        };
        let replaces = entry.spelled == entry.found.path;
        let (used, unused) = if replaces { (&entry, other) } else { (other, &entry) };
        let what = format!("{} means the same as {} on line {}", unused.spelled, used.spelled, used.line);
        let place = format!("config.yaml:{}", unused.line);
        self.problems.push(Problem::warning(place, what).next("only the latter is used"));
        if replaces {
            self.written.insert(entry.found.path.clone(), entry);
        }
    }

    fn unknown(&mut self, section: &str, name: &str, path: &str) {
        let meant = nearest(name, catalogue::children(section));
        let problem = Problem::unknown(self.place(path), format!("unknown key {path}"));
        let join = |name: &str| if section.is_empty() { name.into() } else { format!("{section}.{name}") };
        self.problems.push(match meant {
            Some(name) => problem.next(format!("did you mean {}?", join(name))),
            None => problem.next("it has no effect"),
        });
    }

    fn line(&self, path: &str) -> u32 {
        self.lines.get(path).copied().unwrap_or_default()
    }

    fn place(&self, path: &str) -> String {
        format!("config.yaml:{}", self.line(path))
    }
}

/// Whether a structure there is a section, and not the value of a key.
fn opens(path: &str) -> bool {
    let taken_whole = || catalogue::find(path).is_some_and(|found| found.key.declared.kind == Kind::Table);
    catalogue::is_section(path, true) || (catalogue::is_section(path, false) && !taken_whole())
}

fn from_file(entry: Written, env: &Environment, out: &mut Resolved) {
    let place = format!("config.yaml:{}", entry.line);
    let mut value = entry.value;
    let mut missing = Vec::new();
    expand(&mut value, env, &mut missing);
    for name in missing {
        let what = format!("{}: ${{{name}}} is not set", entry.spelled);
        out.problems.push(Problem::warning(&place, what).next("set it in .env or in the environment"));
    }
    if !value.is_null() {
        take(&entry.found, &entry.spelled, &value, place, Origin::File { line: entry.line }, out);
    }
}

fn from_environment(key: &'static Entry, env: &Environment, out: &mut Resolved) {
    let names: Vec<&str> =
        if key.of_any_platform() { Platform::known().map(Platform::as_str).collect() } else { vec![""] };
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
        let said = origin.to_string();
        take(&found, &variable, &Value::String(text.into()), said, origin, out);
    }
}

fn take(found: &Found, named: &str, value: &Value, place: String, origin: Origin, out: &mut Resolved) {
    let declared = &found.key.declared;
    match coerce(declared.kind, value) {
        Ok(value) => out.settings.put(found.path.clone(), value, origin),
        Err(_) if declared.effect == Effect::Ignored => {}
        Err(reason) => {
            // A variable is its own place.
            let what = if place.ends_with(named) { reason } else { format!("{named}: {reason}") };
            out.problems.push(match declared.default.shown().filter(|_| declared.forgiving) {
                Some(default) => Problem::warning(place, what).next(format!("{default} is used instead")),
                None => Problem::error(place, what),
            });
        }
    }
}
