//! Classification of paths: system, homes, devices, credentials.

use alloc::string::String;
use alloc::vec::Vec;

use super::own::is_own;
use super::text::{has_hole, is_hole, matches};
use crate::{Category, Context, Hardline};

const ROOTS: [&str; 29] = [
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "media",
    "mnt",
    "nix",
    "opt",
    "private",
    "proc",
    "root",
    "run",
    "sbin",
    "snap",
    "srv",
    "sys",
    "usr",
    "var",
    "Applications",
    "Library",
    "System",
    "Users",
    "Volumes",
    "cores",
];
const USR: [&str; 10] =
    ["bin", "sbin", "lib", "lib32", "lib64", "libexec", "share", "local", "include", "src"];

/// An absolute path without `.`, `..` and doubled slashes; `None` if the working directory is unknown.
pub(crate) fn resolve(path: &str, cwd: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    if !path.starts_with('/') {
        if !cwd.starts_with('/') {
            return None;
        }
        parts.extend(cwd.split('/').filter(|part| !part.is_empty()));
    }
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let mut whole = String::new();
    for part in parts {
        whole.push('/');
        whole.push_str(part);
    }
    Some(if whole.is_empty() { String::from("/") } else { whole })
}

/// A name made of wildcards: everything that is there.
fn is_everything(part: &str) -> bool {
    let mut in_set = false;
    let mut plain = false;
    for c in part.chars() {
        match c {
            '[' => in_set = true,
            ']' => in_set = false,
            '*' | '?' | '.' => {}
            _ => plain |= !in_set,
        }
    }
    !plain && part.contains(['*', '?', '['])
}

/// The hardline of a recursive deletion of `path`, which is absolute and resolved.
pub(crate) fn wiped(path: &str, context: &Context) -> Option<Hardline> {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    // every process shows its root once more
    if let ["proc", _, "root", rest @ ..] = parts.as_slice() {
        parts = rest.to_vec();
    }
    while parts.last().is_some_and(|part| is_everything(part)) {
        parts.pop();
    }
    let holds = |inner: &str| {
        let inner: Vec<&str> = inner.split('/').filter(|part| !part.is_empty()).collect();
        !inner.is_empty()
            && parts.len() <= inner.len()
            && parts.iter().zip(&inner).all(|(part, name)| !has_hole(part) && matches(part, name))
    };
    let listed = |part: &str, names: &[&str]| !has_hole(part) && names.iter().any(|name| matches(part, name));
    match parts.as_slice() {
        [] => Some(Hardline::WipesSystem),
        ["home" | "Users", _] | ["root"] => Some(Hardline::WipesHome),
        _ if holds(context.gateway_home) && !holds(context.home) => Some(Hardline::WipesGateway),
        [one] if listed(one, &ROOTS) => Some(Hardline::WipesSystem),
        ["usr", two] if listed(two, &USR) => Some(Hardline::WipesSystem),
        ["var", two] if listed(two, &["lib", "db", "spool"]) => Some(Hardline::WipesSystem),
        _ if holds(context.home) => Some(Hardline::WipesHome),
        _ => None,
    }
}

/// A device under `/dev` that is not a stream.
pub(crate) fn is_device(path: &str) -> bool {
    const STREAMS: [&str; 11] =
        ["null", "zero", "full", "stdin", "stdout", "stderr", "tty", "random", "urandom", "ptmx", "console"];
    const FOLDERS: [&str; 5] = ["fd/", "pts/", "shm/", "tcp/", "udp/"];
    let Some(name) = path.strip_prefix("/dev/") else { return false };
    !STREAMS.contains(&name)
        && !name.starts_with("ttyS")
        && !FOLDERS.iter().any(|folder| name.starts_with(folder))
}

/// The category of a change to this file.
pub(crate) fn sensitive(path: &str, cwd: &str, context: &Context) -> Option<Category> {
    if is_own(path, cwd, context) {
        return Some(Category::OwnConfig);
    }
    let resolved = resolve(path, cwd);
    let whole = resolved.as_deref().unwrap_or(path);
    let parts: Vec<&str> = whole.split('/').filter(|part| !part.is_empty()).collect();
    let first = if whole.starts_with('/') { parts.first().copied().unwrap_or("") } else { "" };
    let is_system =
        matches!(first, "etc" | "boot" | "bin" | "sbin" | "lib" | "lib64" | "sys" | "proc" | "System")
            || (first == "usr" && parts.get(1) != Some(&"local"))
            || whole.starts_with("/usr/local/bin")
            || whole.starts_with("/usr/local/sbin")
            || whole.starts_with("/var/spool/cron")
            || whole.starts_with("/private/etc");
    if is_system {
        return Some(Category::SystemFiles);
    }
    if is_credential(&parts) {
        return Some(Category::Credentials);
    }
    let name = parts.last().copied().unwrap_or("");
    let template = ["example", "sample", "template", "dist"].iter().any(|end| name.ends_with(end));
    let secret = name == ".env" || name == ".envrc" || (name.starts_with(".env.") && !template);
    let hooks = parts.windows(2).any(|pair| pair == [".git", "hooks"]);
    (secret || hooks || name == "config.yaml").then_some(Category::ProjectSecrets)
}

fn is_credential(parts: &[&str]) -> bool {
    const FOLDERS: [&str; 4] = [".ssh", ".aws", ".gnupg", ".kube"];
    const FILES: [&str; 22] = [
        ".bashrc",
        ".bash_profile",
        ".bash_login",
        ".bash_logout",
        ".bash_aliases",
        ".profile",
        ".zshrc",
        ".zshenv",
        ".zprofile",
        ".zlogin",
        ".kshrc",
        ".cshrc",
        ".tcshrc",
        ".netrc",
        ".pgpass",
        ".my.cnf",
        ".git-credentials",
        ".npmrc",
        ".pypirc",
        ".xinitrc",
        "authorized_keys",
        "config.fish",
    ];
    const PAIRS: [[&str; 2]; 6] = [
        [".docker", "config.json"],
        [".config", "autostart"],
        [".config", "systemd"],
        [".config", "gh"],
        [".config", "gcloud"],
        ["Library", "LaunchAgents"],
    ];
    parts.iter().any(|part| FOLDERS.contains(part))
        || parts.last().is_some_and(|name| FILES.contains(name))
        || parts.windows(2).any(|pair| PAIRS.iter().any(|known| pair == known))
}

/// The last part of a path: the name of a program. Unknown folders do not matter.
pub(crate) fn base(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    // a placeholder may contain a slash
    if name.chars().any(is_hole) { path } else { name }
}
