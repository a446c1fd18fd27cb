//! Words: quotes, escapes, parameters, substitutions.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use super::parse::{Parsed, Parser, parse};
use super::{Op, ParseError, Piece, Script, ShellWord};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Gap,
    /// The closing brace of `${…}`.
    Brace,
    Quote,
    /// The end of the text, for the body of a here-document.
    End,
}

impl Parser {
    pub(super) fn word(&mut self) -> Parsed<ShellWord> {
        let before = self.at;
        let word = self.pieces(Until::Gap)?;
        if self.at == before
            && !self
                .peek()
                .is_none_or(|c| matches!(c, ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | ')' | '<' | '>'))
        {
            return Err(ParseError::Syntax);
        }
        Ok(word)
    }

    pub(super) fn document_body(mut self) -> Parsed<ShellWord> {
        self.pieces(Until::End)
    }

    fn pieces(&mut self, until: Until) -> Parsed<ShellWord> {
        let mut word = Builder::default();
        let inert = matches!(until, Until::Quote | Until::End);
        while let Some(c) = self.peek() {
            match c {
                '"' if until == Until::Quote => break,
                '}' if until == Until::Brace => break,
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | ')' if until == Until::Gap => break,
                '<' | '>' if until == Until::Gap => {
                    if self.peek_at(1) != Some('(') {
                        break;
                    }
                    self.at += 2;
                    let script = Rc::new(self.script(&[])?);
                    self.need(")")?;
                    word.piece(if c == '<' { Piece::Source(script) } else { Piece::Sink(script) });
                }
                '(' if until == Until::Gap => {
                    if !self.bracket(&mut word)? {
                        break;
                    }
                }
                '\\' => self.escape(&mut word, until),
                '\'' if !inert => {
                    self.at += 1;
                    let text = self.up_to('\'')?;
                    word.quoted(&text);
                }
                '"' if until != Until::End => {
                    self.at += 1;
                    let inside = self.deeper(|parser| parser.pieces(Until::Quote))?;
                    self.need("\"")?;
                    word.quoted("");
                    inside.into_iter().for_each(|piece| word.piece(piece));
                }
                '$' => self.dollar(&mut word, inert)?,
                '`' => {
                    self.at += 1;
                    let script = self.backquoted()?;
                    word.piece(Piece::Output { script, quoted: inert });
                }
                _ => {
                    word.push(c, inert);
                    self.at += 1;
                }
            }
        }
        Ok(word.finish())
    }

    /// A bracket inside a word: a pattern like `!(a|b)` or `name=(…)`. Anything else ends the word.
    fn bracket(&mut self, word: &mut Builder) -> Parsed<bool> {
        match word.last() {
            Some('=') => {
                let words = self.array()?;
                word.piece(Piece::Computed(words));
                Ok(true)
            }
            Some('?' | '*' | '+' | '@' | '!') => {
                self.up_to(')')?;
                word.push('*', false);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn escape(&mut self, word: &mut Builder, until: Until) {
        self.at += 1;
        let Some(c) = self.peek() else {
            word.quoted("\\");
            return;
        };
        self.at += 1;
        let kept = match until {
            Until::Quote => !matches!(c, '$' | '`' | '"' | '\\' | '\n'),
            Until::End => !matches!(c, '$' | '`' | '\\' | '\n'),
            Until::Gap | Until::Brace => false,
        };
        if kept {
            word.push('\\', true);
        }
        if c != '\n' {
            word.push(c, true);
        }
    }

    fn up_to(&mut self, end: char) -> Parsed<String> {
        let length = self.text[self.at..].iter().position(|c| *c == end).ok_or(ParseError::Syntax)?;
        let text = self.text[self.at..self.at + length].iter().collect();
        self.at += length + 1;
        Ok(text)
    }

    fn dollar(&mut self, word: &mut Builder, quoted: bool) -> Parsed<()> {
        self.at += 1;
        match self.peek() {
            Some('(') if self.peek_at(1) == Some('(') => {
                if let Some(words) = self.arithmetic_command()? {
                    word.piece(Piece::Computed(words));
                    return Ok(());
                }
                self.substitution(word, quoted)
            }
            Some('(') => self.substitution(word, quoted),
            Some('{') => {
                self.at += 1;
                let piece = self.deeper(|parser| parser.braced(quoted))?;
                word.piece(piece);
                Ok(())
            }
            Some('[') => {
                self.at += 1;
                let inside = self.up_to(']')?;
                let words = Vec::from([self.inner(inside.chars().collect())?]);
                word.piece(Piece::Computed(words));
                Ok(())
            }
            Some('\'') if !quoted => {
                self.at += 1;
                let text = self.ansi()?;
                word.quoted(&text);
                Ok(())
            }
            Some('"') if !quoted => Ok(()),
            Some(c) if c == '_' || c.is_ascii_alphabetic() => {
                let name = self.name_or_empty();
                word.piece(Piece::Parameter { name, op: Op::Plain, quoted });
                Ok(())
            }
            Some(c @ ('0'..='9' | '@' | '*' | '#' | '?' | '$' | '!' | '-')) => {
                self.at += 1;
                word.piece(Piece::Parameter { name: String::from(c), op: Op::Plain, quoted });
                Ok(())
            }
            _ => {
                word.push('$', quoted);
                Ok(())
            }
        }
    }

    fn substitution(&mut self, word: &mut Builder, quoted: bool) -> Parsed<()> {
        self.need("(")?;
        let script = self.script(&[])?;
        self.skip_gaps();
        self.need(")")?;
        word.piece(Piece::Output { script: Rc::new(script), quoted });
        Ok(())
    }

    /// `((…))` from its first bracket. `None`: it is not arithmetic but a subshell in a subshell.
    pub(super) fn arithmetic_command(&mut self) -> Parsed<Option<Vec<ShellWord>>> {
        let mut open = 0_usize;
        let mut at = self.at;
        let end = loop {
            match self.text.get(at) {
                None | Some('\'' | '"' | '#' | '\n') => return Ok(None),
                Some('(') => open += 1,
                Some(')') if open == 2 && self.text.get(at + 1) == Some(&')') => break at,
                Some(')') if open <= 2 => return Ok(None),
                Some(')') => open -= 1,
                Some(_) => {}
            }
            at += 1;
        };
        let inside = self.text[self.at + 2..end].to_vec();
        self.at = end + 2;
        Ok(Some(Vec::from([self.inner(inside)?])))
    }

    /// Text in which only what starts with `$` or a backquote is evaluated.
    pub(super) fn inner(&self, inside: Vec<char>) -> Parsed<ShellWord> {
        if self.depth >= super::MAX_DEPTH {
            return Err(ParseError::TooDeep);
        }
        Parser::new(inside, self.depth + 1).document_body()
    }

    fn backquoted(&mut self) -> Parsed<Rc<Script>> {
        let mut inside = String::new();
        loop {
            let c = self.peek().ok_or(ParseError::Syntax)?;
            self.at += 1;
            match c {
                '`' => break,
                '\\' if matches!(self.peek(), Some('`' | '\\' | '$')) => {
                    inside.extend(self.peek());
                    self.at += 1;
                }
                _ => inside.push(c),
            }
        }
        if self.depth >= super::MAX_DEPTH {
            return Err(ParseError::TooDeep);
        }
        let program = parse(&inside, self.depth + 1);
        match program.error {
            Some(error) => Err(error),
            None => Ok(Rc::new(program.script)),
        }
    }

    fn braced(&mut self, quoted: bool) -> Parsed<Piece> {
        let length = self.peek() == Some('#') && self.peek_at(1) != Some('}');
        let indirect = self.peek() == Some('!');
        if length || indirect {
            self.at += 1;
        }
        let mut name = self.name_or_empty();
        if name.is_empty()
            && let Some(c @ ('0'..='9' | '@' | '*' | '#' | '?' | '$' | '!' | '-')) = self.peek()
        {
            name.push(c);
            self.at += 1;
        }
        if self.eat("[") {
            let index = self.up_to(']')?;
            if index.contains(['$', '`']) {
                return Err(ParseError::Syntax);
            }
            if index == "@" {
                name.push_str("[@]");
            }
        }
        let op = if length {
            Op::Other(Box::new(self.pieces(Until::Brace)?))
        } else if indirect {
            self.pieces(Until::Brace)?;
            Op::Indirect
        } else {
            self.operator()?
        };
        self.need("}")?;
        Ok(Piece::Parameter { name, op, quoted })
    }

    fn operator(&mut self) -> Parsed<Op> {
        let eat = |parser: &mut Self, all: &[&str]| all.iter().any(|text| parser.eat(text));
        if self.peek() == Some('}') {
            return Ok(Op::Plain);
        }
        if eat(self, &[":-", ":=", "-", "="]) {
            return Ok(Op::Otherwise(Box::new(self.pieces(Until::Brace)?)));
        }
        if eat(self, &[":+", "+"]) {
            return Ok(Op::Instead(Box::new(self.pieces(Until::Brace)?)));
        }
        if eat(self, &[",,}", ",}"]) {
            self.at -= 1;
            return Ok(Op::Lower);
        }
        if eat(self, &["^^}"]) {
            self.at -= 1;
            return Ok(Op::Upper);
        }
        if let Some(sign @ ('#' | '%')) = self.peek() {
            self.at += 1;
            let longest = self.peek() == Some(sign);
            self.at += usize::from(longest);
            return Ok(Op::Trim { sign, longest, pattern: Box::new(self.pieces(Until::Brace)?) });
        }
        if self.peek() == Some(':') && self.peek_at(1) != Some('?') {
            self.at += 1;
            return Ok(Op::Slice(Box::new(self.pieces(Until::Brace)?)));
        }
        Ok(Op::Other(Box::new(self.pieces(Until::Brace)?)))
    }

    /// `$'…'`, after the opening quote.
    fn ansi(&mut self) -> Parsed<String> {
        let start = self.at;
        loop {
            match self.peek().ok_or(ParseError::Syntax)? {
                '\'' => break,
                '\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        let raw: String = self.text[start..self.at.min(self.text.len())].iter().collect();
        self.need("'")?;
        Ok(crate::analysis::text::unescape(&raw))
    }
}

/// Builds a word and joins adjacent characters of a kind.
#[derive(Default)]
struct Builder(ShellWord);

impl Builder {
    fn push(&mut self, c: char, quoted: bool) {
        match self.0.last_mut() {
            Some(Piece::Text { text, quoted: kind }) if *kind == quoted => text.push(c),
            _ => self.0.push(Piece::Text { text: String::from(c), quoted }),
        }
    }

    fn quoted(&mut self, more: &str) {
        match self.0.last_mut() {
            Some(Piece::Text { text, quoted: true }) => text.push_str(more),
            _ => self.0.push(Piece::Text { text: String::from(more), quoted: true }),
        }
    }

    fn piece(&mut self, piece: Piece) {
        self.0.push(piece);
    }

    fn last(&self) -> Option<char> {
        match self.0.last() {
            Some(Piece::Text { text, quoted: false }) => text.chars().next_back(),
            _ => None,
        }
    }

    fn finish(self) -> ShellWord {
        self.0
    }
}
