//! Redirections and here-documents.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;

use super::parse::{Parsed, Parser, plain};
use super::{ParseError, Piece, Redirect, ShellWord};

/// A here-document whose body has not been read yet.
pub(super) struct PendingDocument {
    end: String,
    tabs: bool,
    literal: bool,
    body: Rc<OnceCell<ShellWord>>,
}

impl Parser {
    pub(super) fn redirect(&mut self, redirects: &mut Vec<Redirect>) -> Parsed<bool> {
        let digits =
            (0..3).find(|&ahead| !self.peek_at(ahead).is_some_and(|c| c.is_ascii_digit())).unwrap_or(0);
        let start = self.at;
        self.at += digits;
        if self.eat("<<<") {
            self.skip_blanks();
            redirects.push(Redirect::Text(self.word()?));
        } else if self.eat("<<") {
            let tabs = self.eat("-");
            self.skip_blanks();
            redirects.push(self.document(tabs)?);
        } else if self.starts("<(") || self.starts(">(") {
            self.at = start;
            return Ok(false);
        } else if self.eat("<>") || self.eat("&>>") || self.eat("&>") || self.eat(">>") || self.eat(">|") {
            self.skip_blanks();
            redirects.push(Redirect::Write(self.word()?));
        } else if self.eat("<&") || self.eat(">&") {
            self.skip_blanks();
            let target = self.word()?;
            // a number or a dash names a descriptor, anything else a file
            let descriptor =
                plain(&target).is_some_and(|text| text.chars().all(|c| c.is_ascii_digit() || c == '-'));
            if !descriptor {
                redirects.push(Redirect::Write(target));
            }
        } else if self.eat("<") {
            self.skip_blanks();
            redirects.push(Redirect::Read(self.word()?));
        } else if self.eat(">") {
            self.skip_blanks();
            redirects.push(Redirect::Write(self.word()?));
        } else {
            self.at = start;
            return Ok(false);
        }
        Ok(true)
    }

    fn document(&mut self, tabs: bool) -> Parsed<Redirect> {
        let word = self.word()?;
        let literal = word.iter().any(|piece| matches!(piece, Piece::Text { quoted: true, .. }));
        let end = plain(&word).ok_or(ParseError::Syntax)?;
        let body = Rc::new(OnceCell::new());
        self.documents.push(PendingDocument { end, tabs, literal, body: Rc::clone(&body) });
        Ok(Redirect::Document(body))
    }

    /// Reads the bodies that follow the line of their redirections.
    pub(super) fn finish_documents(&mut self) {
        for pending in core::mem::take(&mut self.documents) {
            let mut body = String::new();
            while self.at < self.text.len() {
                let line: String = self.text[self.at..].iter().take_while(|c| **c != '\n').collect();
                self.at = (self.at + line.chars().count() + 1).min(self.text.len());
                let line = if pending.tabs { line.trim_start_matches('\t') } else { &line };
                if line == pending.end {
                    break;
                }
                body.push_str(line);
                body.push('\n');
            }
            let word = if pending.literal {
                Vec::from([Piece::Text { text: body, quoted: true }])
            } else {
                // an unparsable body has an unknown value
                Parser::new(body.chars().collect(), self.depth)
                    .document_body()
                    .unwrap_or_else(|_error| Vec::from([Piece::Computed(Vec::new())]))
            };
            let _filled = pending.body.set(word);
        }
    }
}
