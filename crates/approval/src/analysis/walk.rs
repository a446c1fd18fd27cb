//! Walks a script as the shell would run it, without effects.
//!
//! Every branch counts as taken and every loop as run. A forbidden command ends the walk; all categories are collected.
//! The number of steps is bounded.

use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::shell::{self, Assign, Chain, Kind, ParseError, Redirect, Script, ShellCommand};
use super::state::{State, Stream};
use super::text::{DECODED, REMOTE, UNKNOWN, has_hole};
use crate::{Category, Context, Hardline};

pub(crate) type WalkResult<T> = Result<T, Hardline>;

const MAX_STEPS: u32 = 25_000;
/// Maximum nesting of functions, `eval` and `sh -c`.
const MAX_NESTING: u32 = 16;
/// Maximum loop iterations that are walked one by one.
const MAX_ITERATIONS: usize = 16;

pub(crate) struct Walk<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) state: State,
    pub(crate) found: BTreeSet<Category>,
    /// This command, or one that feeds it, names the gateway.
    pub(crate) names_gateway: bool,
    pub(crate) steps: u32,
    depth: u32,
    /// Number of enclosing pipes and background jobs.
    forks: u32,
    /// The call stack of functions, with the forks at each call.
    calls: Vec<(Rc<Script>, u32)>,
}

/// Returns the categories of a command line.
pub(crate) fn walk_command(text: &str, context: &Context) -> WalkResult<BTreeSet<Category>> {
    let mut walk = Walk::new(context);
    walk.code(text)?;
    if walk.state.overflowed {
        walk.found.insert(Category::Unreadable);
    }
    Ok(walk.found)
}

impl<'a> Walk<'a> {
    fn new(context: &'a Context<'a>) -> Self {
        let mut state = State::default();
        state.cwd.push_str(context.cwd);
        let user = context.home.rsplit('/').next().unwrap_or_default();
        let known = [
            ("HOME", context.home),
            ("USER", user),
            ("LOGNAME", user),
            ("SHELL", "/bin/bash"),
            ("PATH", "/usr/bin:/bin"),
            ("IFS", " \t\n"),
        ];
        for (name, value) in known {
            if !value.is_empty() {
                state.set(name, Vec::from([String::from(value)]));
            }
        }
        // commands are children of the gateway or of its children
        if let Some(pid) = context.gateway_pids.first() {
            state.set("PPID", Vec::from([pid.to_string()]));
        }
        Self {
            context,
            state,
            found: BTreeSet::new(),
            names_gateway: false,
            steps: 0,
            depth: 0,
            forks: 0,
            calls: Vec::new(),
        }
    }

    pub(crate) fn spend(&mut self, length: usize) -> WalkResult<()> {
        self.steps += 1 + u32::try_from(length / 64).unwrap_or(MAX_STEPS);
        if self.steps > MAX_STEPS { Err(Hardline::TooLarge) } else { Ok(()) }
    }

    pub(crate) fn report(&mut self, category: Category) {
        self.found.insert(category);
    }

    /// Adds the category of code with unknown parts.
    pub(crate) fn report_holes(&mut self, text: &str) {
        match Stream::of_text(text) {
            Stream::Known(_) => {}
            Stream::Unknown => self.report(Category::Obscured),
            Stream::Decoded => self.report(Category::DecodedCode),
            Stream::Remote => self.report(Category::RemoteCode),
        }
    }

    /// Walks text that the shell runs as code.
    pub(crate) fn code(&mut self, text: &str) -> WalkResult<Stream> {
        self.spend(text.len())?;
        self.report_holes(text);
        self.nested(|walk| {
            let program = shell::parse(text, 0);
            let input = if walk.context.stdin_open { Stream::Unknown } else { Stream::empty() };
            let output = walk.script(&program.script, &input)?;
            match program.error {
                None => {}
                Some(ParseError::TooDeep) => return Err(Hardline::TooLarge),
                Some(ParseError::Syntax) => {
                    walk.report(Category::Unreadable);
                    walk.walk_words(text)?;
                }
            }
            Ok(output)
        })
    }

    fn nested<T>(&mut self, visit: impl FnOnce(&mut Self) -> WalkResult<T>) -> WalkResult<T> {
        if self.depth >= MAX_NESTING {
            return Err(Hardline::TooLarge);
        }
        self.depth += 1;
        let visited = visit(self)?;
        self.depth -= 1;
        Ok(visited)
    }

    /// Fallback for unparsable text: every run of words counts as a command.
    fn walk_words(&mut self, text: &str) -> WalkResult<()> {
        for part in text.split([';', '|', '&', '\n', '(', ')', '{', '}', '`']) {
            let words: Vec<String> = part
                .split_whitespace()
                .map(|word| word.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect())
                .filter(|word: &String| !word.is_empty())
                .collect();
            if !words.is_empty() {
                self.run(&words, &Stream::Unknown)?;
            }
        }
        Ok(())
    }

    pub(super) fn script(&mut self, script: &Script, input: &Stream) -> WalkResult<Stream> {
        let named = self.names_gateway;
        let mut any = named;
        let mut output = Stream::empty();
        for chain in &script.0 {
            self.names_gateway = named;
            output = output.then(self.chain(chain, input)?);
            any |= self.names_gateway;
        }
        self.names_gateway = any;
        Ok(output)
    }

    fn chain(&mut self, chain: &Chain, input: &Stream) -> WalkResult<Stream> {
        if chain.background {
            self.forks += 1;
            let output = self.isolated(|walk| walk.pipelines(&chain.pipelines, input));
            self.forks -= 1;
            return output;
        }
        self.pipelines(&chain.pipelines, input)
    }

    fn pipelines(&mut self, pipelines: &[Vec<ShellCommand>], input: &Stream) -> WalkResult<Stream> {
        let mut output = Stream::empty();
        let mut sure = None;
        for stages in pipelines {
            output = output.then(self.pipeline(stages, input)?);
            sure.get_or_insert_with(|| self.state.clone());
        }
        if let (Some(sure), true) = (sure, pipelines.len() > 1) {
            self.state = core::mem::take(&mut self.state).merged(&sure);
        }
        Ok(output)
    }

    fn pipeline(&mut self, stages: &[ShellCommand], input: &Stream) -> WalkResult<Stream> {
        if let [only] = stages {
            return self.command(only, input);
        }
        self.forks += 1;
        let mut stream = input.clone();
        for stage in stages {
            stream = self.isolated(|walk| walk.command(stage, &stream))?;
        }
        self.forks -= 1;
        Ok(stream)
    }

    /// Walks a subshell, whose variables do not persist.
    pub(crate) fn isolated<T>(&mut self, visit: impl FnOnce(&mut Self) -> WalkResult<T>) -> WalkResult<T> {
        let outer = self.state.clone();
        let visited = visit(self)?;
        self.state = State::after_subshell(core::mem::take(&mut self.state), outer);
        Ok(visited)
    }

    fn command(&mut self, command: &ShellCommand, input: &Stream) -> WalkResult<Stream> {
        self.spend(0)?;
        let mut input = input.clone();
        let mut targets = Vec::new();
        for redirect in &command.redirects {
            match redirect {
                Redirect::Read(word) => {
                    let path = self.text(word)?;
                    self.names_gateway |= self.is_gateway(&path);
                    input = self.content(&path);
                }
                Redirect::Document(body) => {
                    let text =
                        body.get().map_or_else(|| Ok(String::from(UNKNOWN)), |word| self.text(word))?;
                    input = Stream::of_text(&text);
                }
                Redirect::Text(word) => input = Stream::of_text(&self.text(word)?),
                Redirect::Write(word) => {
                    let path = self.text(word)?;
                    self.writes(&path)?;
                    targets.push(self.absolute(&path));
                }
            }
        }
        let output = self.kind(&command.kind, &input)?;
        for target in targets {
            self.state.write(&target, output.clone());
        }
        Ok(output)
    }

    fn kind(&mut self, kind: &Kind, input: &Stream) -> WalkResult<Stream> {
        match kind {
            Kind::Simple { assigns, words } => {
                let mut fields = Vec::new();
                for word in words {
                    fields.extend(self.fields(word)?);
                }
                self.simple(assigns, &fields, input)
            }
            Kind::Subshell(script) => self.isolated(|walk| walk.script(script, input)),
            Kind::Group(script) => self.script(script, input),
            Kind::Branches(words, branches) => {
                for word in words {
                    self.text(word)?;
                }
                let before = self.state.clone();
                let mut output = Stream::empty();
                for branch in branches {
                    output = output.then(self.script(branch, input)?.filtered());
                }
                self.state = core::mem::take(&mut self.state).merged(&before);
                Ok(output)
            }
            Kind::For { name, words, body } => self.for_loop(name, words, body, input),
            Kind::Function { name, body } => {
                self.state.define(name, Rc::clone(body));
                // a later command may call it with any arguments
                let unknown = Vec::from([String::from(UNKNOWN)]);
                self.isolated(|walk| walk.call(body, unknown, input))?;
                Ok(Stream::empty())
            }
        }
    }

    fn for_loop(
        &mut self,
        name: &str,
        words: &[shell::ShellWord],
        body: &Script,
        input: &Stream,
    ) -> WalkResult<Stream> {
        let mut values = Vec::new();
        for word in words {
            values.extend(self.fields(word)?);
        }
        if values.len() > MAX_ITERATIONS || words.is_empty() {
            values.truncate(MAX_ITERATIONS);
            values.push(String::from(UNKNOWN));
        }
        let mut output = Stream::empty();
        for value in values {
            self.state.set(name, Vec::from([value]));
            output = output.then(self.script(body, input)?);
        }
        Ok(output)
    }

    fn simple(&mut self, assigns: &[Assign], fields: &[String], input: &Stream) -> WalkResult<Stream> {
        let mut before = Vec::new();
        for assign in assigns {
            let mut values = Vec::new();
            for word in &assign.value {
                if assign.value.len() == 1 {
                    values.push(self.text(word)?)
                } else {
                    values.extend(self.fields(word)?)
                }
            }
            let old = self.state.get(&assign.name).cloned();
            if assign.append {
                let mut all = old.clone().unwrap_or_default();
                match (all.as_mut_slice(), values.as_slice()) {
                    ([only], [more]) => only.push_str(more),
                    _ => all.extend(values.iter().cloned()),
                }
                values = all;
            }
            self.check_assignment(&assign.name, &values.join(" "))?;
            self.state.set(&assign.name, values);
            before.push((assign.name.as_str(), old));
        }
        if fields.is_empty() {
            return Ok(Stream::empty());
        }
        let output = self.run(fields, input)?;
        for (name, old) in before.into_iter().rev() {
            match old {
                Some(values) => self.state.set(name, values),
                None => self.state.unset(name),
            }
        }
        Ok(output)
    }

    /// Variables whose value other programs run as a command.
    pub(crate) fn check_assignment(&mut self, name: &str, value: &str) -> WalkResult<()> {
        const COMMANDS: [&str; 14] = [
            "PROMPT_COMMAND",
            "BASH_ENV",
            "ENV",
            "EDITOR",
            "VISUAL",
            "PAGER",
            "MANPAGER",
            "GIT_PAGER",
            "GIT_EDITOR",
            "LESSOPEN",
            "GIT_SEQUENCE_EDITOR",
            "GIT_SSH_COMMAND",
            "GIT_EXTERNAL_DIFF",
            "SSH_ASKPASS",
        ];
        // a function exported in the environment
        if value.starts_with("()") {
            self.isolated(|walk| walk.code(&alloc::format!("handed_on{value}")))?;
        }
        if COMMANDS.contains(&name) && !value.is_empty() && !has_hole(value) {
            self.isolated(|walk| walk.code(value))?;
        }
        Ok(())
    }

    /// Calls a function. Recursion through a pipe or in the background is a fork bomb.
    pub(super) fn call(
        &mut self,
        body: &Rc<Script>,
        args: Vec<String>,
        input: &Stream,
    ) -> WalkResult<Stream> {
        let mut inside = self.calls.iter().filter(|(known, _)| Rc::ptr_eq(known, body));
        if inside.clone().any(|(_, forks)| self.forks > *forks) {
            return Err(Hardline::ForkBomb);
        }
        // at most one recursive call is walked
        if inside.nth(1).is_some() {
            return Ok(Stream::Unknown);
        }
        self.calls.push((Rc::clone(body), self.forks));
        let outer = self.state.get("@").cloned();
        self.state.set("@", args);
        let output = self.nested(|walk| walk.script(body, input))?;
        match outer {
            Some(args) => self.state.set("@", args),
            None => self.state.unset("@"),
        }
        self.calls.pop();
        Ok(output)
    }

    pub(crate) fn content(&self, path: &str) -> Stream {
        match path {
            "/dev/null" => Stream::empty(),
            path if path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/") => Stream::Remote,
            path if path.contains(REMOTE) => Stream::Remote,
            path if path.contains(DECODED) => Stream::Decoded,
            path => self.state.written(&self.absolute(path)).cloned().unwrap_or(Stream::Unknown),
        }
    }

    /// The absolute path, if the working directory is known.
    pub(crate) fn absolute(&self, path: &str) -> String {
        let resolved = super::path::resolve(path, &self.state.cwd);
        resolved.unwrap_or_else(|| String::from(path.strip_prefix("./").unwrap_or(path)))
    }
}
