//! Programs that run other programs.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{has, operands, value};
use crate::analysis::state::Stream;
use crate::analysis::text::UNKNOWN;
use crate::analysis::walk::{Walk, WalkResult};
use crate::{Category, Hardline};

/// A program that runs the rest of its line: options with a value, and arguments before the command.
struct Prefix {
    name: &'static str,
    valued: &'static [&'static str],
    skip: usize,
}

const fn prefix(name: &'static str, valued: &'static [&'static str], skip: usize) -> Prefix {
    Prefix { name, valued, skip }
}

const PREFIXES: [Prefix; 38] = [
    prefix(
        "sudo",
        &["-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "-D", "-R", "--user", "--group", "--prompt"],
        0,
    ),
    prefix("doas", &["-u", "-C"], 0),
    prefix("pkexec", &["--user"], 0),
    prefix("env", &["-u", "-C", "--unset", "--chdir"], 0),
    prefix("command", &[], 0),
    prefix("builtin", &[], 0),
    prefix("exec", &["-a"], 0),
    prefix("nohup", &[], 0),
    prefix("nice", &["-n", "--adjustment"], 0),
    prefix("ionice", &["-c", "-n", "-p", "--class", "--classdata"], 0),
    prefix("chrt", &[], 1),
    prefix("taskset", &[], 1),
    prefix("numactl", &[], 0),
    prefix("time", &["-f", "-o"], 0),
    prefix("timeout", &["-k", "-s", "--signal", "--kill-after"], 1),
    prefix("gtimeout", &["-k", "-s"], 1),
    prefix("stdbuf", &["-i", "-o", "-e"], 0),
    prefix("unbuffer", &[], 0),
    prefix("setsid", &[], 0),
    prefix("setarch", &[], 1),
    prefix("setpriv", &[], 0),
    prefix("catchsegv", &[], 0),
    prefix("strace", &["-o", "-e", "-p", "-s", "-u"], 0),
    prefix("ltrace", &["-o", "-e", "-p", "-s"], 0),
    prefix("valgrind", &[], 0),
    prefix("chroot", &[], 1),
    prefix("unshare", &["-R", "-w", "-S", "-G"], 0),
    prefix("nsenter", &["-t", "-S", "-G"], 0),
    prefix("firejail", &[], 0),
    prefix("systemd-run", &["-p", "-u", "-E", "--unit", "--property"], 0),
    prefix("systemd-inhibit", &[], 0),
    prefix("caffeinate", &["-t", "-w"], 0),
    prefix("dbus-run-session", &[], 0),
    prefix("xvfb-run", &["-n", "-s"], 0),
    prefix("busybox", &[], 0),
    prefix("toybox", &[], 0),
    prefix("entr", &[], 0),
    prefix("faketime", &[], 1),
];

impl Walk<'_> {
    /// `None`: not a wrapper.
    pub(super) fn wrapped(
        &mut self,
        name: &str,
        args: &[String],
        input: &Stream,
    ) -> WalkResult<Option<Stream>> {
        if let Some(prefix) = PREFIXES.iter().find(|prefix| prefix.name == name) {
            return self.prefixed(prefix, args, input).map(Some);
        }
        if let Some(rest) = runner(name, args) {
            return match value(args, "-c", "--call").or_else(|| value(args, "--run", "--command")) {
                Some(code) if !name.starts_with("uv") => self.code(code).map(Some),
                _ => self.program(rest, input).map(Some),
            };
        }
        match name {
            // the dynamic loader runs another program
            _ if name.starts_with("ld-") && name.contains(".so") => {
                self.program(after_options(args, &["--library-path"]), input).map(Some)
            }
            "xargs" | "parallel" => self.listed(name, args, input).map(Some),
            "find" | "fd" | "fdfind" => self.found(name, args).map(|()| Some(input.filtered())),
            "eval" => self.code(&args.join(" ")).map(Some),
            "watch" => {
                let rest = after_options(args, &["-n", "--interval"]);
                self.code(&rest.join(" ")).map(Some)
            }
            "flock" => {
                let rest = after_options(args, &["-w", "-E", "--timeout"]);
                match value(args, "-c", "--command") {
                    Some(code) => self.code(code)?,
                    None => self.program(rest.get(1..).unwrap_or_default(), input)?,
                };
                Ok(Some(Stream::Unknown))
            }
            "su" | "runuser" | "script" => {
                if name != "script" {
                    self.report(Category::SudoFlags);
                }
                if let Some(code) = value(args, "-c", "--command") {
                    return self.code(code).map(Some);
                }
                if name == "runuser" {
                    let rest = after_options(args, &["-u", "-g", "-G", "-s", "-w", "--user"]);
                    return self.program(rest, input).map(Some);
                }
                Ok(Some(Stream::Unknown))
            }
            "ssh" => self.elsewhere(args, input),
            "docker" | "podman" | "nerdctl" | "kubectl" => self.inside(name, args, input),
            "tmux" | "screen" => {
                for arg in args.iter().filter(|arg| arg.contains(' ')) {
                    self.code(arg)?;
                }
                Ok(None)
            }
            "at" | "batch" => {
                self.report(Category::SystemChange);
                self.script_from(input)?;
                Ok(Some(Stream::Unknown))
            }
            _ => Ok(None),
        }
    }

    fn prefixed(&mut self, prefix: &Prefix, args: &[String], input: &Stream) -> WalkResult<Stream> {
        let rest = after_options(args, prefix.valued);
        let own = &args[..args.len() - rest.len()];
        if matches!(prefix.name, "sudo" | "doas" | "pkexec") {
            self.privileged(prefix.name, own)?;
        }
        if matches!(prefix.name, "command") && has(own, 'v', "")
            || has(own, 'V', "") && prefix.name == "command"
        {
            return Ok(Stream::Unknown);
        }
        if prefix.name == "env"
            && let Some(code) = value(args, "-S", "--split-string")
        {
            return self.code(code);
        }
        let rest = rest.get(prefix.skip..).unwrap_or_default();
        let rest = if matches!(prefix.name, "env" | "sudo" | "doas" | "systemd-run") {
            self.assignments(rest)?
        } else {
            rest
        };
        self.program(rest, input)
    }

    /// `NAME=value` before a command.
    fn assignments<'a>(&mut self, args: &'a [String]) -> WalkResult<&'a [String]> {
        let count =
            args.iter().take_while(|arg| arg.contains('=') && !arg.starts_with(['/', '.', '='])).count();
        for (name, value) in args[..count].iter().filter_map(|arg| arg.split_once('=')) {
            self.check_assignment(name, value)?;
            self.state.set(name, Vec::from([value.to_string()]));
        }
        Ok(&args[count..])
    }

    fn privileged(&mut self, name: &str, own: &[String]) -> WalkResult<()> {
        if name == "sudo" && has(own, 'S', "stdin") && !self.context.sudo_password {
            return Err(Hardline::SudoPassword);
        }
        let flags = [
            ('S', "stdin"),
            ('A', "askpass"),
            ('s', "shell"),
            ('i', "login"),
            ('b', "background"),
            ('e', "edit"),
        ];
        if name == "pkexec" || flags.iter().any(|(short, long)| has(own, *short, long)) {
            self.report(Category::SudoFlags);
        }
        Ok(())
    }

    /// `xargs`, `parallel`: arguments from elsewhere.
    fn listed(&mut self, name: &str, args: &[String], input: &Stream) -> WalkResult<Stream> {
        let valued = [
            "-I",
            "-i",
            "-n",
            "-P",
            "-L",
            "-s",
            "-d",
            "-a",
            "-E",
            "-j",
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--replace",
        ];
        let rest = after_options(args, &valued);
        let own = &args[..args.len() - rest.len()];
        let items = match input {
            Stream::Known(text) if name == "parallel" || value(own, "-I", "--replace").is_some() => {
                text.lines().map(String::from).collect()
            }
            Stream::Known(text) => text
                .split(['\0', ' ', '\t', '\n'])
                .filter(|item| !item.is_empty())
                .map(String::from)
                .collect(),
            other => Vec::from([other.clone().into_text()]),
        };
        let (rest, items) = match rest.iter().position(|arg| arg == ":::") {
            Some(at) => (&rest[..at], rest[at + 1..].to_vec()),
            None => (rest, items),
        };
        let Some(program) = rest.first() else {
            // without a program, parallel runs its input
            if name == "parallel" {
                for item in items {
                    self.code(&item)?;
                }
            }
            return Ok(Stream::Unknown);
        };
        if matches!(program.as_str(), "rm" | "unlink" | "shred" | "rmdir") || program.ends_with("/rm") {
            self.report(Category::MassDelete);
        }
        if name == "parallel" {
            let line = rest.join(" ");
            for item in items.iter().take(16) {
                let marked = line.contains("{}");
                self.code(&if marked { line.replace("{}", item) } else { format!("{line} {item}") })?;
            }
            return Ok(Stream::Unknown);
        }
        let mark = value(own, "-I", "--replace").unwrap_or("{}");
        let marked = rest.iter().any(|arg| arg.contains(mark));
        if !marked {
            let fields: Vec<String> = rest.iter().chain(&items).cloned().collect();
            return self.program(&fields, &Stream::empty());
        }
        for item in items.iter().take(16) {
            let fields: Vec<String> = rest.iter().map(|arg| arg.replace(mark, item)).collect();
            self.program(&fields, &Stream::empty())?;
        }
        Ok(Stream::Unknown)
    }

    /// `find`: deletions and commands run on matches.
    fn found(&mut self, name: &str, args: &[String]) -> WalkResult<()> {
        const WIDE: [&str; 12] = [
            "-type",
            "-depth",
            "-mindepth",
            "-maxdepth",
            "-xdev",
            "-mount",
            "-delete",
            "-print",
            "-print0",
            "-exec",
            "-execdir",
            "-follow",
        ];
        let is_find = name == "find";
        let begins = args
            .iter()
            .position(|arg| arg.starts_with(['-', '(', '!']) && !matches!(arg.as_str(), "-L" | "-P" | "-H"));
        let (starts, tests) = args.split_at(begins.unwrap_or(args.len()));
        let mut starts: Vec<&str> =
            starts.iter().map(String::as_str).filter(|arg| !arg.starts_with('-')).collect();
        if starts.is_empty() || !is_find {
            starts = Vec::from(["."]);
        }
        let everything = |at: usize, arg: &String| {
            WIDE.contains(&arg.as_str())
                || (arg.contains("name") && tests.get(at + 1).is_some_and(|name| name == "*"))
        };
        let narrow = !is_find || {
            let until = tests
                .iter()
                .position(|arg| arg.starts_with("-exec") || arg.starts_with("-ok"))
                .unwrap_or(tests.len());
            tests[..until].iter().enumerate().any(|(at, arg)| arg.starts_with('-') && !everything(at, arg))
        };
        if tests.iter().any(|arg| arg == "-delete") && is_find {
            self.report(Category::MassDelete);
            if !narrow {
                starts.iter().try_for_each(|start| self.wipes(start))?;
            }
        }
        let mut rest = tests;
        while let Some(at) = rest.iter().position(|arg| {
            matches!(arg.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir")
                || (!is_find && matches!(arg.as_str(), "-x" | "-X" | "--exec" | "--exec-batch"))
        }) {
            let body = &rest[at + 1..];
            let end = body.iter().position(|arg| matches!(arg.as_str(), ";" | "+")).unwrap_or(body.len());
            for start in &starts {
                let item = if narrow { format!("./{UNKNOWN}") } else { start.to_string() };
                let fields: Vec<String> = body[..end].iter().map(|arg| arg.replace("{}", &item)).collect();
                let program = fields.first().map_or("", |name| crate::analysis::path::base(name));
                if ["rm", "unlink", "shred"].contains(&program) {
                    self.report(Category::MassDelete);
                    if !narrow {
                        self.wipes(start)?;
                    }
                }
                self.program(&fields, &Stream::empty())?;
            }
            rest = &body[end..];
        }
        if let Some(path) = tests
            .iter()
            .position(|arg| arg.starts_with("-fprint") || arg == "-fls")
            .and_then(|at| tests.get(at + 1))
        {
            self.writes(path)?;
        }
        Ok(())
    }

    /// Commands on another machine are judged like local ones.
    fn elsewhere(&mut self, args: &[String], input: &Stream) -> WalkResult<Option<Stream>> {
        let valued =
            ["-p", "-i", "-l", "-o", "-F", "-L", "-R", "-D", "-J", "-b", "-c", "-E", "-m", "-W", "-w", "-S"];
        let rest = after_options(args, &valued);
        if rest.len() > 1 {
            self.isolated(|walk| walk.code(&rest[1..].join(" ")))?;
        } else {
            // without a command, a remote shell reads the input
            self.script_from(input)?;
        }
        Ok(Some(Stream::Remote))
    }

    /// A command in a container: only mounts, privileges and databases matter.
    fn inside(&mut self, name: &str, args: &[String], input: &Stream) -> WalkResult<Option<Stream>> {
        let words = operands(args);
        if !words.first().is_some_and(|verb| matches!(*verb, "exec" | "run")) {
            return Ok(None);
        }
        let mounts = args.iter().enumerate().filter_map(|(at, arg)| {
            let own = arg
                .strip_prefix("--volume=")
                .or_else(|| arg.strip_prefix("-v").filter(|rest| !rest.is_empty()));
            own.or_else(|| {
                matches!(arg.as_str(), "-v" | "--volume")
                    .then(|| args.get(at + 1).map(String::as_str))
                    .flatten()
            })
        });
        let exposed = mounts.filter_map(|mount| mount.split(':').next()).any(|source| {
            crate::analysis::path::resolve(source, "")
                .is_some_and(|path| crate::analysis::path::wiped(&path, self.context).is_some())
        });
        let privileged =
            args.iter().any(|arg| matches!(arg.as_str(), "--privileged" | "--pid=host" | "--cap-add=ALL"));
        if exposed || privileged {
            self.report(Category::Containers);
        }
        let program = args.iter().position(|arg| {
            let name = crate::analysis::path::base(arg);
            super::project::SQL_CLIENTS.contains(&name) || matches!(name, "sh" | "bash" | "ash" | "redis-cli")
        });
        if let Some(at) = program
            && (words.len() > 2 || name == "kubectl")
        {
            self.isolated(|walk| walk.program(&args[at..], input))?;
        }
        Ok(Some(Stream::Unknown))
    }
}

/// The command behind a project tool that runs programs in an environment.
fn runner<'a>(name: &str, args: &'a [String]) -> Option<&'a [String]> {
    const VERBS: [(&str, &str); 14] = [
        ("uv", "run"),
        ("poetry", "run"),
        ("pipenv", "run"),
        ("pdm", "run"),
        ("hatch", "run"),
        ("conda", "run"),
        ("bundle", "exec"),
        ("npm", "exec"),
        ("pnpm", "exec"),
        ("yarn", "exec"),
        ("mise", "exec"),
        ("op", "run"),
        ("doppler", "run"),
        ("nix", "develop"),
    ];
    if matches!(name, "npx" | "bunx" | "nix-shell" | "dotenv") {
        return Some(after_options(args, &["-p", "--package", "-f"]));
    }
    let (verb, rest) = args.split_first()?;
    VERBS
        .contains(&(name, verb.as_str()))
        .then(|| after_options(rest, &["-n", "--with", "--python", "--package"]))
}

/// The arguments from the first that is neither an option nor its value.
pub(super) fn after_options<'a>(args: &'a [String], valued: &[&str]) -> &'a [String] {
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        if arg == "--" {
            at += 1;
            break;
        }
        if !arg.starts_with('-') || arg == "-" {
            break;
        }
        at += if valued.contains(&arg.as_str()) { 2 } else { 1 };
    }
    args.get(at..).unwrap_or_default()
}
