//! What a shell knows at one point of a script: variables, functions, where it is, what it wrote.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use super::shell::Script;
use super::text::{DECODED, REMOTE, UNKNOWN};

/// More names than this are not kept apart: what is not kept is unknown.
const MOST_NAMES: usize = 256;
const MOST_VALUE: usize = 4096;

/// What comes out of a command or goes into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stream {
    Known(String),
    Unknown,
    Decoded,
    Remote,
}

impl Stream {
    pub(crate) fn nothing() -> Self {
        Self::Known(String::new())
    }

    /// As a part of a value.
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

    /// What a filter gives that we do not compute: unknown, and as foreign as what went in.
    pub(crate) fn filtered(&self) -> Self {
        match self {
            Self::Known(_) | Self::Unknown => Self::Unknown,
            Self::Decoded => Self::Decoded,
            Self::Remote => Self::Remote,
        }
    }

    /// One after the other.
    pub(crate) fn then(self, next: Self) -> Self {
        match (self, next) {
            (Self::Known(mut text), Self::Known(more)) => {
                if text.len() + more.len() > 16 * MOST_VALUE {
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
    /// A list only for arrays and `$@`.
    variables: Rc<BTreeMap<String, Vec<String>>>,
    functions: Rc<BTreeMap<String, Rc<Script>>>,
    /// What this script wrote, by path.
    files: Rc<BTreeMap<String, Stream>>,
    runnable: Rc<BTreeMap<String, ()>>,
    /// Empty: unknown.
    pub cwd: String,
    /// Something was not kept, so what it stands for is not known.
    pub crowded: bool,
}

impl State {
    pub(crate) fn get(&self, name: &str) -> Option<&Vec<String>> {
        self.variables.get(name)
    }

    pub(crate) fn set(&mut self, name: &str, mut values: Vec<String>) {
        if values.iter().map(String::len).sum::<usize>() > MOST_VALUE {
            values = Vec::from([String::from(UNKNOWN)]);
        }
        self.crowded |= !keep(&mut self.variables, name, values);
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
        self.crowded |= !keep(&mut self.functions, name, body);
    }

    pub(crate) fn written(&self, path: &str) -> Option<&Stream> {
        self.files.get(path)
    }

    pub(crate) fn write(&mut self, path: &str, content: Stream) {
        if !path.starts_with("/dev/null") {
            self.crowded |= !keep(&mut self.files, path, content);
        }
    }

    pub(crate) fn make_runnable(&mut self, path: &str) {
        self.crowded |= !keep(&mut self.runnable, path, ());
    }

    pub(crate) fn is_runnable(&self, path: &str) -> bool {
        self.runnable.contains_key(path)
    }

    /// Out of a subshell: its variables and its place are gone, its files are there.
    pub(crate) fn left(inner: Self, outer: Self) -> Self {
        Self { files: inner.files, runnable: inner.runnable, crowded: inner.crowded, ..outer }
    }

    /// After something that may have happened or not: what both sides agree on, and what only one knows.
    pub(crate) fn joined(self, before: &Self) -> Self {
        let mut after = self;
        if !Rc::ptr_eq(&after.variables, &before.variables) {
            for (name, value) in before.variables.iter() {
                let Some(now) = after.variables.get(name).filter(|now| *now != value) else { continue };
                // whatever may separate does: to split too much hides nothing
                let both = if name == "IFS" { value.concat() + &now.concat() } else { String::from(UNKNOWN) };
                Rc::make_mut(&mut after.variables).insert(name.clone(), Vec::from([both]));
            }
        }
        after
    }
}

fn keep<T: Clone>(map: &mut Rc<BTreeMap<String, T>>, name: &str, value: T) -> bool {
    let room = map.len() < MOST_NAMES || map.contains_key(name);
    if room {
        Rc::make_mut(map).insert(String::from(name), value);
    }
    room
}
