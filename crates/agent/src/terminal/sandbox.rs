//! Where commands run: in the sandbox of their session, or on the machine.
//!
//! A session has three directories that its sandboxed commands may change besides the workspace: `home`, `tmp`
//! and `state` (what its shell keeps between two commands). Commands outside of the sandbox never read them as
//! code: they keep their variables elsewhere.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use petasos_approval::Confinement;
use petasos_sandbox::paths::{self, Readable};
use petasos_sandbox::{Limits, Network, Policy, Support, launcher};

use super::environment::Variable;
use super::shell::{Launch, SessionDirectory};
use crate::tools::SessionCtx;

/// The sandbox as this machine provides it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sandbox {
    launcher: PathBuf,
    support: Support,
    readable: Readable,
    hidden: Vec<PathBuf>,
}

/// Files in a project of the owner that programs of the owner execute, or take their settings from.
const EXECUTED_BY_OTHERS: [&str; 8] =
    [".git/hooks", ".git/config", ".envrc", ".vscode", ".idea", ".husky", ".bashrc", ".profile"];

impl Sandbox {
    /// Tries out the layers of this kernel. `launcher`: a program that calls [`launcher::run`].
    pub(super) fn probe(launcher: &Path, home: &Path) -> Self {
        let support = Support::probe(launcher).unwrap_or_else(|error| {
            tracing::error!(%error, "the sandbox does not work");
            Support::NONE
        });
        let gaps: Vec<String> = support.gaps().iter().map(ToString::to_string).collect();
        let Support { landlock, seccomp, namespaces } = support;
        if gaps.is_empty() {
            tracing::info!(landlock, seccomp, namespaces, "commands run in the sandbox");
        } else {
            let missing = gaps.join(", ");
            tracing::warn!(missing, "this kernel cannot confine commands: each one needs an approval");
        }
        let owner = std::env::home_dir();
        let search = std::env::var_os("PATH").unwrap_or_default();
        let own = [home.to_owned()];
        let readable = Readable::find(owner.as_deref(), &search, &own);
        let hidden = paths::with_credentials(owner.as_deref(), &own);
        Self { launcher: launcher.to_owned(), support, readable, hidden }
    }

    /// Whether its commands may run without a question.
    pub(super) fn is_complete(&self) -> bool {
        self.support.is_complete()
    }

    /// The same command, in the sandbox. `project`: a directory of the owner.
    pub(super) fn confine(
        &self,
        launch: Launch,
        ctx: &SessionCtx,
        project: Option<&Path>,
        directory: &SessionDirectory,
    ) -> io::Result<Launch> {
        let policy = self.policy(ctx, project, directory)?;
        let [subcommand, json] = launcher::arguments(&policy).map_err(io::Error::other)?;
        let Launch { program, args, cwd, env } = launch;
        let args = [subcommand, json, program].into_iter().chain(args).collect();
        let env = self.environment(env, directory);
        Ok(Launch { program: self.launcher.clone().into(), args, cwd, env })
    }

    fn policy(&self, ctx: &SessionCtx, project: Option<&Path>, own: &SessionDirectory) -> io::Result<Policy> {
        let workspace = ctx.workspace.canonicalize()?;
        let is_workspace = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(&workspace));
        let project = project.filter(|path| !is_workspace(path));
        let mut policy = Policy {
            read: self.readable.paths.clone(),
            write: vec![workspace, own.home(), own.tmp(), own.state()],
            protected: vec![],
            tmp: own.tmp(),
            network: Network::None,
            limits: Limits::default(),
            layers: self.support,
        };
        project.into_iter().for_each(|project| self.add_project(&mut policy, project));
        Ok(policy)
    }

    /// Without namespaces a part can only be protected by listing all others, so that nothing can be created beside
    /// it.
    fn add_project(&self, policy: &mut Policy, project: &Path) {
        let executed = EXECUTED_BY_OTHERS.iter().filter_map(|name| project.join(name).canonicalize().ok());
        let executed: Vec<PathBuf> = executed.flat_map(|path| paths::without(&path, &self.hidden)).collect();
        if !self.support.namespaces {
            let hidden = [&self.hidden[..], &executed[..]].concat();
            policy.write.extend(paths::without(project, &hidden));
            policy.read.extend(executed);
            return;
        }
        let write = paths::without(project, &self.hidden);
        let inside = |path: &PathBuf| write.iter().any(|write| path.starts_with(write));
        policy.protected = executed.into_iter().filter(inside).collect();
        policy.write.extend(write);
    }

    fn environment(&self, mut env: Vec<Variable>, own: &SessionDirectory) -> Vec<Variable> {
        let toolchains = self.readable.variables.iter().map(|(name, path)| (*name, path.clone()));
        for (name, path) in [("HOME", own.home()), ("TMPDIR", own.tmp())].into_iter().chain(toolchains) {
            env.retain(|(known, _)| known != name);
            env.push((OsString::from(name), path.into()));
        }
        env
    }
}

/// Where one command runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) sandbox: Option<&'a Sandbox>,
    pub(super) confinement: Confinement,
}

impl<'a> Place<'a> {
    /// `sandbox`: `None` if the owner has turned it off. `outside`: the agent asks to leave it.
    pub(super) fn choose(sandbox: Option<&'a Sandbox>, outside: bool) -> Self {
        match sandbox {
            None => Self { sandbox: None, confinement: Confinement::Off },
            Some(sandbox) if sandbox.is_complete() && !outside => {
                Self { sandbox: Some(sandbox), confinement: Confinement::Sandboxed }
            }
            Some(_) => Self { sandbox: None, confinement: Confinement::Left },
        }
    }
}

/// Messages of programs that were refused something.
const REFUSALS: [&str; 10] = [
    "Permission denied",
    "Operation not permitted",
    "Read-only file system",
    "Network is unreachable",
    "Could not resolve",
    "could not resolve",
    "name resolution",
    "Name or service not known",
    "EACCES",
    "EPERM",
];

/// Advice for the model if the sandbox may be why the command failed.
pub(super) fn advice(output: &str, exit_code: i32) -> Option<&'static str> {
    let refused = exit_code != 0 && REFUSALS.iter().any(|text| output.contains(text));
    refused.then_some(
        "It ran in a sandbox: without a network, and files can be changed only in the workspace, the home and the \
         temporary directory of this conversation. If that is why it failed and there is no other way, call terminal \
         again with outside=true; the user is asked first.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(namespaces: bool, hidden: Vec<PathBuf>) -> Sandbox {
        let support = Support { landlock: 6, seccomp: true, namespaces };
        Sandbox { launcher: "/launcher".into(), support, readable: Readable::default(), hidden }
    }

    #[test]
    fn only_the_workspace_and_three_directories_can_be_changed() {
        let home = tempfile::TempDir::new().unwrap();
        let home = home.path().canonicalize().unwrap();
        let ctx = crate::terminal::testing::ctx(&home, "telegram", "7");
        std::fs::create_dir(&ctx.workspace).unwrap();
        let own = SessionDirectory::open(&home.join("terminal"), &ctx).unwrap();
        let sandbox = sandbox(true, vec![home.clone()]);
        for project in [None, Some(home.as_path()), Some(ctx.workspace.as_path())] {
            let policy = sandbox.policy(&ctx, project, &own).unwrap();
            assert_eq!(
                policy.write,
                [ctx.workspace.clone(), own.home(), own.tmp(), own.state()],
                "{project:?}"
            );
            assert_eq!(policy.protected, [] as [PathBuf; 0]);
        }
    }

    #[test]
    fn project_keeps_its_hooks_and_settings() {
        let root = tempfile::TempDir::new().unwrap();
        let root = root.path().canonicalize().unwrap();
        for directory in ["home/workspace", "project/.git/hooks", "project/.git/objects", "project/src"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        let ctx = crate::terminal::testing::ctx(&root.join("home"), "telegram", "7");
        let own = SessionDirectory::open(&root.join("home/terminal"), &ctx).unwrap();
        let project = root.join("project");
        let hooks = project.join(".git/hooks");
        let with = sandbox(true, vec![]).policy(&ctx, Some(&project), &own).unwrap();
        assert_eq!((&with.write[4..], &with.protected[..]), (&[project.clone()][..], &[hooks.clone()][..]));
        let mut without = sandbox(false, vec![]).policy(&ctx, Some(&project), &own).unwrap();
        without.write[4..].sort();
        assert_eq!(without.write[4..], [project.join(".git/objects"), project.join("src")]);
        assert_eq!((without.protected, without.read), (vec![], vec![hooks]));
    }

    #[test]
    fn advises_to_leave_only_after_a_refusal() {
        assert!(advice("touch: cannot touch '/x': Permission denied", 1).is_some());
        assert!(advice("curl: (6) Could not resolve host: example.org", 6).is_some());
        assert_eq!(advice("Permission denied", 0), None);
        assert_eq!(advice("no such test", 1), None);
    }
}
