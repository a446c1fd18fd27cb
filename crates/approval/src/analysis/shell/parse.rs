//! The parser: lists, pipelines, groups, branches, loops, functions, redirections.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use super::redirect::PendingDocument;
use super::{Assign, Chain, Kind, MAX_DEPTH, ParseError, Piece, Program, Script, ShellCommand, ShellWord};

pub(super) type Parsed<T> = Result<T, ParseError>;

/// Parses a command line or script that is nested `depth` levels deep.
pub(in super::super) fn parse(text: &str, depth: u32) -> Program {
    let mut parser = Parser::new(text.chars().collect(), depth);
    let mut script = Script::default();
    let error = parser.fill_script(&mut script, &[]).err();
    let error = error.or_else(|| (parser.at < parser.text.len()).then_some(ParseError::Syntax));
    parser.finish_documents();
    Program { script, error }
}

pub(super) struct Parser {
    pub(super) text: Vec<char>,
    pub(super) at: usize,
    pub(super) depth: u32,
    pub(super) documents: Vec<PendingDocument>,
}

const OPENERS: [&str; 11] =
    ["if", "while", "until", "for", "select", "case", "{", "!", "time", "function", "coproc"];

impl Parser {
    pub(super) fn new(text: Vec<char>, depth: u32) -> Self {
        Self { text, at: 0, depth, documents: Vec::new() }
    }

    /// Parses one level deeper. The level is not left after an error, which ends the parsing.
    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return Err(ParseError::TooDeep);
        }
        self.depth += 1;
        let read = read(self)?;
        self.depth -= 1;
        Ok(read)
    }

    /// Parses chains until one of `ends`, a closing bracket, or the end of the text.
    pub(super) fn script(&mut self, ends: &[&str]) -> Parsed<Script> {
        self.deeper(|parser| {
            let mut script = Script::default();
            parser.fill_script(&mut script, ends)?;
            Ok(script)
        })
    }

    fn fill_script(&mut self, script: &mut Script, ends: &[&str]) -> Parsed<()> {
        loop {
            self.skip_gaps();
            match self.peek() {
                None | Some(')') => return Ok(()),
                Some(';') if self.starts(";;") || self.starts(";&") => return Ok(()),
                Some(';') => return Err(ParseError::Syntax),
                _ if ends.iter().any(|end| self.at_keyword(end)) => return Ok(()),
                Some(_) => {}
            }
            let before = self.at;
            let mut chain = Chain { pipelines: Vec::new(), background: false };
            let read = self.fill_chain(&mut chain);
            script.0.push(chain);
            read?;
            if self.at == before {
                return Err(ParseError::Syntax);
            }
        }
    }

    fn fill_chain(&mut self, chain: &mut Chain) -> Parsed<()> {
        loop {
            let mut stages = Vec::new();
            let read = self.fill_pipeline(&mut stages);
            chain.pipelines.push(stages);
            read?;
            self.skip_blanks();
            if self.eat("&&") || self.eat("||") {
                self.skip_gaps();
                continue;
            }
            if self.peek() == Some('&') {
                self.at += 1;
                chain.background = true;
            } else if self.peek() == Some(';') && !self.starts(";;") && !self.starts(";&") {
                self.at += 1;
            }
            return Ok(());
        }
    }

    fn fill_pipeline(&mut self, stages: &mut Vec<ShellCommand>) -> Parsed<()> {
        loop {
            stages.push(self.deeper(Self::command)?);
            self.skip_blanks();
            if self.starts("||") || !self.eat("|") {
                return Ok(());
            }
            self.eat("&");
            self.skip_gaps();
        }
    }

    fn command(&mut self) -> Parsed<ShellCommand> {
        self.skip_blanks();
        let kind = match self.opener() {
            Some("!" | "time" | "coproc") => {
                self.skip_word();
                self.skip_blanks();
                if self.at_keyword("-p") {
                    self.skip_word();
                }
                return self.deeper(Self::command);
            }
            Some(word) => {
                self.skip_word();
                self.compound(word)?
            }
            None if self.starts("((") => self.double_bracket()?,
            None if self.peek() == Some('(') => self.subshell()?,
            None => return self.simple(),
        };
        let mut redirects = Vec::new();
        loop {
            self.skip_blanks();
            if !self.redirect(&mut redirects)? {
                return Ok(ShellCommand { kind, redirects });
            }
        }
    }

    /// `((…))` is arithmetic in some shells and a nested subshell in others.
    fn double_bracket(&mut self) -> Parsed<Kind> {
        let start = self.at;
        let Some(words) = self.arithmetic_command()? else { return self.subshell() };
        let inside: String = self.text[start + 2..self.at - 2].iter().collect();
        let program = parse(&inside, self.depth + 1);
        match program.error {
            None => Ok(Kind::Branches(words, Vec::from([program.script]))),
            Some(ParseError::Syntax) => Ok(Kind::Branches(words, Vec::new())),
            Some(ParseError::TooDeep) => Err(ParseError::TooDeep),
        }
    }

    fn opener(&self) -> Option<&'static str> {
        OPENERS.into_iter().find(|word| self.at_keyword(word))
    }

    fn compound(&mut self, word: &str) -> Parsed<Kind> {
        match word {
            "{" => {
                let body = self.script(&["}"])?;
                self.keyword("}")?;
                Ok(Kind::Group(body))
            }
            "if" => self.conditional(),
            "for" | "select" => self.loop_over(),
            "case" => self.cases(),
            "function" => {
                self.skip_blanks();
                let name = self.name_text()?;
                self.skip_blanks();
                if self.eat("(") {
                    self.skip_blanks();
                    self.need(")")?;
                }
                self.function(name)
            }
            _while_or_until => {
                let condition = self.script(&["do"])?;
                let body = self.do_group()?;
                Ok(Kind::Branches(Vec::new(), Vec::from([condition, body])))
            }
        }
    }

    fn conditional(&mut self) -> Parsed<Kind> {
        let mut branches = Vec::from([self.script(&["then"])?]);
        self.keyword("then")?;
        loop {
            branches.push(self.script(&["elif", "else", "fi"])?);
            if self.at_keyword("fi") {
                self.skip_word();
                return Ok(Kind::Branches(Vec::new(), branches));
            }
            if self.at_keyword("elif") {
                self.skip_word();
                branches.push(self.script(&["then"])?);
                self.keyword("then")?;
            } else {
                self.keyword("else")?;
            }
        }
    }

    fn do_group(&mut self) -> Parsed<Script> {
        self.keyword("do")?;
        let body = self.script(&["done"])?;
        self.keyword("done")?;
        Ok(body)
    }

    fn loop_over(&mut self) -> Parsed<Kind> {
        self.skip_blanks();
        if self.starts("((") {
            let words = self.arithmetic_command()?.ok_or(ParseError::Syntax)?;
            self.skip_separators();
            let body = self.do_group()?;
            return Ok(Kind::Branches(words, Vec::from([body])));
        }
        let name = self.name_text()?;
        self.skip_gaps();
        let mut words = Vec::new();
        if self.at_keyword("in") {
            self.skip_word();
            words = self.words()?;
        }
        self.skip_separators();
        let body = self.do_group()?;
        Ok(Kind::For { name, words, body })
    }

    fn cases(&mut self) -> Parsed<Kind> {
        self.skip_blanks();
        let mut words = Vec::from([self.word()?]);
        self.skip_gaps();
        self.keyword("in")?;
        let mut branches = Vec::new();
        loop {
            self.skip_gaps();
            if self.at_keyword("esac") {
                self.skip_word();
                return Ok(Kind::Branches(words, branches));
            }
            self.eat("(");
            loop {
                self.skip_blanks();
                words.push(self.word()?);
                self.skip_blanks();
                if !self.eat("|") {
                    break;
                }
            }
            self.need(")")?;
            branches.push(self.script(&["esac"])?);
            if !(self.eat(";;&") || self.eat(";;") || self.eat(";&")) {
                self.skip_gaps();
                self.keyword("esac")?;
                return Ok(Kind::Branches(words, branches));
            }
        }
    }

    fn subshell(&mut self) -> Parsed<Kind> {
        self.need("(")?;
        let body = self.script(&[])?;
        self.need(")")?;
        Ok(Kind::Subshell(body))
    }

    fn function(&mut self, name: String) -> Parsed<Kind> {
        self.skip_gaps();
        let body = self.deeper(Self::command)?;
        let chain = Chain { pipelines: Vec::from([Vec::from([body])]), background: false };
        Ok(Kind::Function { name, body: Rc::new(Script(Vec::from([chain]))) })
    }

    fn simple(&mut self) -> Parsed<ShellCommand> {
        let mut assigns = Vec::new();
        let mut words = Vec::<ShellWord>::new();
        let mut redirects = Vec::new();
        loop {
            self.skip_blanks();
            if self.redirect(&mut redirects)? {
                continue;
            }
            if self.peek() == Some('(') && words.len() == 1 && assigns.is_empty() && redirects.is_empty() {
                self.at += 1;
                self.skip_blanks();
                self.need(")")?;
                let name = words.pop().and_then(|word| plain(&word)).ok_or(ParseError::Syntax)?;
                let kind = self.function(name)?;
                return Ok(ShellCommand { kind, redirects });
            }
            if self.at_end_of_simple() {
                let empty = words.is_empty() && assigns.is_empty() && redirects.is_empty();
                if empty || self.peek() == Some('(') {
                    return Err(ParseError::Syntax);
                }
                return Ok(ShellCommand { kind: Kind::Simple { assigns, words }, redirects });
            }
            if words.is_empty()
                && let Some(assign) = self.assignment()?
            {
                assigns.push(assign);
                continue;
            }
            words.push(self.word()?);
            if words.len() == 1 && words.first().and_then(plain).as_deref() == Some("[[") {
                self.test(&mut words)?;
            }
        }
    }

    /// Inside `[[ … ]]` operators are words.
    fn test(&mut self, words: &mut Vec<ShellWord>) -> Parsed<()> {
        loop {
            self.skip_gaps();
            if self.at_keyword("]]") {
                self.skip_word();
                return Ok(());
            }
            match self.peek() {
                None => return Err(ParseError::Syntax),
                Some('<' | '>') if self.peek_at(1) == Some('(') => words.push(self.word()?),
                Some('(' | ')' | '<' | '>' | '&' | '|' | ';') => self.at += 1,
                Some(_) => words.push(self.word()?),
            }
        }
    }

    fn words(&mut self) -> Parsed<Vec<ShellWord>> {
        let mut words = Vec::new();
        loop {
            self.skip_blanks();
            if self.at_end_of_simple() {
                return Ok(words);
            }
            words.push(self.word()?);
        }
    }

    fn at_end_of_simple(&self) -> bool {
        match self.peek() {
            Some('<' | '>') => self.peek_at(1) != Some('('),
            other => matches!(other, None | Some('\n' | ';' | '&' | '|' | '(' | ')')),
        }
    }

    fn assignment(&mut self) -> Parsed<Option<Assign>> {
        let start = self.at;
        let name = self.name_or_empty();
        let mut index = None;
        if !name.is_empty() && self.peek() == Some('[') {
            let closing = (self.at..self.text.len().min(self.at + 256)).find(|&at| self.text[at] == ']');
            if let Some(closing) = closing {
                index = Some(self.inner(self.text[self.at + 1..closing].to_vec())?);
                self.at = closing + 1;
            }
        }
        let append = self.eat("+");
        if name.is_empty() || !self.eat("=") {
            self.at = start;
            return Ok(None);
        }
        let mut value = match self.peek() {
            Some('(') if index.is_none() => self.array()?,
            _ => Vec::from([self.word()?]),
        };
        let append = append || index.is_some();
        // evaluated too, which can only find more
        value.extend(index.filter(|index| plain(index).is_none()));
        Ok(Some(Assign { name, append, value }))
    }

    pub(super) fn array(&mut self) -> Parsed<Vec<ShellWord>> {
        self.need("(")?;
        let mut words = Vec::new();
        loop {
            self.skip_gaps();
            if self.eat(")") {
                return Ok(words);
            }
            if self.at_end_of_simple() {
                return Err(ParseError::Syntax);
            }
            words.push(self.word()?);
        }
    }

    fn name_text(&mut self) -> Parsed<String> {
        let word = self.word()?;
        plain(&word).ok_or(ParseError::Syntax)
    }
}

/// The text of a word that needs no evaluation.
pub(super) fn plain(word: &ShellWord) -> Option<String> {
    let mut text = String::new();
    for piece in word {
        let Piece::Text { text: part, .. } = piece else { return None };
        text.push_str(part);
    }
    (!word.is_empty()).then_some(text)
}
