//! Rules for shells and interpreters.

use alloc::string::String;
use alloc::vec::Vec;

use super::{has, operands, value};
use crate::analysis::path;
use crate::analysis::state::Stream;
use crate::analysis::text::{has_hole, matches};
use crate::analysis::walk::{Walk, WalkResult};
use crate::{Category, Hardline};

const SHELLS: [&str; 12] =
    ["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "csh", "tcsh", "yash"];

/// Interpreters and their options for inline code.
const INTERPRETERS: [(&str, &[&str]); 17] = [
    ("expect", &["-c"]),
    ("python*", &["-c"]),
    ("pypy*", &["-c"]),
    ("perl*", &["-e", "-E"]),
    ("ruby*", &["-e"]),
    ("node", &["-e", "-p", "--eval", "--print"]),
    ("nodejs", &["-e", "-p", "--eval", "--print"]),
    ("bun", &["-e", "-p", "--eval"]),
    ("deno", &["eval"]),
    ("php*", &["-r"]),
    ("lua*", &["-e"]),
    ("osascript", &["-e"]),
    ("Rscript", &["-e"]),
    ("julia", &["-e", "-E"]),
    ("pwsh", &["-c", "-Command", "-EncodedCommand"]),
    ("tclsh", &[]),
    ("guile", &["-c"]),
];

impl Walk<'_> {
    pub(super) fn interpreted(
        &mut self,
        name: &str,
        args: &[String],
        input: &Stream,
    ) -> WalkResult<Option<Stream>> {
        if SHELLS.contains(&name) {
            return self.shell(args, input).map(Some);
        }
        match name {
            "source" | "." => {
                match args.first() {
                    Some(path) if is_input(path) => self.script_from(input)?,
                    Some(path) => self.file(path)?,
                    None => {}
                }
                return Ok(Some(Stream::Unknown));
            }
            "awk" | "gawk" | "mawk" | "nawk" => {
                self.awk(args)?;
                return Ok(None);
            }
            "vi" | "vim" | "nvim" | "ex" | "view" => {
                let commands = args.iter().filter_map(|arg| arg.find('!').map(|at| &arg[at + 1..]));
                for code in commands {
                    self.code(code)?;
                }
                return Ok(Some(Stream::Unknown));
            }
            _ => {}
        }
        let Some((_, options)) = INTERPRETERS.iter().find(|(pattern, _)| matches(pattern, name)) else {
            return Ok(None);
        };
        let inline = args.iter().position(|arg| {
            let cluster = arg.starts_with('-')
                && !arg.starts_with("--")
                && arg.len() > 2
                && options.iter().any(|option| {
                    option.len() == 2
                        && arg.ends_with(&option[1..])
                        && arg[1..].chars().all(|c| c.is_ascii_alphanumeric())
                });
            let joined = options.iter().any(|option| {
                option.len() == 2 && !arg.starts_with("--") && arg.starts_with(option) && arg.len() > 2
            });
            options.contains(&arg.as_str()) || cluster || joined
        });
        if let Some(at) = inline {
            self.foreign(&args[at..].join("\n"))?;
        } else if operands(args).iter().all(|arg| *arg == "-")
            && !has(args, 'm', "")
            && !has(args, 'V', "version")
            && !has(args, 'v', "help")
        {
            match input {
                Stream::Known(text) if text.trim().is_empty() => {}
                Stream::Known(text) => self.foreign(text)?,
                Stream::Unknown => self.report(Category::InlineCode),
                Stream::Decoded => self.report(Category::DecodedCode),
                Stream::Remote => self.report(Category::RemoteCode),
            }
        } else if let Some(file) = operands(args).first() {
            self.other_file(file);
        }
        Ok(Some(input.filtered()))
    }

    fn shell(&mut self, args: &[String], input: &Stream) -> WalkResult<Stream> {
        let flag =
            args.iter().position(|arg| arg.starts_with('-') && !arg.starts_with("--") && arg.contains('c'));
        if let Some(at) = flag {
            let rest = super::wrap::after_options(&args[at + 1..], &["-o", "-O"]);
            let Some((code, positional)) = rest.split_first() else { return Ok(Stream::empty()) };
            let positional = positional.get(1..).unwrap_or_default().to_vec();
            return self.isolated(|walk| {
                walk.state.set("@", positional);
                walk.code(code)
            });
        }
        if let Some(startup) = value(args, "", "--rcfile").or_else(|| value(args, "", "--init-file")) {
            self.file(startup)?;
        }
        let files = operands(super::wrap::after_options(args, &["-o", "-O", "--rcfile", "--init-file"]));
        match files.first() {
            Some(file) if !is_input(file) && !has(args, 's', "") => self.file(file)?,
            _ => self.script_from(input)?,
        }
        Ok(input.filtered())
    }

    /// A script file: known if this command wrote it; other files belong to the owner.
    fn file(&mut self, path: &str) -> WalkResult<()> {
        if path.starts_with("/dev/tcp/") {
            self.report(Category::RemoteShell);
        }
        self.report_holes(path);
        let content = self.state.written(&self.absolute(path)).cloned();
        match content {
            Some(content) => self.script_from(&content),
            None => Ok(()),
        }
    }

    fn other_file(&mut self, path: &str) {
        match self.state.written(&self.absolute(path)) {
            Some(Stream::Remote) => self.report(Category::RemoteCode),
            Some(Stream::Decoded) => self.report(Category::DecodedCode),
            Some(Stream::Known(_) | Stream::Unknown) => self.report(Category::InlineCode),
            None => {}
        }
    }

    /// Walks content that a shell reads.
    pub(super) fn script_from(&mut self, content: &Stream) -> WalkResult<()> {
        match content {
            Stream::Known(text) => self.isolated(|walk| walk.code(text)).map(drop)?,
            Stream::Unknown => self.report(Category::Obscured),
            Stream::Decoded => self.report(Category::DecodedCode),
            Stream::Remote => self.report(Category::RemoteCode),
        }
        Ok(())
    }

    /// Code in another language is not parsed; shell commands and deletions in its string literals are walked.
    fn foreign(&mut self, code: &str) -> WalkResult<()> {
        const STARTS: [&str; 12] = [
            "system",
            "popen",
            "subprocess",
            "exec",
            "spawn",
            "child_process",
            "`",
            "qx",
            "%x",
            "do shell script",
            "Runtime",
            "run(",
        ];
        const DELETES: [&str; 9] = [
            "rmtree",
            "rm_rf",
            "rmSync",
            "rmdirSync",
            "remove_tree",
            "removedirs",
            "rimraf",
            "rmdir_recursive",
            "unlinkSync",
        ];
        self.report(Category::InlineCode);
        self.report_holes(code);
        self.spend(code.len())?;
        let forks = code.contains("fork")
            && ["while", "loop", "for(", "for (", "until"].iter().any(|word| code.contains(word));
        if forks {
            return Err(Hardline::ForkBomb);
        }
        let mut numbers = code.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
        if code.contains("kill") && numbers.any(|pid: u32| self.context.gateway_pids.contains(&pid)) {
            return self.stops_gateway();
        }
        let literals = literals(code);
        if STARTS.iter().any(|word| code.contains(word)) {
            for literal in literals.iter().chain([&literals.join(" ")]) {
                self.only_hardline(literal)?;
            }
            // a list of words such as ["rm", "-rf", "/"], after other strings
            for at in 0..literals.len().min(8) {
                self.only_hardline(&literals[at..].join(" "))?;
            }
        }
        if DELETES.iter().any(|word| code.contains(word)) {
            for literal in &literals {
                let path = literal.replace('~', self.context.home);
                if path.starts_with('/') {
                    self.wipes(&path)?;
                }
            }
        }
        for literal in literals.iter().filter(|literal| literal.starts_with("/dev/")) {
            if path::is_device(literal)
                && ["write", "open", "'w", "\"w"].iter().any(|word| code.contains(word))
            {
                return Err(Hardline::WritesDevice);
            }
        }
        Ok(())
    }

    pub(super) fn only_hardline(&mut self, code: &str) -> WalkResult<()> {
        let before = self.found.clone();
        self.isolated(|walk| walk.code(code))?;
        self.found = before;
        Ok(())
    }

    fn awk(&mut self, args: &[String]) -> WalkResult<()> {
        let Some(program) = args.iter().find(|arg| arg.contains('{')) else { return Ok(()) };
        let runs = program.contains("system(")
            || program.contains("|\"")
            || program.contains("| \"")
            || program.contains("| getline")
            || program.contains("|getline");
        if runs {
            self.report(Category::InlineCode);
            for literal in literals(program) {
                self.isolated(|walk| walk.code(&literal))?;
            }
        }
        if program.contains('>') {
            for literal in literals(program).iter().filter(|literal| literal.starts_with('/')) {
                self.writes(literal)?;
            }
        }
        Ok(())
    }

    /// Options of other programs that name a program to run.
    pub(super) fn hooks(&mut self, name: &str, args: &[String]) -> WalkResult<()> {
        const HOOKS: [&str; 8] = [
            "--checkpoint-action=exec=",
            "--to-command=",
            "--use-compress-program=",
            "--rsh=",
            "ProxyCommand=",
            "--unzip-command=",
            "LocalCommand=",
            "--info-script=",
        ];
        for arg in args {
            if let Some(code) = HOOKS.iter().find_map(|hook| arg.find(hook).map(|at| &arg[at + hook.len()..]))
            {
                self.isolated(|walk| walk.code(code.trim()))?;
                self.report(Category::InlineCode);
            }
        }
        let short = match name {
            "rsync" => value(args, "-e", "--rsh"),
            "man" => value(args, "-P", "--pager"),
            "gdb" => value(args, "-ex", "--eval-command").and_then(|code| {
                code.trim_start_matches('!').strip_prefix("shell ").or(code.strip_prefix('!'))
            }),
            _ => None,
        };
        if let Some(code) = short {
            self.isolated(|walk| walk.code(code))?;
        }
        Ok(())
    }
}

fn is_input(path: &str) -> bool {
    matches!(path, "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
}

fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['\'', '"', '`']) {
        let quote = rest[at..].chars().next().unwrap_or('"');
        let inside = &rest[at + 1..];
        let Some(end) = inside.find(quote) else { break };
        if end > 0 && !has_hole(&inside[..end]) {
            found.push(String::from(&inside[..end]));
        }
        rest = &inside[end + 1..];
    }
    found.truncate(64);
    found
}
