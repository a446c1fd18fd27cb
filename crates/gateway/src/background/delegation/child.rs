//! Who works for somebody: the name of a child's session says how deep it stands and what it may do.

use petasos_agent::{Role, Task};
use petasos_core::message::ChatType;
use petasos_core::session::{KeyOptions, session_key};
use petasos_core::{Platform, SessionKey, Source};

/// Where a child stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Those who work for a conversation with people stand at 1.
    pub(crate) depth: u32,
    pub(crate) role: Role,
}

impl Place {
    /// `None`: not a child.
    pub(crate) fn of(key: &SessionKey) -> Option<Self> {
        let name = key.as_str().strip_prefix("agent:main:subagent:dm:")?;
        let (_, place) = name.rsplit_once('-')?;
        let role = match place.chars().last()? {
            'o' => Role::Orchestrator,
            _leaf => Role::Leaf,
        };
        Some(Self { depth: place.trim_end_matches(char::is_alphabetic).parse().ok()?, role })
    }
}

/// Whether this is one of their sessions, whatever its name.
pub(crate) fn is_child(platform: Platform) -> bool {
    platform == Platform::SUBAGENT
}

/// One of a batch: where it speaks.
pub(super) fn source(delegation: &str, at: usize, place: Place) -> Source {
    let role = match place.role {
        Role::Leaf => 'l',
        Role::Orchestrator => 'o',
    };
    let name = format!("{delegation}-{at}-{}{role}", place.depth);
    Source::new(Platform::SUBAGENT, ChatType::Dm, name)
}

pub(super) fn key(source: &Source) -> SessionKey {
    session_key(source, &KeyOptions::default())
}

/// All that it is told.
pub(super) fn words(task: &Task) -> String {
    match &task.context {
        Some(context) => format!("Your task: {}\n\nWhat you need to know:\n{context}", task.goal),
        None => format!("Your task: {}", task.goal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_name_says_where_it_stands_and_nobody_else_is_one() {
        for place in [Place { depth: 1, role: Role::Leaf }, Place { depth: 12, role: Role::Orchestrator }] {
            let source = source("deleg_0123abcd", 2, place);
            assert_eq!(Place::of(&key(&source)), Some(place));
        }
        for other in
            ["agent:main:telegram:dm:7", "agent:main:telegram:dm:subagent-1l", "agent:main:subagent:dm:x"]
        {
            assert_eq!(Place::of(&SessionKey(other.into())), None, "{other}");
        }
    }
}
