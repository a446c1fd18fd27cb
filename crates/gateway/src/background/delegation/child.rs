//! Child sessions. The session name encodes the depth and the role.

use std::fmt;

use petasos_agent::{DelegatedTask, SubagentRole};
use petasos_core::message::ChatType;
use petasos_core::session::{KeyOptions, session_key};
use petasos_core::{DelegationId, Platform, SessionKey, Source};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChildLevel {
    /// 1 for children of a conversation with people.
    pub(crate) depth: u32,
    pub(crate) role: SubagentRole,
}

impl ChildLevel {
    /// The level in the session name of a child: the part behind the last `-`.
    pub(crate) fn of(key: &SessionKey) -> Option<Self> {
        Self::parse(key.as_str().strip_prefix("agent:main:subagent:dm:")?.rsplit_once('-')?.1)
    }

    /// Reverses `Display`.
    fn parse(text: &str) -> Option<Self> {
        let role = match text.chars().last()? {
            'o' => SubagentRole::Orchestrator,
            _leaf => SubagentRole::Leaf,
        };
        Some(Self { depth: text.trim_end_matches(char::is_alphabetic).parse().ok()?, role })
    }
}

impl fmt::Display for ChildLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            SubagentRole::Leaf => 'l',
            SubagentRole::Orchestrator => 'o',
        };
        write!(f, "{}{role}", self.depth)
    }
}

pub(crate) fn is_child(platform: Platform) -> bool {
    platform == Platform::SUBAGENT
}

pub(super) fn source(delegation: &DelegationId, at: usize, level: ChildLevel) -> Source {
    Source::new(Platform::SUBAGENT, ChatType::Dm, format!("{delegation}-{at}-{level}"))
}

pub(super) fn key(source: &Source) -> SessionKey {
    session_key(source, &KeyOptions::default())
}

pub(super) fn task_message(task: &DelegatedTask) -> String {
    match &task.context {
        Some(context) => format!("Your task: {}\n\nWhat you need to know:\n{context}", task.goal),
        None => format!("Your task: {}", task.goal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_level_from_child_session_names_only() {
        for level in [
            ChildLevel { depth: 1, role: SubagentRole::Leaf },
            ChildLevel { depth: 12, role: SubagentRole::Orchestrator },
        ] {
            let source = source(&"deleg_0123abcd".into(), 2, level);
            assert_eq!(ChildLevel::of(&key(&source)), Some(level));
        }
        for other in
            ["agent:main:telegram:dm:7", "agent:main:telegram:dm:subagent-1l", "agent:main:subagent:dm:x"]
        {
            assert_eq!(ChildLevel::of(&SessionKey(other.into())), None, "{other}");
        }
    }
}
