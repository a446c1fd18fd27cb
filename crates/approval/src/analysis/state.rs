//! The shell state at one point of a script: variables, functions, working directory, written files.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use super::shell::Script;
use super::text::{DECODED, REMOTE, UNKNOWN};

/// Maximum entries per map; further names are unknown.
const MAX_NAMES: usize = 256;
const MAX_VALUE_BYTES: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stream {
    Known(String),
    Unknown,
    Decoded,
    Remote,
}

impl Stream {
    pub(crate) fn empty() -> Self {
        Self::Known(String::new())
    }

    /// The text, or its placeholder.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Known(text) => text,
            Self::Unknown => String::from(UNKNOWN),
            Self::Decoded => String::from(DECODED),
            Self::Remote => String::from(REMOTE),
        }
    }

    pub(crate) fn of_text(text: &str) -> Self {
        if text.contains(REMOTE) {
            Self::Remote
        } else if text.contains(DECODED) {
            Self::Decoded
        } else if text.contains(UNKNOWN) {
            Self::Unknown
        } else {
            Self::Known(String::from(text))
        }
    }

    /// The output of a filter that is not computed: unknown, with the origin of its input.
    pub(crate) fn filtered(&self) -> Self {
        match self {
            Self::Known(_) | Self::Unknown => Self::Unknown,
            Self::Decoded => Self::Decoded,
            Self::Remote => Self::Remote,
        }
    }

    pub(crate) fn then(self, next: Self) -> Self {
        match (self, next) {
            (Self::Known(mut text), Self::Known(more)) => {
                if text.len() + more.len() > 16 * MAX_VALUE_BYTES {
                    return Self::Unknown;
                }
                text.push_str(&more);
                Self::Known(text)
            }
            (Self::Remote, _) | (_, Self::Remote) => Self::Remote,
            (Self::Decoded, _) | (_, Self::Decoded) => Self::Decoded,
            (Self::Unknown, Self::Known(_) | Self::Unknown) | (Self::Known(_), Self::Unknown) => {
                Self::Unknown
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// More than one value only for arrays and `$@`.
    variables: Rc<BTreeMap<String, Vec<String>>>,
    functions: Rc<BTreeMap<String, Rc<Script>>>,
    files: Rc<BTreeMap<String, Stream>>,
    runnable: Rc<BTreeMap<String, ()>>,
    /// Empty: unknown.
    pub cwd: String,
    /// Some entries were dropped.
    pub overflowed: bool,
}

impl State {
    pub(crate) fn get(&self, name: &str) -> Option<&Vec<String>> {
        self.variables.get(name)
    }

    pub(crate) fn set(&mut self, name: &str, mut values: Vec<String>) {
        if values.iter().map(String::len).sum::<usize>() > MAX_VALUE_BYTES {
            values = Vec::from([String::from(UNKNOWN)]);
        }
        self.overflowed |= !insert_bounded(&mut self.variables, name, values);
    }

    pub(crate) fn unset(&mut self, name: &str) {
        if self.variables.contains_key(name) {
            Rc::make_mut(&mut self.variables).remove(name);
        }
    }

    pub(super) fn function(&self, name: &str) -> Option<Rc<Script>> {
        self.functions.get(name).cloned()
    }

    pub(super) fn define(&mut self, name: &str, body: Rc<Script>) {
        self.overflowed |= !insert_bounded(&mut self.functions, name, body);
    }

    pub(crate) fn written(&self, path: &str) -> Option<&Stream> {
        self.files.get(path)
    }

    pub(crate) fn write(&mut self, path: &str, content: Stream) {
        if !path.starts_with("/dev/null") {
            self.overflowed |= !insert_bounded(&mut self.files, path, content);
        }
    }

    pub(crate) fn make_runnable(&mut self, path: &str) {
        self.overflowed |= !insert_bounded(&mut self.runnable, path, ());
    }

    pub(crate) fn is_runnable(&self, path: &str) -> bool {
        self.runnable.contains_key(path)
    }

    /// The state after a subshell: its files persist, its variables and working directory do not.
    pub(crate) fn after_subshell(inner: Self, outer: Self) -> Self {
        Self { files: inner.files, runnable: inner.runnable, overflowed: inner.overflowed, ..outer }
    }

    /// Merges the state after an optional command with the one before; differing values become unknown.
    pub(crate) fn merged(self, before: &Self) -> Self {
        let mut after = self;
        if !Rc::ptr_eq(&after.variables, &before.variables) {
            for (name, value) in before.variables.iter() {
                let Some(now) = after.variables.get(name).filter(|now| *now != value) else { continue };
                // IFS: keep all possible separators, since splitting too much hides nothing
                let both = if name == "IFS" { value.concat() + &now.concat() } else { String::from(UNKNOWN) };
                Rc::make_mut(&mut after.variables).insert(name.clone(), Vec::from([both]));
            }
        }
        after
    }
}

fn insert_bounded<T: Clone>(map: &mut Rc<BTreeMap<String, T>>, name: &str, value: T) -> bool {
    let room = map.len() < MAX_NAMES || map.contains_key(name);
    if room {
        Rc::make_mut(map).insert(String::from(name), value);
    }
    room
}
