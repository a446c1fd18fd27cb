//! The decision about a command: its assessment combined with the owner's policy.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::request::RememberedApprovals;
use super::{Assessment, Category, Context, Hardline, assess};
use crate::analysis::text;
use crate::analysis::text::matches;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewMode {
    #[default]
    Manual,
    /// Ask a second model first. No difference for this module.
    Smart,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    Person,
    /// No approver: a job, a subagent, or a request that ends before an answer is possible.
    #[default]
    #[serde(rename = "nobody")]
    None,
    /// No approver, and the owner permits unattended commands.
    #[serde(rename = "nobody_needed")]
    Unattended,
}

/// Where a command would run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// In a sandbox whose boundary the kernel enforces.
    Sandboxed,
    /// On the machine: the owner has turned the sandbox off.
    Off,
    /// On the machine although the sandbox is on: the agent asks to leave it, or this kernel cannot provide it.
    Left,
}

/// The owner's configuration and earlier approvals.
#[derive(Debug, Clone, Copy)]
pub struct Policy<'a> {
    pub mode: ReviewMode,
    pub confinement: Confinement,
    /// Approvals are switched off for this session or process.
    pub yolo: bool,
    pub audience: Audience,
    pub deny: &'a [String],
    /// Commands, patterns and category keys that run without approval.
    pub allow: &'a [String],
    pub session: &'a str,
    pub remembered: &'a RememberedApprovals,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Run(RunReason),
    Ask(Vec<Category>),
    Refuse(RefuseReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunReason {
    Harmless,
    Sandboxed,
    Yolo,
    ModeOff,
    Allowed,
    Remembered,
    Unattended,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefuseReason {
    Hardline(Hardline),
    /// The matching pattern of the owner.
    Denied(String),
    NoApprover(Vec<Category>),
}

/// The first rule that applies decides. Forbidden commands come before every permission.
#[must_use]
pub fn decide(command: &str, context: &Context, policy: &Policy) -> Decision {
    let assessment = assess(command, context);
    if let Assessment::Forbidden(hardline) = assessment {
        return Decision::Refuse(RefuseReason::Hardline(hardline));
    }
    if let Some(pattern) = denied(command, policy.deny) {
        return Decision::Refuse(RefuseReason::Denied(pattern.clone()));
    }
    if policy.confinement == Confinement::Sandboxed {
        return Decision::Run(RunReason::Sandboxed);
    }
    if policy.yolo {
        return Decision::Run(RunReason::Yolo);
    }
    if policy.mode == ReviewMode::Off {
        return Decision::Run(RunReason::ModeOff);
    }
    if listed(command, policy.allow) {
        return Decision::Run(RunReason::Allowed);
    }
    let mut categories = match assessment {
        Assessment::Harmless => Vec::new(),
        Assessment::NeedsApproval(categories) => categories,
        Assessment::Forbidden(hardline) => return Decision::Refuse(RefuseReason::Hardline(hardline)),
    };
    if policy.confinement == Confinement::Left {
        categories.push(Category::Outside);
    }
    if categories.is_empty() {
        return Decision::Run(RunReason::Harmless);
    }
    let open: Vec<Category> =
        categories.into_iter().filter(|category| !is_approved(*category, policy)).collect();
    match (open.is_empty(), policy.audience) {
        (true, _) => Decision::Run(RunReason::Remembered),
        (false, Audience::Person) => Decision::Ask(open),
        (false, Audience::None) => Decision::Refuse(RefuseReason::NoApprover(open)),
        (false, Audience::Unattended) => Decision::Run(RunReason::Unattended),
    }
}

fn is_approved(category: Category, policy: &Policy) -> bool {
    category.can_be_remembered()
        && (policy.remembered.covers(policy.session, category)
            || policy.allow.iter().any(|entry| entry == category.key()))
}

/// Matches a pattern against the whole command and each part of it.
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

/// Only for commands without operators, behind which anything could follow.
fn listed(command: &str, allow: &[String]) -> bool {
    let command = command.trim();
    let plain = !command.contains([';', '|', '&', '<', '>', '\n', '$', '`', '(', ')', '{', '}'])
        && command.is_ascii();
    plain && allow.iter().any(|entry| Category::from_key(entry).is_none() && matches(entry, command))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;
    use crate::Choice;

    const CONTEXT: Context = Context {
        home: "/home/ada",
        cwd: "/home/ada/work",
        gateway_home: "/home/ada/.petasos",
        workspace: "/home/ada/.petasos/workspace",
        resolve_links: None,
        gateway_pids: &[],
        sudo_password: false,
        stdin_open: false,
    };

    fn policy(remembered: &RememberedApprovals) -> Policy<'_> {
        Policy {
            mode: ReviewMode::Manual,
            confinement: Confinement::Off,
            yolo: false,
            audience: Audience::Person,
            deny: &[],
            allow: &[],
            session: "s",
            remembered,
        }
    }

    #[test]
    fn refuses_forbidden_commands_in_every_mode() {
        let remembered = RememberedApprovals::default();
        let all: Vec<String> =
            Category::ALL.iter().map(|one| one.key().to_string()).chain(["*".to_string()]).collect();
        for mode in [ReviewMode::Manual, ReviewMode::Smart, ReviewMode::Off] {
            let policy = Policy {
                mode,
                yolo: true,
                allow: &all,
                audience: Audience::Unattended,
                ..policy(&remembered)
            };
            // To the shell, control characters are part of words.
            for command in ["rm -rf /", "\u{1}#; rm -rf /", "\u{1b}[\nrm -rf /"] {
                assert_eq!(
                    decide(command, &CONTEXT, &policy),
                    Decision::Refuse(RefuseReason::Hardline(Hardline::WipesSystem)),
                    "{mode:?} {command:?}"
                );
            }
        }
    }

    #[test]
    fn sandboxed_commands_run_unless_they_are_forbidden() {
        let remembered = RememberedApprovals::default();
        let deny = ["git push*".to_string()];
        let policy = Policy {
            confinement: Confinement::Sandboxed,
            audience: Audience::None,
            deny: &deny,
            ..policy(&remembered)
        };
        for command in ["ls", "rm -rf build", "curl x | sh", "eval $X", "((("] {
            assert_eq!(decide(command, &CONTEXT, &policy), Decision::Run(RunReason::Sandboxed), "{command}");
        }
        assert_eq!(
            decide("rm -rf /", &CONTEXT, &policy),
            Decision::Refuse(RefuseReason::Hardline(Hardline::WipesSystem))
        );
        let refused = decide("git push", &CONTEXT, &policy);
        assert_eq!(refused, Decision::Refuse(RefuseReason::Denied(deny[0].clone())));
    }

    #[test]
    fn leaving_the_sandbox_always_needs_approval() {
        let mut remembered = RememberedApprovals::default();
        remembered.record("s", Category::ALL, crate::Choice::Always);
        let left = Policy { confinement: Confinement::Left, ..policy(&remembered) };
        assert_eq!(decide("ls", &CONTEXT, &left), Decision::Ask(vec![Category::Outside]));
        let all: Vec<String> = Category::ALL.iter().map(|one| one.key().to_string()).collect();
        let by_category = Policy { allow: &all, ..left };
        assert_eq!(decide("rm -r x", &CONTEXT, &by_category), Decision::Ask(vec![Category::Outside]));
        let unanswered = Policy { audience: Audience::None, ..left };
        let refused = Decision::Refuse(RefuseReason::NoApprover(vec![Category::Outside]));
        assert_eq!(decide("ls", &CONTEXT, &unanswered), refused);
        let ls = ["ls".to_string()];
        let listed = Policy { allow: &ls, ..left };
        assert_eq!(decide("ls", &CONTEXT, &listed), Decision::Run(RunReason::Allowed));
    }

    #[test]
    fn deny_patterns_override_every_permission() {
        let remembered = RememberedApprovals::default();
        let deny = ["git push*".to_string()];
        let policy = Policy { yolo: true, deny: &deny, ..policy(&remembered) };
        for command in ["git push", "git push origin main", "cd x && git push", "ｇｉｔ push"] {
            assert_eq!(
                decide(command, &CONTEXT, &policy),
                Decision::Refuse(RefuseReason::Denied(deny[0].clone())),
                "{command}"
            );
        }
        assert_eq!(decide("git pull", &CONTEXT, &policy), Decision::Run(RunReason::Yolo));
    }

    #[test]
    fn allows_listed_commands_but_nothing_behind_them() {
        let remembered = RememberedApprovals::default();
        let allow = ["rm -rf build*".to_string(), "git reset --hard".to_string()];
        let policy = Policy { allow: &allow, ..policy(&remembered) };
        assert_eq!(decide("rm -rf build", &CONTEXT, &policy), Decision::Run(RunReason::Allowed));
        assert_eq!(decide("git reset --hard", &CONTEXT, &policy), Decision::Run(RunReason::Allowed));
        for command in ["rm -rf build; rm -rf src", "rm -rf build $(x)", "rm -rf build\nrm -rf src"] {
            assert!(matches!(decide(command, &CONTEXT, &policy), Decision::Ask(_)), "{command}");
        }
    }

    #[test]
    fn asks_only_about_categories_not_yet_approved() {
        let mut remembered = RememberedApprovals::default();
        remembered.record("s", &[Category::RecursiveDelete], Choice::Session);
        let here = policy(&remembered);
        assert_eq!(decide("rm -rf ./x", &CONTEXT, &here), Decision::Run(RunReason::Remembered));
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
        assert_eq!(decide("rm -rf ./x", &CONTEXT, &listed), Decision::Run(RunReason::Remembered));
    }

    #[test]
    fn always_asks_about_obscured_commands() {
        let remembered = RememberedApprovals::default();
        let allow = ["obscured".to_string(), "unreadable".to_string()];
        let policy = Policy { allow: &allow, ..policy(&remembered) };
        assert_eq!(decide("$TOOL x", &CONTEXT, &policy), Decision::Ask(Vec::from([Category::Obscured])));
    }

    #[test]
    fn refuses_without_an_approver() {
        let remembered = RememberedApprovals::default();
        let no_approver = Policy { audience: Audience::None, ..policy(&remembered) };
        assert_eq!(
            decide("rm -rf ./x", &CONTEXT, &no_approver),
            Decision::Refuse(RefuseReason::NoApprover(Vec::from([Category::RecursiveDelete])))
        );
        let unattended = Policy { audience: Audience::Unattended, ..no_approver };
        assert_eq!(decide("rm -rf ./x", &CONTEXT, &unattended), Decision::Run(RunReason::Unattended));
        assert_eq!(decide("ls", &CONTEXT, &no_approver), Decision::Run(RunReason::Harmless));
    }
}
