//! Rules for writing files and changing permissions.

use alloc::string::String;

use super::{grouped, has, operands, value};
use crate::analysis::state::Stream;
use crate::analysis::text::has_hole;
use crate::analysis::walk::{Walk, WalkResult};
use crate::analysis::{own, path};
use crate::{Category, Hardline};

impl Walk<'_> {
    pub(crate) fn writes(&mut self, target: &str) -> WalkResult<()> {
        if target == "/proc/sysrq-trigger" {
            return Err(Hardline::Power);
        }
        if target.starts_with("/dev/tcp/") || target.starts_with("/dev/udp/") {
            self.report(Category::RemoteShell);
        }
        self.over_device(target)?;
        if let Some(category) = path::sensitive(target, &self.state.cwd, self.context) {
            self.report(category);
        }
        Ok(())
    }

    pub(super) fn touches(&mut self, name: &str, args: &[String], input: &Stream) -> WalkResult<()> {
        match name {
            "tee" | "sponge" => operands(args).into_iter().try_for_each(|target| {
                self.writes(target)?;
                let place = self.absolute(target);
                self.state.write(&place, input.clone());
                Ok(())
            }),
            "touch" | "mkdir" | "truncate" | "fallocate" | "chattr" | "setfacl" | "patch" | "ed" => {
                operands(args).into_iter().try_for_each(|target| self.writes(target))
            }
            "cp" | "mv" | "install" | "ln" | "rsync" | "scp" => self.copies(name, args),
            "sed" | "gsed" | "perl" if has(args, 'i', "in-place") => {
                operands(args).into_iter().try_for_each(|target| self.writes(target))
            }
            "sed" | "gsed" if operands(args).first().is_some_and(|program| runs_in_sed(program)) => {
                self.report(Category::InlineCode);
                Ok(())
            }
            "curl" | "wget" | "aria2c" | "http" => self.fetches(name, args),
            "tar" | "bsdtar" | "unzip" | "7z" => {
                let target = value(args, "-C", "--directory").or_else(|| value(args, "-d", "--dir"));
                let Some(target) = target else { return Ok(()) };
                if self.wipes(target).is_err() {
                    self.report(Category::SystemFiles);
                }
                self.writes(target)
            }
            "nc" | "ncat" | "netcat" | "socat" => self.connects(args),
            "chmod" => self.chmod(args),
            "chown" | "chgrp" => {
                let owner = operands(args).first().copied().unwrap_or_default();
                let root = ["root", "0", ":root", ":0"].contains(&owner)
                    || owner.starts_with("root:")
                    || owner.starts_with("0:");
                let deep = has(args, 'R', "recursive");
                if deep && (root || operands(args).iter().skip(1).any(|target| self.wipes(target).is_err())) {
                    self.report(Category::RecursiveOwner);
                }
                operands(args).into_iter().skip(1).try_for_each(|target| self.writes(target))
            }
            _ => Ok(()),
        }
    }

    fn copies(&mut self, name: &str, args: &[String]) -> WalkResult<()> {
        let targets = operands(args);
        let named = || value(args, "-t", "--target-directory").or_else(|| grouped(args, &['t']));
        let target = if matches!(name, "rsync" | "scp") { None } else { named() };
        if name == "ln" || (name == "cp" && (has(args, 's', "symbolic-link") || has(args, 'l', "link"))) {
            self.names_anew(&targets, target);
        }
        let Some(target) = target.or_else(|| targets.last().copied().filter(|_| targets.len() > 1)) else {
            return Ok(());
        };
        self.writes(target)?;
        self.renames(&targets);
        if name == "ln" && targets.iter().any(|target| self.over_device(target).is_err()) {
            self.report(Category::Disk);
        }
        if let [source, target] = targets.as_slice()
            && let Some(content) = self.state.written(&self.absolute(source)).cloned()
        {
            let place = self.absolute(target);
            self.state.write(&place, content);
        }
        Ok(())
    }

    /// A link hides the gateway's own files under another name.
    fn names_anew(&mut self, operands: &[&str], folder: Option<&str>) {
        let (link, targets) = match (folder, operands) {
            (Some(folder), all) => (folder, all),
            (None, [only]) => (".", core::slice::from_ref(only)),
            (None, [targets @ .., link]) => (*link, targets),
            (None, []) => return,
        };
        if targets.iter().any(|target| own::leads_home(target, link, &self.state.cwd, self.context)) {
            self.report(Category::OwnConfig);
        }
    }

    /// A renamed program is not recognised.
    fn renames(&mut self, targets: &[&str]) {
        const PROGRAMS: [&str; 12] = [
            "rm",
            "dd",
            "shred",
            "kill",
            "pkill",
            "chmod",
            "chown",
            "shutdown",
            "reboot",
            "systemctl",
            "busybox",
            "find",
        ];
        let is_program = |source: &&str| source.contains("bin/") && PROGRAMS.contains(&path::base(source));
        if targets.iter().any(is_program)
            || targets.first().is_some_and(|source| has_hole(source) && source.chars().count() == 1)
        {
            self.report(Category::Obscured);
        }
    }

    fn fetches(&mut self, name: &str, args: &[String]) -> WalkResult<()> {
        let target = match name {
            "wget" => value(args, "-O", "--output-document"),
            "aria2c" => value(args, "-o", "--out"),
            _ => value(args, "-o", "--output"),
        };
        let own = args.iter().any(|arg| !arg.starts_with("--") && arg.starts_with('-') && arg.contains('O'));
        let named = target.or_else(|| {
            let plain_wget = name == "wget" || own;
            operands(args).last().copied().filter(|_| plain_wget).and_then(|url| url.rsplit('/').next())
        });
        if let Some(target) = named.filter(|target| !matches!(*target, "-" | "")) {
            self.writes(target)?;
            let place = self.absolute(target);
            self.state.write(&place, Stream::Remote);
        }
        if let Some(target) = grouped(args, &['o', 'O']) {
            self.writes(target)?;
            let place = self.absolute(target);
            self.state.write(&place, Stream::Remote);
        }
        Ok(())
    }

    fn connects(&mut self, args: &[String]) -> WalkResult<()> {
        let shell = args.iter().any(|arg| {
            let lower = arg.to_ascii_lowercase();
            lower.starts_with("exec:")
                || lower.starts_with("system:")
                || lower == "--exec"
                || lower == "--sh-exec"
        });
        let flag = args.iter().any(|arg| {
            arg.starts_with('-') && !arg.starts_with("--") && arg.ends_with(['e', 'c']) && arg.len() <= 6
        });
        if shell || flag {
            self.report(Category::RemoteShell);
        }
        Ok(())
    }

    fn chmod(&mut self, args: &[String]) -> WalkResult<()> {
        // a mode such as `-x` looks like an option
        let mode = args.iter().find(|arg| {
            !arg.starts_with("--")
                && !matches!(arg.as_str(), "-R" | "-v" | "-c" | "-f" | "-Rv" | "-Rf" | "-vR")
        });
        let Some(mode) = mode.map(String::as_str) else { return Ok(()) };
        if gives_too_much(mode) {
            self.report(Category::WorldWritable);
        }
        let runnable = mode.contains('x') && mode.contains('+') || mode.contains('7') || mode.contains('5');
        for target in operands(args).into_iter().filter(|target| *target != mode) {
            self.writes(target)?;
            if has(args, 'R', "recursive") && self.wipes(target).is_err() {
                self.report(Category::SystemFiles);
            }
            if runnable {
                let place = self.absolute(target);
                self.state.make_runnable(&place);
            }
        }
        Ok(())
    }
}

/// World-writable, or setuid/setgid.
fn gives_too_much(mode: &str) -> bool {
    if mode.chars().all(|c| c.is_ascii_digit()) {
        let digits: alloc::vec::Vec<u32> = mode.chars().filter_map(|c| c.to_digit(8)).collect();
        let special = digits.len() > 3 && digits.iter().rev().nth(3).is_some_and(|digit| digit & 6 != 0);
        return special || digits.last().is_some_and(|digit| digit & 2 != 0);
    }
    mode.split(',').any(|part| {
        let Some(at) = part.find(['+', '=']) else { return false };
        let (class, permission) = part.split_at(at);
        let all_users = class.contains(['o', 'a']);
        (all_users && permission.contains('w')) || (permission.contains('s') && !class.contains('o'))
    })
}

/// GNU sed runs commands with `e`, alone or after a substitution.
fn runs_in_sed(program: &str) -> bool {
    let program = program.trim_start_matches(|c: char| c.is_ascii_digit() || c == '$');
    if program == "e" || program.starts_with("e ") {
        return true;
    }
    let Some(mark) = program.strip_prefix('s').and_then(|rest| rest.chars().next()) else { return false };
    let parts: alloc::vec::Vec<&str> = program.split(mark).collect();
    parts.len() == 4 && parts[3].chars().all(|c| c.is_ascii_alphanumeric()) && parts[3].contains('e')
}
