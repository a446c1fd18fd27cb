//! Rules for programs, one function per family.

mod code;
mod delete;
mod files;
mod project;
mod system;
mod wrap;

use alloc::string::String;
use alloc::vec::Vec;

use super::path::base;
use super::state::Stream;
use super::text::{has_hole, matches};
use super::walk::{Walk, WalkResult};
use crate::{Category, Hardline};

impl Walk<'_> {
    /// Walks a command and returns its output.
    pub(super) fn run(&mut self, fields: &[String], input: &Stream) -> WalkResult<Stream> {
        let Some((name, args)) = fields.split_first() else { return Ok(Stream::empty()) };
        match self.state.function(name) {
            Some(body) => self.call(&body, args.to_vec(), input),
            None => self.program(fields, input),
        }
    }

    /// Walks a program, ignoring shell functions, which other programs do not know.
    fn program(&mut self, fields: &[String], input: &Stream) -> WalkResult<Stream> {
        self.spend(0)?;
        let Some((first, args)) = fields.split_first() else { return Ok(Stream::empty()) };
        self.names_gateway |= fields.iter().any(|field| self.is_gateway(field));
        let name = base(first);
        self.generated_file(first)?;
        if has_hole(name) || (name.contains(['*', '?', '[']) && !matches!(name, "[" | "[[")) {
            self.obscured(name, args, input)?;
            return Ok(Stream::Unknown);
        }
        self.hooks(name, args)?;
        if let Some(output) = self.wrapped(name, args, input)? {
            return Ok(output);
        }
        if let Some(output) = self.interpreted(name, args, input)? {
            return Ok(output);
        }
        self.deletes(name, args)?;
        self.touches(name, args, input)?;
        self.rules_system(name, args)?;
        self.rules_project(name, args, input)?;
        self.builtins(name, args)?;
        Ok(output(name, args, input))
    }

    /// A name with unknown parts must not match a program that could be forbidden.
    fn obscured(&mut self, name: &str, args: &[String], input: &Stream) -> WalkResult<()> {
        const WORST: [&str; 5] = ["rm", "dd", "mkfs.ext4", "shred", "chmod"];
        self.report_holes(name);
        self.report(Category::Obscured);
        let before = self.found.clone();
        // the name is unknown, so only known arguments count
        let args: Vec<String> = args.iter().filter(|arg| !has_hole(arg)).cloned().collect();
        for worst in WORST.into_iter().filter(|worst| matches(name, worst)) {
            self.deletes(worst, &args)?;
            self.touches(worst, &args, input)?;
        }
        self.found = before;
        Ok(())
    }

    /// A file that this script wrote, fetched or made executable, and now runs.
    fn generated_file(&mut self, path: &str) -> WalkResult<()> {
        if !path.contains('/') {
            return Ok(());
        }
        let path = self.absolute(path);
        if self.state.is_runnable(&path) {
            self.report(Category::MadeRunnable);
        }
        match self.state.written(&path).cloned() {
            Some(content) => self.script_from(&content),
            None => Ok(()),
        }
    }

    fn builtins(&mut self, name: &str, args: &[String]) -> WalkResult<()> {
        match name {
            "cd" | "pushd" => {
                let target = operands(args).first().copied().unwrap_or(self.context.home);
                let path = if has_hole(target) || target == "-" {
                    None
                } else {
                    super::path::resolve(target, &self.state.cwd)
                };
                self.state.cwd = path.unwrap_or_default();
            }
            "popd" => self.state.cwd.clear(),
            "export" | "declare" | "typeset" | "local" | "readonly" => {
                for (name, value) in args.iter().filter_map(|arg| arg.split_once('=')) {
                    self.check_assignment(name, value)?;
                    self.state.set(name, Vec::from([String::from(value)]));
                }
            }
            "read" | "mapfile" | "readarray" | "getopts" => {
                for name in operands(args) {
                    self.state.set(name, Vec::from([String::from(super::text::UNKNOWN)]));
                }
            }
            "printf" if args.first().is_some_and(|arg| arg == "-v") => {
                if let [_, name, rest @ ..] = args {
                    let text = output("printf", rest, &Stream::Unknown).into_text();
                    self.state.set(name, Vec::from([text]));
                }
            }
            "set" => {
                if let Some(at) = args.iter().position(|arg| arg == "--") {
                    self.state.set("@", args[at + 1..].to_vec());
                }
            }
            "hash" if has(args, 'p', "") => self.report(Category::Obscured),
            "unset" => args.iter().for_each(|name| self.state.unset(name)),
            "alias" => {
                for (_, body) in args.iter().filter_map(|arg| arg.split_once('=')) {
                    self.isolated(|walk| walk.code(body))?;
                }
            }
            "trap" => {
                if let Some(action) = operands(args).first() {
                    self.isolated(|walk| walk.code(action))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn is_gateway(&self, text: &str) -> bool {
        let at_home = !self.context.gateway_home.is_empty() && text.starts_with(self.context.gateway_home);
        // `grep [p]etasos` does not match itself
        let plain: String = text.chars().filter(|c| !matches!(c, '[' | ']')).collect();
        let pattern = text.contains('*') && text.contains(char::is_alphanumeric);
        at_home
            || plain.to_ascii_lowercase().contains("petasos")
            || (pattern && (matches(text, "petasos") || matches(text, "petasos.service")))
    }

    pub(super) fn stops_gateway(&self) -> WalkResult<()> {
        Err(Hardline::StopsGateway)
    }
}

/// Whether an option is present: `-x`, within `-axb`, or as a prefix of `--long`.
pub(super) fn has(args: &[String], short: char, long: &str) -> bool {
    args.iter().take_while(|arg| *arg != "--").any(|arg| match arg.strip_prefix("--") {
        Some(name) => {
            let name = name.split('=').next().unwrap_or(name);
            name.len() >= 3 && long.starts_with(name)
        }
        None => arg.strip_prefix('-').is_some_and(|letters| short != '\0' && letters.contains(short)),
    })
}

pub(super) fn operands(args: &[String]) -> Vec<&str> {
    let mut open = true;
    let mut found = Vec::new();
    for arg in args {
        if open && arg == "--" {
            open = false;
        } else if !open || arg == "-" || !arg.starts_with('-') {
            found.push(arg.as_str());
        }
    }
    found
}

/// The value of an option: `-o value`, `-ovalue`, `--long value`, `--long=value`.
pub(super) fn value<'a>(args: &'a [String], short: &str, long: &str) -> Option<&'a str> {
    for (at, arg) in args.iter().enumerate() {
        if (!short.is_empty() && arg == short) || arg == long {
            return args.get(at + 1).map(String::as_str);
        }
        if let Some(value) = arg.strip_prefix(long).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value);
        }
        if !short.is_empty() && !arg.starts_with("--") && arg.len() > short.len() && arg.starts_with(short) {
            return Some(&arg[short.len()..]);
        }
    }
    None
}

/// The value of an option that ends a group of letters: `-fsSLo value`.
pub(super) fn grouped<'a>(args: &'a [String], letters: &[char]) -> Option<&'a str> {
    let ends = |arg: &String| {
        arg.starts_with('-') && !arg.starts_with("--") && arg.len() > 2 && arg.ends_with(letters)
    };
    args.get(args.iter().position(ends)? + 1).map(String::as_str)
}

/// The output of known programs; otherwise unknown with the origin of the input.
fn output(name: &str, args: &[String], input: &Stream) -> Stream {
    use super::text::{base64, hex, unescape};
    let from_file = operands(args).iter().any(|arg| *arg != "-");
    let decoded = |decode: fn(&str) -> Option<String>| match input {
        Stream::Known(_) if from_file => Stream::Decoded,
        Stream::Known(text) => decode(text).map_or(Stream::Decoded, Stream::Known),
        Stream::Unknown | Stream::Decoded => Stream::Decoded,
        Stream::Remote => Stream::Remote,
    };
    match name {
        "echo" => {
            let flags = args
                .iter()
                .take_while(|arg| matches!(arg.as_str(), "-n" | "-e" | "-E" | "-ne" | "-en"))
                .count();
            let text = args[flags..].join(" ");
            let text =
                if args[..flags].iter().any(|flag| flag.contains('e')) { unescape(&text) } else { text };
            of_text(alloc::format!("{text}\n"))
        }
        "printf" => of_text(printf(args)),
        "cat" | "tee" if operands(args).is_empty() || name == "tee" => input.clone(),
        "true" | "false" | ":" | "cd" | "export" | "set" | "test" | "[" | "[[" | "mkdir" | "touch" => {
            Stream::empty()
        }
        "base64" | "basenc" if has(args, 'd', "decode") || has(args, 'D', "") => decoded(base64),
        "xxd" if has(args, 'r', "revert") => decoded(hex),
        "rev" => decoded(|text| {
            Some(text.lines().map(|line| line.chars().rev().collect::<String>() + "\n").collect())
        }),
        "base32" | "openssl" | "gpg" | "uudecode" | "gunzip" | "zcat" | "bunzip2" | "xz" | "unxz"
        | "gzip" | "tr" => decoded(|_| None),
        "curl" | "wget" | "fetch" | "nc" | "ncat" | "netcat" | "socat" | "ssh" | "aria2c" | "http"
        | "https" | "lynx" | "ftp" | "tftp" | "dig" | "nslookup" | "host" | "gsutil" | "aws" => {
            Stream::Remote
        }
        _ => input.filtered(),
    }
}

fn of_text(text: String) -> Stream {
    if has_hole(&text) { Stream::of_text(&text) } else { Stream::Known(text) }
}

fn printf(args: &[String]) -> String {
    let Some((format, mut rest)) = args.split_first() else { return String::new() };
    let format = super::text::unescape(format);
    let mut text = String::new();
    loop {
        let before = rest.len();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            match chars.next() {
                Some('%') => text.push('%'),
                Some(kind @ ('s' | 'b')) => {
                    if let Some((value, more)) = rest.split_first() {
                        text.push_str(&if kind == 'b' {
                            super::text::unescape(value)
                        } else {
                            value.clone()
                        });
                        rest = more;
                    }
                }
                _ => text.push(super::text::UNKNOWN),
            }
        }
        if rest.is_empty() || rest.len() == before {
            return text;
        }
    }
}
