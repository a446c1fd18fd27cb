//! Whether a command runs, is asked about or is refused: what it does, together with what the owner wants.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::request::Remembered;
use super::{Category, Context, Hardline, Verdict, judge};
use crate::analysis::text;
use crate::analysis::text::matches;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A person is asked.
    #[default]
    Manual,
    /// A second model is asked first; for this module the same.
    Smart,
    Off,
}

/// Who can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    Person,
    /// A job, a subagent, a request that ends before anybody could answer.
    #[default]
    Nobody,
    /// Nobody, and the owner wants such work done all the same.
    NobodyNeeded,
}

/// What the owner configured, and what was approved before.
#[derive(Debug, Clone, Copy)]
pub struct Policy<'a> {
    pub mode: Mode,
    /// Commands run in a container that sees nothing of this machine.
    pub isolated: bool,
    /// Switched on for this session or for the whole process.
    pub yolo: bool,
    pub audience: Audience,
    /// Patterns of commands that are refused.
    pub deny: &'a [String],
    /// Commands, patterns of commands, and keys of categories that run unasked.
    pub allow: &'a [String],
    pub session: &'a str,
    pub remembered: &'a Remembered,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Run(Because),
    /// A person has to agree to these.
    Ask(Vec<Category>),
    Refuse(Refusal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    Harmless,
    Isolated,
    Yolo,
    ModeOff,
    Allowed,
    Remembered,
    NobodyNeeded,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    Hardline(Hardline),
    /// One of the owner's patterns.
    Denied(String),
    NobodyToAsk(Vec<Category>),
}

/// The first of these that applies decides; what never runs comes before everything that could allow it.
#[must_use]
pub fn decide(command: &str, context: &Context, policy: &Policy) -> Decision {
    if policy.isolated {
        return Decision::Run(Because::Isolated);
    }
    let verdict = judge(command, context);
    if let Verdict::Block(hardline) = verdict {
        return Decision::Refuse(Refusal::Hardline(hardline));
    }
    if let Some(pattern) = denied(command, policy.deny) {
        return Decision::Refuse(Refusal::Denied(pattern.clone()));
    }
    if policy.yolo {
        return Decision::Run(Because::Yolo);
    }
    if policy.mode == Mode::Off {
        return Decision::Run(Because::ModeOff);
    }
    if listed(command, policy.allow) {
        return Decision::Run(Because::Allowed);
    }
    let categories = match verdict {
        Verdict::Free => return Decision::Run(Because::Harmless),
        Verdict::Ask(categories) => categories,
        Verdict::Block(hardline) => return Decision::Refuse(Refusal::Hardline(hardline)),
    };
    let open: Vec<Category> =
        categories.into_iter().filter(|category| !is_approved(*category, policy)).collect();
    match (open.is_empty(), policy.audience) {
        (true, _) => Decision::Run(Because::Remembered),
        (false, Audience::Person) => Decision::Ask(open),
        (false, Audience::Nobody) => Decision::Refuse(Refusal::NobodyToAsk(open)),
        (false, Audience::NobodyNeeded) => Decision::Run(Because::NobodyNeeded),
    }
}

fn is_approved(category: Category, policy: &Policy) -> bool {
    category.is_memorable()
        && (policy.remembered.covers(policy.session, category)
            || policy.allow.iter().any(|entry| entry == category.key()))
}

/// A pattern is held against the whole command and against every part of it.
fn denied<'a>(command: &str, patterns: &'a [String]) -> Option<&'a String> {
    let cleaned = text::clean(command);
    let texts = [Some(cleaned.plain), cleaned.folded];
    patterns.iter().find(|pattern| {
        texts.iter().flatten().any(|text| {
            let parts = text.split([';', '|', '&', '\n', '(', ')', '{', '}', '`']);
            parts.chain([text.as_str()]).any(|part| matches(pattern, part.trim()))
        })
    })
}

/// Only for plain commands: behind an operator anything could follow.
fn listed(command: &str, allow: &[String]) -> bool {
    let command = command.trim();
    let plain = !command.contains([';', '|', '&', '<', '>', '\n', '$', '`', '(', ')', '{', '}'])
        && command.is_ascii();
    plain && allow.iter().any(|entry| Category::from_key(entry).is_none() && matches(entry, command))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::Choice;

    const CONTEXT: Context = Context {
        home: "/home/ada",
        cwd: "/home/ada/work",
        gateway_home: "/home/ada/.petasos",
        workspace: "/home/ada/.petasos/workspace",
        follow: None,
        gateway_pids: &[],
        sudo_password: false,
        fed: false,
    };

    fn policy(remembered: &Remembered) -> Policy<'_> {
        Policy {
            mode: Mode::Manual,
            isolated: false,
            yolo: false,
            audience: Audience::Person,
            deny: &[],
            allow: &[],
            session: "s",
            remembered,
        }
    }

    #[test]
    fn what_never_runs_runs_in_no_mode() {
        let remembered = Remembered::default();
        let all: Vec<String> =
            Category::ALL.iter().map(|one| one.key().to_string()).chain(["*".to_string()]).collect();
        for mode in [Mode::Manual, Mode::Smart, Mode::Off] {
            let policy = Policy {
                mode,
                yolo: true,
                allow: &all,
                audience: Audience::NobodyNeeded,
                ..policy(&remembered)
            };
            // Control characters are part of words to the shell, and change nothing behind them.
            for command in ["rm -rf /", "\u{1}#; rm -rf /", "\u{1b}[\nrm -rf /"] {
                assert_eq!(
                    decide(command, &CONTEXT, &policy),
                    Decision::Refuse(Refusal::Hardline(Hardline::WipesSystem)),
                    "{mode:?} {command:?}"
                );
            }
        }
    }

    #[test]
    fn a_container_of_its_own_is_not_ours_to_guard() {
        let remembered = Remembered::default();
        let policy = Policy { isolated: true, ..policy(&remembered) };
        assert_eq!(decide("rm -rf /", &CONTEXT, &policy), Decision::Run(Because::Isolated));
    }

    #[test]
    fn the_owners_refusal_counts_before_every_permission() {
        let remembered = Remembered::default();
        let deny = ["git push*".to_string()];
        let policy = Policy { yolo: true, deny: &deny, ..policy(&remembered) };
        for command in ["git push", "git push origin main", "cd x && git push", "ｇｉｔ push"] {
            assert_eq!(
                decide(command, &CONTEXT, &policy),
                Decision::Refuse(Refusal::Denied(deny[0].clone())),
                "{command}"
            );
        }
        assert_eq!(decide("git pull", &CONTEXT, &policy), Decision::Run(Because::Yolo));
    }

    #[test]
    fn a_listed_command_runs_and_nothing_is_smuggled_behind_it() {
        let remembered = Remembered::default();
        let allow = ["rm -rf build*".to_string(), "git reset --hard".to_string()];
        let policy = Policy { allow: &allow, ..policy(&remembered) };
        assert_eq!(decide("rm -rf build", &CONTEXT, &policy), Decision::Run(Because::Allowed));
        assert_eq!(decide("git reset --hard", &CONTEXT, &policy), Decision::Run(Because::Allowed));
        for command in ["rm -rf build; rm -rf src", "rm -rf build $(x)", "rm -rf build\nrm -rf src"] {
            assert!(matches!(decide(command, &CONTEXT, &policy), Decision::Ask(_)), "{command}");
        }
    }

    #[test]
    fn an_approved_category_is_not_asked_about_again_and_others_are() {
        let mut remembered = Remembered::default();
        remembered.learn("s", &[Category::RecursiveDelete], Choice::Session);
        let here = policy(&remembered);
        assert_eq!(decide("rm -rf ./x", &CONTEXT, &here), Decision::Run(Because::Remembered));
        assert_eq!(
            decide("rm -rf ./x; git reset --hard", &CONTEXT, &here),
            Decision::Ask(Vec::from([Category::Git]))
        );
        let elsewhere = Policy { session: "other", ..here };
        assert_eq!(
            decide("rm -rf ./x", &CONTEXT, &elsewhere),
            Decision::Ask(Vec::from([Category::RecursiveDelete]))
        );
        let allow = ["recursive_delete".to_string()];
        let listed = Policy { allow: &allow, ..elsewhere };
        assert_eq!(decide("rm -rf ./x", &CONTEXT, &listed), Decision::Run(Because::Remembered));
    }

    #[test]
    fn what_could_be_anything_is_asked_about_every_time() {
        let remembered = Remembered::default();
        let allow = ["obscured".to_string(), "unreadable".to_string()];
        let policy = Policy { allow: &allow, ..policy(&remembered) };
        assert_eq!(decide("$TOOL x", &CONTEXT, &policy), Decision::Ask(Vec::from([Category::Obscured])));
    }

    #[test]
    fn where_nobody_can_answer_the_answer_is_no() {
        let remembered = Remembered::default();
        let nobody = Policy { audience: Audience::Nobody, ..policy(&remembered) };
        assert_eq!(
            decide("rm -rf ./x", &CONTEXT, &nobody),
            Decision::Refuse(Refusal::NobodyToAsk(Vec::from([Category::RecursiveDelete])))
        );
        let unneeded = Policy { audience: Audience::NobodyNeeded, ..nobody };
        assert_eq!(decide("rm -rf ./x", &CONTEXT, &unneeded), Decision::Run(Because::NobodyNeeded));
        assert_eq!(decide("ls", &CONTEXT, &nobody), Decision::Run(Because::Harmless));
    }
}
