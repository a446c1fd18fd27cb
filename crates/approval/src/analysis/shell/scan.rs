//! Lexical helpers: characters, gaps, keywords, names.

use alloc::string::String;

use super::ParseError;
use super::parse::{Parsed, Parser};

impl Parser {
    pub(super) fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    pub(super) fn starts(&self, with: &str) -> bool {
        with.chars().enumerate().all(|(ahead, c)| self.peek_at(ahead) == Some(c))
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let found = self.starts(text);
        if found {
            self.at += text.chars().count();
        }
        found
    }

    pub(super) fn need(&mut self, text: &str) -> Parsed<()> {
        if self.eat(text) { Ok(()) } else { Err(ParseError::Syntax) }
    }

    pub(super) fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(' ' | '\t' | '\r') => self.at += 1,
                Some('\\') if self.peek_at(1) == Some('\n') => self.at += 2,
                Some('#')
                    if self.at == 0
                        || matches!(
                            self.text[self.at - 1],
                            ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')'
                        ) =>
                {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    pub(super) fn skip_gaps(&mut self) {
        loop {
            self.skip_blanks();
            if self.peek() != Some('\n') {
                return;
            }
            self.at += 1;
            if !self.documents.is_empty() {
                self.finish_documents();
            }
        }
    }

    pub(super) fn skip_separators(&mut self) {
        self.skip_gaps();
        if self.eat(";") {
            self.skip_gaps();
        }
    }

    pub(super) fn at_keyword(&self, word: &str) -> bool {
        self.starts(word)
            && self.peek_at(word.len()).is_none_or(|c| {
                matches!(c, ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>')
            })
    }

    pub(super) fn keyword(&mut self, word: &str) -> Parsed<()> {
        self.skip_gaps();
        if !self.at_keyword(word) {
            return Err(ParseError::Syntax);
        }
        self.at += word.len();
        Ok(())
    }

    pub(super) fn skip_word(&mut self) {
        while self
            .peek()
            .is_some_and(|c| !matches!(c, ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>'))
        {
            self.at += 1;
        }
    }

    pub(super) fn name_or_empty(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.peek()
            && (c == '_' || c.is_ascii_alphabetic() || (c.is_ascii_digit() && !name.is_empty()))
        {
            name.push(c);
            self.at += 1;
        }
        name
    }
}
