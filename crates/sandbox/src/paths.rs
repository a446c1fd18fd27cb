//! Which paths of a machine commands may read: programs and what these need, nothing that is private.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Readable by every user of the machine.
const SYSTEM: [&str; 19] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/home/linuxbrew/.linuxbrew",
    "/run/current-system",
    "/run/systemd/resolve/resolv.conf",
    "/run/systemd/resolve/stub-resolv.conf",
    "/var/cache/fontconfig",
    "/var/lib/dpkg",
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
];
/// Read only as far as every user may: it has keys and passwords, and the gateway may run as root.
const SETTINGS: &str = "/etc";

/// Of toolchains in a home directory: a directory on PATH, what its programs read, and the variable that says
/// where this is.
const TOOLCHAINS: [Toolchain; 16] = [
    Toolchain::new(".cargo/bin", &[".cargo/bin", ".rustup"], Some(("RUSTUP_HOME", ".rustup"))),
    Toolchain::new(".pyenv", &[".pyenv"], Some(("PYENV_ROOT", ".pyenv"))),
    Toolchain::new(".nvm/versions", &[".nvm/versions"], None),
    Toolchain::new(".volta/bin", &[".volta/bin", ".volta/tools"], Some(("VOLTA_HOME", ".volta"))),
    Toolchain::new(".local/bin", &[".local/bin", ".local/lib", ".local/share/pipx", ".local/share/uv"], None),
    Toolchain::new(".local/share/mise", &[".local/share/mise"], None),
    Toolchain::new(".asdf", &[".asdf"], Some(("ASDF_DATA_DIR", ".asdf"))),
    Toolchain::new(".rbenv", &[".rbenv"], Some(("RBENV_ROOT", ".rbenv"))),
    Toolchain::new(".sdkman/candidates", &[".sdkman/candidates"], None),
    Toolchain::new(".bun/bin", &[".bun/bin"], None),
    Toolchain::new(".deno/bin", &[".deno/bin"], None),
    Toolchain::new("go/bin", &["go/bin"], None),
    Toolchain::new("miniconda3", &["miniconda3"], None),
    Toolchain::new("anaconda3", &["anaconda3"], None),
    Toolchain::new(".ghcup/bin", &[".ghcup/bin", ".ghcup/ghc"], None),
    Toolchain::new("bin", &["bin"], None),
];

/// Below a home directory: never readable, even if a directory around them is.
const CREDENTIALS: [&str; 18] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".config/op",
    ".docker",
    ".kube",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".claude",
    ".codex",
    ".local/share/keyrings",
];

struct Toolchain {
    on_path: &'static str,
    read: &'static [&'static str],
    variable: Option<(&'static str, &'static str)>,
}

impl Toolchain {
    const fn new(
        on_path: &'static str,
        read: &'static [&'static str],
        variable: Option<(&'static str, &'static str)>,
    ) -> Self {
        Self { on_path, read, variable }
    }
}

/// The readable paths of this machine for one user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readable {
    pub paths: Vec<PathBuf>,
    /// Variables with which toolchains find what is in the real home directory.
    pub variables: Vec<(&'static str, PathBuf)>,
}

impl Readable {
    /// `home`: the user's home directory. `search`: the value of PATH. `hidden`: neither they nor what is below
    /// them become readable.
    pub fn find(home: Option<&Path>, search: &OsStr, hidden: &[PathBuf]) -> Self {
        let hidden = with_credentials(home, hidden);
        let mut found: BTreeSet<PathBuf> =
            SYSTEM.iter().flat_map(|path| without(Path::new(path), &hidden)).collect();
        found.extend(public(Path::new(SETTINGS)).iter().flat_map(|path| without(path, &hidden)));
        let mut variables = Vec::new();
        for directory in std::env::split_paths(search).filter(|directory| directory.is_absolute()) {
            match home.and_then(|home| Some((home, toolchain(home, &directory)?))) {
                Some((home, toolchain)) => {
                    found.extend(toolchain.read.iter().flat_map(|path| without(&home.join(path), &hidden)));
                    variables.extend(toolchain.variable.map(|(name, path)| (name, home.join(path))));
                }
                None => {
                    found.extend(installation(home, &directory).iter().flat_map(|it| without(it, &hidden)))
                }
            }
        }
        variables.dedup();
        Self { paths: outermost(found), variables }
    }
}

/// `path`, or the parts of it that are outside of `hidden`. Symbolic links among these are left out: a right on
/// one would be a right on its target.
pub fn without(path: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(path) = path.canonicalize() else { return vec![] };
    if hidden.iter().any(|hidden| path.starts_with(hidden)) {
        return vec![];
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(&path)) {
        return vec![path];
    }
    children(&path).iter().flat_map(|child| without(child, hidden)).collect()
}

/// `hidden` and the usual places of credentials, as canonical paths. Missing ones are kept: they may be created.
pub fn with_credentials(home: Option<&Path>, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let credentials = home.into_iter().flat_map(|home| CREDENTIALS.iter().map(|path| home.join(path)));
    let all = hidden.iter().cloned().chain(credentials);
    all.map(|path| path.canonicalize().unwrap_or(path)).collect()
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let real = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    real.map(|entry| entry.path()).collect()
}

fn toolchain(home: &Path, directory: &Path) -> Option<&'static Toolchain> {
    TOOLCHAINS.iter().find(|toolchain| directory.starts_with(home.join(toolchain.on_path)))
}

/// A directory on PATH, and the libraries beside it. Never a home directory or what is above it.
fn installation(home: Option<&Path>, directory: &Path) -> Vec<PathBuf> {
    let too_much = |path: &Path| path.parent().is_none() || home.is_some_and(|home| home.starts_with(path));
    if too_much(directory) {
        return vec![];
    }
    let around = directory.parent().filter(|_| directory.ends_with("bin"));
    let libraries = around.filter(|around| around.join("lib").is_dir() && !too_much(around));
    let beside = libraries.into_iter().flat_map(|around| [around.join("lib"), around.join("share")]);
    [directory.to_owned()].into_iter().chain(beside).collect()
}

/// The parts of a directory that every user may read.
fn public(path: &Path) -> Vec<PathBuf> {
    match shared(path) {
        Shared::All => vec![path.to_owned()],
        Shared::Parts(parts) => parts,
    }
}

enum Shared {
    All,
    Parts(Vec<PathBuf>),
}

fn shared(path: &Path) -> Shared {
    let Ok(about) = path.symlink_metadata() else { return Shared::Parts(vec![]) };
    let for_others = if about.is_dir() { 0o005 } else { 0o004 };
    if about.permissions().mode() & for_others != for_others {
        return Shared::Parts(vec![]);
    }
    if !about.is_dir() {
        return Shared::All;
    }
    let children: Vec<_> = children(path).into_iter().map(|child| (shared(&child), child)).collect();
    if children.iter().all(|(shared, _)| matches!(shared, Shared::All)) {
        return Shared::All;
    }
    let parts = children.into_iter().flat_map(|(shared, child)| match shared {
        Shared::All => vec![child],
        Shared::Parts(parts) => parts,
    });
    Shared::Parts(parts.collect())
}

/// Without paths that are below another one. The order of a set puts a directory before what is in it.
fn outermost(paths: BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !kept.last().is_some_and(|last| path.starts_with(last)) {
            kept.push(path);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::TempDir::new().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        (directory, root)
    }

    #[test]
    fn hides_a_branch_and_keeps_its_siblings() {
        let (_directory, root) = tree(&["a/x", "b/secret/key", "b/open"]);
        std::os::unix::fs::symlink(root.join("b/secret"), root.join("b/link")).unwrap();
        let hidden = [root.join("b/secret")];
        let mut seen = without(&root, &hidden);
        seen.sort();
        assert_eq!(seen, [root.join("a"), root.join("b/open")]);
        assert_eq!(without(&root.join("b/link"), &hidden), [] as [PathBuf; 0]);
        assert_eq!(without(&root.join("a"), &hidden), [root.join("a")]);
    }

    #[test]
    fn skips_settings_that_only_some_users_may_read() {
        let (_directory, root) = tree(&["hosts", "shadow", "ssl/cert", "ssl/private/key"]);
        for (path, mode) in [("shadow", 0o640), ("ssl/private", 0o700)] {
            fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        let mut seen = public(&root);
        seen.sort();
        assert_eq!(seen, [root.join("hosts"), root.join("ssl/cert")]);
        fs::set_permissions(root.join("shadow"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(root.join("ssl/private"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(public(&root), [root]);
    }

    #[test]
    fn reads_toolchains_on_path_but_not_credentials() {
        let files = [
            ".cargo/bin/cargo",
            ".cargo/credentials.toml",
            ".rustup/settings.toml",
            ".ssh/id",
            "opt/x/bin/x",
        ];
        let (_directory, home) = tree(&[&files[..], &["opt/x/lib/x.so", "opt/x/token"]].concat());
        let search =
            std::env::join_paths([home.join(".cargo/bin"), home.join("opt/x/bin"), home.clone()]).unwrap();
        let readable = Readable::find(Some(&home), &search, &[]);
        let allowed = |path: &str| readable.paths.iter().any(|it| home.join(path).starts_with(it));
        for path in [".cargo/bin/cargo", ".rustup/settings.toml", "opt/x/bin/x", "opt/x/lib/x.so"] {
            assert!(allowed(path), "{path}");
        }
        for path in [".cargo/credentials.toml", ".ssh/id", "opt/x/token", "notes"] {
            assert!(!allowed(path), "{path}");
        }
        assert_eq!(readable.variables, [("RUSTUP_HOME", home.join(".rustup"))]);
    }

    #[test]
    fn credentials_on_path_stay_hidden() {
        let (_directory, home) = tree(&[".ssh/bin/tool", "data/bin/tool"]);
        let search = std::env::join_paths([home.join(".ssh/bin"), home.join("data/bin")]).unwrap();
        let readable = Readable::find(Some(&home), &search, &[home.join("data")]);
        assert!(readable.paths.iter().all(|path| !path.starts_with(&home)), "{:?}", readable.paths);
    }
}
