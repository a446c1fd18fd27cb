//! Going through a script as the shell would, without doing anything.
//!
//! Every branch counts as taken, every loop as run. What never runs ends the walk at once; everything else
//! is collected. Each step costs, so no input keeps us for long.

use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::shell::{self, Assign, Chain, Command, Kind, Redirect, Script, Trouble};
use super::state::{State, Stream};
use super::text::{DECODED, REMOTE, UNKNOWN, has_hole};
use crate::{Category, Context, Hardline};

pub(crate) type Walked<T> = Result<T, Hardline>;

/// Commands, and everything that takes as long as one.
const MOST_STEPS: u32 = 25_000;
/// Scripts in scripts: functions, `eval`, `sh -c`.
const MOST_NESTING: u32 = 16;
/// Rounds of a loop that are looked at one by one.
const MOST_ROUNDS: usize = 16;

pub(crate) struct Walk<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) state: State,
    pub(crate) found: BTreeSet<Category>,
    /// The gateway was named by this command or by one that feeds it.
    pub(crate) names_gateway: bool,
    pub(crate) steps: u32,
    depth: u32,
    /// How many pipes and background jobs we are inside of.
    forks: u32,
    /// Functions that are being called, with the forks at that moment.
    calls: Vec<(Rc<Script>, u32)>,
}

/// Everything a command line would do, short of what never runs.
pub(crate) fn read(text: &str, context: &Context) -> Walked<BTreeSet<Category>> {
    let mut walk = Walk::new(context);
    walk.code(text)?;
    if walk.state.crowded {
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
        // commands are started by the gateway, or by somebody it started
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

    pub(crate) fn spend(&mut self, length: usize) -> Walked<()> {
        self.steps += 1 + u32::try_from(length / 64).unwrap_or(MOST_STEPS);
        if self.steps > MOST_STEPS { Err(Hardline::TooLarge) } else { Ok(()) }
    }

    pub(crate) fn ask(&mut self, category: Category) {
        self.found.insert(category);
    }

    /// Something is run whose text has parts that are not known.
    pub(crate) fn ask_about_holes(&mut self, text: &str) {
        match Stream::of_text(text) {
            Stream::Known(_) => {}
            Stream::Unknown => self.ask(Category::Obscured),
            Stream::Decoded => self.ask(Category::DecodedCode),
            Stream::Remote => self.ask(Category::RemoteCode),
        }
    }

    /// Text that the shell will run.
    pub(crate) fn code(&mut self, text: &str) -> Walked<Stream> {
        self.spend(text.len())?;
        self.ask_about_holes(text);
        self.nested(|walk| {
            let program = shell::parse(text, 0);
            let input = if walk.context.fed { Stream::Unknown } else { Stream::nothing() };
            let output = walk.script(&program.script, &input)?;
            match program.trouble {
                None => {}
                Some(Trouble::TooDeep) => return Err(Hardline::TooLarge),
                Some(Trouble::Syntax) => {
                    walk.ask(Category::Unreadable);
                    walk.crude(text)?;
                }
            }
            Ok(output)
        })
    }

    fn nested<T>(&mut self, visit: impl FnOnce(&mut Self) -> Walked<T>) -> Walked<T> {
        if self.depth >= MOST_NESTING {
            return Err(Hardline::TooLarge);
        }
        self.depth += 1;
        let visited = visit(self)?;
        self.depth -= 1;
        Ok(visited)
    }

    /// For text that is no grammar we know: every run of words is taken for a command.
    fn crude(&mut self, text: &str) -> Walked<()> {
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

    pub(super) fn script(&mut self, script: &Script, input: &Stream) -> Walked<Stream> {
        let named = self.names_gateway;
        let mut any = named;
        let mut output = Stream::nothing();
        for chain in &script.0 {
            self.names_gateway = named;
            output = output.then(self.chain(chain, input)?);
            any |= self.names_gateway;
        }
        self.names_gateway = any;
        Ok(output)
    }

    fn chain(&mut self, chain: &Chain, input: &Stream) -> Walked<Stream> {
        if chain.background {
            self.forks += 1;
            let output = self.isolated(|walk| walk.links(&chain.pipelines, input));
            self.forks -= 1;
            return output;
        }
        self.links(&chain.pipelines, input)
    }

    fn links(&mut self, pipelines: &[Vec<Command>], input: &Stream) -> Walked<Stream> {
        let mut output = Stream::nothing();
        let mut sure = None;
        for stages in pipelines {
            output = output.then(self.pipeline(stages, input)?);
            sure.get_or_insert_with(|| self.state.clone());
        }
        if let (Some(sure), true) = (sure, pipelines.len() > 1) {
            self.state = core::mem::take(&mut self.state).joined(&sure);
        }
        Ok(output)
    }

    fn pipeline(&mut self, stages: &[Command], input: &Stream) -> Walked<Stream> {
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

    /// In a process of its own: variables do not come back.
    pub(crate) fn isolated<T>(&mut self, visit: impl FnOnce(&mut Self) -> Walked<T>) -> Walked<T> {
        let outer = self.state.clone();
        let visited = visit(self)?;
        self.state = State::left(core::mem::take(&mut self.state), outer);
        Ok(visited)
    }

    fn command(&mut self, command: &Command, input: &Stream) -> Walked<Stream> {
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
                    targets.push(self.place(&path));
                }
            }
        }
        let output = self.kind(&command.kind, &input)?;
        for target in targets {
            self.state.write(&target, output.clone());
        }
        Ok(output)
    }

    fn kind(&mut self, kind: &Kind, input: &Stream) -> Walked<Stream> {
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
                let mut output = Stream::nothing();
                for branch in branches {
                    output = output.then(self.script(branch, input)?.filtered());
                }
                self.state = core::mem::take(&mut self.state).joined(&before);
                Ok(output)
            }
            Kind::For { name, words, body } => self.rounds(name, words, body, input),
            Kind::Function { name, body } => {
                self.state.define(name, Rc::clone(body));
                // it may be called from a later command, with anything
                let unknown = Vec::from([String::from(UNKNOWN)]);
                self.isolated(|walk| walk.call(body, unknown, input))?;
                Ok(Stream::nothing())
            }
        }
    }

    fn rounds(&mut self, name: &str, words: &[shell::Word], body: &Script, input: &Stream) -> Walked<Stream> {
        let mut values = Vec::new();
        for word in words {
            values.extend(self.fields(word)?);
        }
        if values.len() > MOST_ROUNDS || words.is_empty() {
            values.truncate(MOST_ROUNDS);
            values.push(String::from(UNKNOWN));
        }
        let mut output = Stream::nothing();
        for value in values {
            self.state.set(name, Vec::from([value]));
            output = output.then(self.script(body, input)?);
        }
        Ok(output)
    }

    fn simple(&mut self, assigns: &[Assign], fields: &[String], input: &Stream) -> Walked<Stream> {
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
            self.assigned(&assign.name, &values.join(" "))?;
            self.state.set(&assign.name, values);
            before.push((assign.name.as_str(), old));
        }
        if fields.is_empty() {
            return Ok(Stream::nothing());
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

    /// Some variables are programs that others will run.
    pub(crate) fn assigned(&mut self, name: &str, value: &str) -> Walked<()> {
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
        // a function handed on in the environment
        if value.starts_with("()") {
            self.isolated(|walk| walk.code(&alloc::format!("handed_on{value}")))?;
        }
        if COMMANDS.contains(&name) && !value.is_empty() && !has_hole(value) {
            self.isolated(|walk| walk.code(value))?;
        }
        Ok(())
    }

    /// Calls a function. One that calls itself through a pipe or in the background grows without end.
    pub(super) fn call(&mut self, body: &Rc<Script>, args: Vec<String>, input: &Stream) -> Walked<Stream> {
        let mut inside = self.calls.iter().filter(|(known, _)| Rc::ptr_eq(known, body));
        if inside.clone().any(|(_, forks)| self.forks > *forks) {
            return Err(Hardline::ForkBomb);
        }
        // once more with other arguments, and that is that
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

    /// What stands in a file.
    pub(crate) fn content(&self, path: &str) -> Stream {
        match path {
            "/dev/null" => Stream::nothing(),
            path if path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/") => Stream::Remote,
            path if path.contains(REMOTE) => Stream::Remote,
            path if path.contains(DECODED) => Stream::Decoded,
            path => self.state.written(&self.place(path)).cloned().unwrap_or(Stream::Unknown),
        }
    }

    /// A path as it is remembered: absolute where that is possible.
    pub(crate) fn place(&self, path: &str) -> String {
        let resolved = super::path::resolve(path, &self.state.cwd);
        resolved.unwrap_or_else(|| String::from(path.strip_prefix("./").unwrap_or(path)))
    }
}
