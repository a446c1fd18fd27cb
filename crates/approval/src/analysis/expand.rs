//! Expansion of shell words: quotes, variables, braces and substitutions.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::shell::{Op, Piece, ShellWord};
use super::state::Stream;
use super::text::{UNKNOWN, has_hole};
use super::walk::{Walk, WalkResult};

const MAX_ALTERNATIVES: usize = 64;

impl Walk<'_> {
    pub(super) fn fields(&mut self, word: &ShellWord) -> WalkResult<Vec<String>> {
        let mut out = Fields::default();
        for word in braces(word) {
            self.expand(&word, &mut out)?;
            out.end();
        }
        self.spend(out.done.iter().map(String::len).sum())?;
        Ok(out.done)
    }

    /// Expands a word without field splitting: a redirection, a value, a document.
    pub(super) fn text(&mut self, word: &ShellWord) -> WalkResult<String> {
        let mut out = Fields::default();
        self.expand(word, &mut out)?;
        out.end();
        let text = out.done.join(" ");
        self.spend(text.len())?;
        Ok(text)
    }

    fn expand(&mut self, word: &ShellWord, out: &mut Fields) -> WalkResult<()> {
        for (index, piece) in word.iter().enumerate() {
            match piece {
                Piece::Text { text, quoted: false } if index == 0 => out.push(&self.tilde(text)),
                Piece::Text { text, .. } => out.push(text),
                Piece::Parameter { name, op, quoted } => {
                    let values = self.parameter(name, op)?;
                    self.spend(values.iter().map(String::len).sum())?;
                    if *quoted && name != "@" && !name.ends_with("[@]") {
                        out.push(&values.join(" "));
                    } else if *quoted {
                        out.list(&values);
                    } else {
                        let separators =
                            self.state.get("IFS").map_or_else(String::new, |values| values.join(""));
                        values.iter().for_each(|value| out.split(value, &separators));
                    }
                }
                Piece::Output { script, quoted } => {
                    let output = self.isolated(|walk| walk.script(script, &Stream::empty()))?.into_text();
                    let output = output.trim_end_matches('\n');
                    self.spend(output.len())?;
                    if *quoted { out.push(output) } else { out.split(output, " \t\n") }
                }
                Piece::Source(script) => {
                    let output = self.isolated(|walk| walk.script(script, &Stream::empty()))?;
                    let path = format!("/dev/fd/{}", 100 + self.steps);
                    self.state.write(&path, output);
                    out.push(&path);
                }
                Piece::Sink(script) => {
                    self.isolated(|walk| walk.script(script, &Stream::Unknown))?;
                    out.push("/dev/fd/99");
                }
                Piece::Computed(words) => {
                    for word in words {
                        self.text(word)?;
                    }
                    out.push(UNKNOWN.encode_utf8(&mut [0; 4]));
                }
            }
        }
        Ok(())
    }

    fn tilde(&self, text: &str) -> String {
        let Some(rest) = text.strip_prefix('~') else { return String::from(text) };
        let (user, rest) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        match user {
            "" => format!("{}{rest}", self.context.home),
            "+" => format!("{}{rest}", self.state.cwd),
            "root" => format!("/root{rest}"),
            user if user.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
                format!("/home/{user}{rest}")
            }
            _ => String::from(text),
        }
    }

    fn parameter(&mut self, name: &str, op: &Op) -> WalkResult<Vec<String>> {
        let value = self.value(name);
        let known = value.as_ref().is_some_and(|values| !values.iter().any(|value| has_hole(value)));
        let or_unknown =
            |value: Option<Vec<String>>| value.unwrap_or_else(|| Vec::from([String::from(UNKNOWN)]));
        Ok(match op {
            Op::Plain => or_unknown(value),
            Op::Otherwise(word) => {
                let other = self.text(word)?;
                let set = value.as_ref().is_some_and(|values| values.iter().any(|value| !value.is_empty()));
                if set && known { or_unknown(value) } else { Vec::from([other]) }
            }
            Op::Instead(word) => Vec::from([self.text(word)?]),
            Op::Slice(word) => {
                let range = self.text(word)?;
                let cut = value.filter(|_| known).and_then(|values| slice(&values.join(" "), &range));
                or_unknown(cut.map(|text| Vec::from([text])))
            }
            Op::Trim { sign, longest, pattern } => {
                let pattern = self.text(pattern)?;
                let value = value.filter(|_| known).map(|values| values.join(" "));
                or_unknown(
                    value
                        .and_then(|value| trimmed(&value, *sign, *longest, &pattern))
                        .map(|text| Vec::from([text])),
                )
            }
            Op::Lower => {
                or_unknown(value.map(|values| values.iter().map(|value| value.to_lowercase()).collect()))
            }
            Op::Upper => {
                or_unknown(value.map(|values| values.iter().map(|value| value.to_uppercase()).collect()))
            }
            Op::Indirect => {
                or_unknown(value.filter(|_| known).and_then(|values| self.value(&values.join(" "))))
            }
            Op::Other(word) => {
                self.text(word)?;
                or_unknown(None)
            }
        })
    }

    fn value(&self, name: &str) -> Option<Vec<String>> {
        match name.strip_suffix("[@]").unwrap_or(name) {
            "@" | "*" => Some(self.state.get("@").cloned().unwrap_or_default()),
            "0" => Some(Vec::from([String::from("bash")])),
            "PWD" => (!self.state.cwd.is_empty()).then(|| Vec::from([self.state.cwd.clone()])),
            name => match name.parse::<usize>() {
                Ok(index) => {
                    let args = self.state.get("@").cloned().unwrap_or_default();
                    if args.iter().any(|arg| has_hole(arg)) && index > args.len() {
                        return None;
                    }
                    Some(args.into_iter().skip(index - 1).take(1).collect())
                }
                Err(_not_a_number) => self.state.get(name).cloned(),
            },
        }
    }
}

#[derive(Default)]
struct Fields {
    done: Vec<String>,
    current: Option<String>,
}

impl Fields {
    fn push(&mut self, text: &str) {
        self.current.get_or_insert_default().push_str(text);
    }

    fn end(&mut self) {
        self.done.extend(self.current.take());
    }

    /// Appends an unquoted value, split at separators.
    fn split(&mut self, value: &str, separators: &str) {
        if value.starts_with(|c| separators.contains(c)) {
            self.end();
        }
        let mut parts = value.split(|c| separators.contains(c)).filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            self.push(part);
            if parts.peek().is_some() {
                self.end();
            }
        }
        if value.ends_with(|c| separators.contains(c)) {
            self.end();
        }
    }

    /// `"$@"`
    fn list(&mut self, values: &[String]) {
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                self.end();
            }
            self.push(value);
        }
    }
}

fn slice(text: &str, range: &str) -> Option<String> {
    let (start, length) = range.split_once(':').unwrap_or((range, ""));
    let count = text.chars().count();
    let start: isize = start.trim().parse().ok()?;
    let start = if start < 0 { count.checked_sub(start.unsigned_abs())? } else { start.unsigned_abs() };
    let length: usize = if length.is_empty() { count } else { length.trim().parse().ok()? };
    Some(text.chars().skip(start).take(length).collect())
}

/// Removes a match from the front (`#`) or the back (`%`).
fn trimmed(text: &str, sign: char, longest: bool, pattern: &str) -> Option<String> {
    const MAX_BYTES: usize = 256;
    if text.len() > MAX_BYTES || pattern.len() > MAX_BYTES || has_hole(pattern) {
        return None;
    }
    let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let fits = |at: &&usize| {
        let (front, back) = text.split_at(**at);
        super::text::matches(pattern, if sign == '#' { front } else { back })
    };
    // the longest prefix ends last, the longest suffix starts first
    let cut = if (sign == '#') == longest { cuts.iter().rev().find(fits) } else { cuts.iter().find(fits) };
    let (front, back) = text.split_at(*cut.unwrap_or(if sign == '#' { &0 } else { cuts.last()? }));
    Some(String::from(if sign == '#' { back } else { front }))
}

/// Expands `{a,b}` to two words. Ranges and too many alternatives become unknown.
fn braces(word: &ShellWord) -> Vec<ShellWord> {
    let open = |piece: &Piece| matches!(piece, Piece::Text { text, quoted: false } if text.contains('{'));
    if !word.iter().any(open) {
        return Vec::from([word.clone()]);
    }
    let mut atoms = Vec::new();
    for piece in word {
        match piece {
            Piece::Text { text, quoted: false } => atoms.extend(text.chars().map(Atom::Char)),
            other => atoms.push(Atom::Piece(other)),
        }
    }
    let mut left = MAX_ALTERNATIVES;
    let words = alternatives(&atoms, &mut left, 0);
    words.into_iter().map(|atoms| join_atoms(&atoms)).collect()
}

#[derive(Clone)]
enum Atom<'a> {
    Char(char),
    Piece(&'a Piece),
}

fn join_atoms(atoms: &[Atom]) -> ShellWord {
    let mut word = ShellWord::new();
    for atom in atoms {
        match (atom, word.last_mut()) {
            (Atom::Char(c), Some(Piece::Text { text, quoted: false })) => text.push(*c),
            (Atom::Char(c), _) => word.push(Piece::Text { text: String::from(*c), quoted: false }),
            (Atom::Piece(piece), _) => word.push((*piece).clone()),
        }
    }
    word
}

fn alternatives<'a>(atoms: &[Atom<'a>], left: &mut usize, depth: usize) -> Vec<Vec<Atom<'a>>> {
    let Some((open, commas, close)) = first_brace(atoms) else { return Vec::from([atoms.to_vec()]) };
    if *left < commas.len() + 1 || depth > 8 {
        return Vec::from([Vec::from([Atom::Char(UNKNOWN)])]);
    }
    *left -= commas.len() + 1;
    let mut words = Vec::new();
    let mut start = open + 1;
    for end in commas.into_iter().chain([close]) {
        let whole: Vec<Atom> = [&atoms[..open], &atoms[start..end], &atoms[close + 1..]].concat();
        words.extend(alternatives(&whole, left, depth + 1));
        start = end + 1;
    }
    words
}

/// The first brace group with a comma: its start, its commas, its end.
fn first_brace(atoms: &[Atom]) -> Option<(usize, Vec<usize>, usize)> {
    let mut opened: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut found: Option<(usize, Vec<usize>, usize)> = None;
    for (at, atom) in atoms.iter().enumerate() {
        match atom {
            Atom::Char('{') => opened.push((at, Vec::new())),
            Atom::Char(',') => {
                if let Some((_, commas)) = opened.last_mut() {
                    commas.push(at);
                }
            }
            Atom::Char('}') => {
                if let Some((open, commas)) = opened.pop()
                    && !commas.is_empty()
                    && found.as_ref().is_none_or(|(first, ..)| open < *first)
                {
                    found = Some((open, commas, at));
                }
            }
            Atom::Char(_) | Atom::Piece(_) => {}
        }
        if opened.is_empty() && found.is_some() {
            break;
        }
    }
    found
}
