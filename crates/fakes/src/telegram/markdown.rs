//! MarkdownV2 as the real service parses it: reserved characters, nesting and error texts.
//!
//! The order of checks follows the published server source, so that both accept the same texts.

/// The visible text and its formatting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Formatted {
    pub text: String,
    pub entities: Vec<Entity>,
}

/// `offset` and `length` count UTF-16 units of the visible text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    pub kind: EntityKind,
    pub offset: usize,
    pub length: usize,
    /// The address of a link, the language of a code block.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntityKind {
    Bold,
    Italic,
    Underline,
    Strikethrough,
    Spoiler,
    Code,
    Pre,
    TextUrl,
    CustomEmoji,
    BlockQuote,
}

const RESERVED: &[u8] = b"_*[]()~`>#+-=|{}.!\n";

/// `Err` is the sentence after "can't parse entities: ".
pub(crate) fn parse(source: &str) -> Result<Formatted, String> {
    let mut reader = MarkdownReader { source, at: 0, out: Formatted::default(), units: 0, open: Vec::new() };
    reader.run()?;
    Ok(reader.out)
}

struct MarkdownReader<'a> {
    source: &'a str,
    at: usize,
    out: Formatted,
    /// Length of the visible text in UTF-16 units.
    units: usize,
    open: Vec<OpenEntity>,
}

#[derive(Debug, Clone)]
struct OpenEntity {
    kind: EntityKind,
    offset: usize,
    /// Its start in the source, for error messages.
    byte: usize,
    detail: String,
}

impl MarkdownReader<'_> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(next) = self.source[self.at..].chars().next() {
            if next == '\\' && (1..=126).contains(&self.peek(1)) {
                self.emit(char::from(self.peek(1)));
                self.at += 2;
            } else if !self.reserved(next) {
                self.emit(next);
                self.at += next.len_utf8();
            } else if self.closes_here() {
                self.close()?;
            } else {
                self.open_entity()?;
            }
        }
        if self.top() == Some(EntityKind::BlockQuote) {
            self.pop(0);
        }
        match self.open.last() {
            None => Ok(()),
            Some(open) => {
                Err(format!("Can't find end of {:?} entity at byte offset {}", open.kind, open.byte))
            }
        }
    }

    /// 0 stands for "past the end", as in the server's own loop.
    fn peek(&self, ahead: usize) -> u8 {
        self.source.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn emit(&mut self, next: char) {
        self.out.text.push(next);
        self.units += next.len_utf16();
    }

    fn top(&self) -> Option<EntityKind> {
        self.open.last().map(|open| open.kind)
    }

    fn reserved(&self, next: char) -> bool {
        if matches!(self.top(), Some(EntityKind::Code | EntityKind::Pre)) {
            return next == '`';
        }
        u8::try_from(next).is_ok_and(|byte| RESERVED.contains(&byte))
    }

    fn closes_here(&self) -> bool {
        let now = self.peek(0);
        let next = self.peek(1);
        match self.top() {
            None => false,
            Some(EntityKind::Bold) => now == b'*',
            Some(EntityKind::Italic) => now == b'_' && next != b'_',
            Some(EntityKind::Underline) => now == b'_' && next == b'_',
            Some(EntityKind::Strikethrough) => now == b'~',
            Some(EntityKind::Spoiler) => now == b'|' && next == b'|' && !self.ends_expandable_quote(),
            Some(EntityKind::Code) => now == b'`',
            Some(EntityKind::Pre) => self.source[self.at..].starts_with("```"),
            Some(EntityKind::TextUrl | EntityKind::CustomEmoji) => now == b']',
            Some(EntityKind::BlockQuote) => (now == b'\n' && next != b'>') || self.ends_expandable_quote(),
        }
    }

    /// `||` at the end of a line of a quote marks the quote as expandable.
    fn ends_expandable_quote(&self) -> bool {
        let line_ends = matches!(self.peek(2), b'\n' | 0);
        self.top() == Some(EntityKind::BlockQuote)
            && self.peek(0) == b'|'
            && self.peek(1) == b'|'
            && line_ends
    }

    fn open_entity(&mut self) -> Result<(), String> {
        let now = self.peek(0);
        let next = self.peek(1);
        let line_starts = self.out.text.is_empty() || self.out.text.ends_with('\n');
        let (kind, width) = match now {
            b'\n' => {
                self.emit('\n');
                self.at += 1;
                return Ok(());
            }
            b'>' if line_starts && self.open.iter().any(|open| open.kind == EntityKind::BlockQuote) => {
                self.at += 1; // the quote goes on
                return Ok(());
            }
            b'_' if next == b'_' => (EntityKind::Underline, 2),
            b'_' => (EntityKind::Italic, 1),
            b'*' => (EntityKind::Bold, 1),
            b'~' => (EntityKind::Strikethrough, 1),
            b'|' if next == b'|' => (EntityKind::Spoiler, 2),
            b'[' => (EntityKind::TextUrl, 1),
            b'!' if next == b'[' => (EntityKind::CustomEmoji, 2),
            b'>' if line_starts && self.open.is_empty() => (EntityKind::BlockQuote, 1),
            b'`' if self.source[self.at..].starts_with("```") => (EntityKind::Pre, 3),
            b'`' => (EntityKind::Code, 1),
            other => {
                let shown = char::from(other);
                return Err(format!(
                    "Character '{shown}' is reserved and must be escaped with the preceding '\\'"
                ));
            }
        };
        let open = OpenEntity { kind, offset: self.units, byte: self.at, detail: String::new() };
        self.open.push(open);
        self.at += width;
        if kind == EntityKind::Pre {
            self.language();
        }
        Ok(())
    }

    /// The word after the fence; it counts only if the line ends there.
    fn language(&mut self) {
        let rest = &self.source[self.at..];
        let word = rest.find(|next: char| next.is_whitespace() || next == '`').unwrap_or(rest.len());
        if word > 0 && rest[word..].starts_with('`') {
            return;
        }
        if let Some(open) = self.open.last_mut() {
            open.detail = rest[..word].to_owned();
        }
        self.at += word;
        if self.peek(0) == b'\n' {
            self.at += 1;
        }
    }

    fn close(&mut self) -> Result<(), String> {
        match self.top() {
            Some(EntityKind::Underline | EntityKind::Spoiler) => self.pop(2),
            Some(EntityKind::Pre) => self.pop(3),
            Some(EntityKind::TextUrl | EntityKind::CustomEmoji) => self.close_link()?,
            Some(EntityKind::BlockQuote) if self.peek(0) == b'|' => self.pop(2),
            // The line break belongs to the text after the quote.
            Some(EntityKind::BlockQuote) => self.pop(0),
            Some(EntityKind::Bold | EntityKind::Italic | EntityKind::Strikethrough | EntityKind::Code)
            | None => self.pop(1),
        }
        Ok(())
    }

    fn close_link(&mut self) -> Result<(), String> {
        if self.peek(1) != b'(' {
            self.pop(1);
            return Ok(());
        }
        let start = self.at + 2;
        let mut address = Vec::new();
        let mut at = start;
        let bytes = self.source.as_bytes();
        loop {
            match (bytes.get(at), bytes.get(at + 1)) {
                (None, _) => return Err(format!("Can't find end of a URL at byte offset {start}")),
                (Some(b')'), _) => break,
                (Some(b'\\'), Some(&next @ 1..=126)) => {
                    address.push(next);
                    at += 2;
                }
                (Some(&other), _) => {
                    address.push(other);
                    at += 1;
                }
            }
        }
        if let Some(open) = self.open.last_mut() {
            open.detail = String::from_utf8_lossy(&address).into_owned();
        }
        self.at = at + 1;
        self.pop(0);
        Ok(())
    }

    fn pop(&mut self, width: usize) {
        self.at += width;
        let Some(open) = self.open.pop() else { return };
        let length = self.units - open.offset;
        if length > 0 {
            let OpenEntity { kind, offset, byte: _, detail } = open;
            self.out.entities.push(Entity { kind, offset, length, detail });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EntityKind, parse};

    #[track_caller]
    fn check(source: &str, want: Result<(&str, &[EntityKind]), &str>) {
        let got = parse(source);
        match (&got, want) {
            (Ok(got), Ok((text, kinds))) => {
                assert_eq!(got.text, text, "{source:?}");
                let seen: Vec<EntityKind> = got.entities.iter().map(|entity| entity.kind).collect();
                assert_eq!(seen, kinds, "{source:?}");
            }
            (Err(got), Err(want)) => assert!(got.contains(want), "{source:?}: {got}"),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => panic!("{source:?}: {got:?}"),
        }
    }

    #[test]
    fn removes_markup_of_valid_text() {
        check("plain", Ok(("plain", &[])));
        check("1\\. a\\-b\\!", Ok(("1. a-b!", &[])));
        check(
            "*b* _i_ __u__ ~s~ ||p||",
            Ok((
                "b i u s p",
                &[
                    EntityKind::Bold,
                    EntityKind::Italic,
                    EntityKind::Underline,
                    EntityKind::Strikethrough,
                    EntityKind::Spoiler,
                ],
            )),
        );
        check("*a _b_ c*", Ok(("a b c", &[EntityKind::Italic, EntityKind::Bold])));
        check("`a.b-c` ok", Ok(("a.b-c ok", &[EntityKind::Code])));
        check("`a\\`b`", Ok(("a`b", &[EntityKind::Code])));
        check("```rust\nlet a = 1;\n```", Ok(("let a = 1;\n", &[EntityKind::Pre])));
        check("```\nx!\n```", Ok(("x!\n", &[EntityKind::Pre])));
        check("[site](http://a.b/c_(d\\)) ok", Ok(("site ok", &[EntityKind::TextUrl])));
        check(">one\n>two\nafter", Ok(("one\ntwo\nafter", &[EntityKind::BlockQuote])));
        check(">one\n>two||", Ok(("one\ntwo", &[EntityKind::BlockQuote])));
        check("ü\\.😀*b*", Ok(("ü.😀b", &[EntityKind::Bold])));
    }

    #[test]
    fn rejects_unescaped_reserved_characters() {
        for reserved in ['#', '+', '-', '=', '{', '}', '.', '!', '(', ')', ']', '|', '>'] {
            let wanted = format!("Character '{reserved}' is reserved and must be escaped");
            check(&format!("a{reserved}"), Err(&wanted));
            check(&format!("a\\{reserved}"), Ok((&format!("a{reserved}"), &[])));
        }
    }

    #[test]
    fn rejects_unclosed_entities() {
        check("ab *c", Err("Can't find end of Bold entity at byte offset 3"));
        check("_a", Err("Can't find end of Italic entity at byte offset 0"));
        check("`a", Err("Can't find end of Code entity"));
        check("```a\nb``", Err("Can't find end of Pre entity"));
        check("*a _b* c_", Err("Can't find end of"));
        check("[a](b", Err("Can't find end of a URL at byte offset 4"));
        check("[a", Err("Can't find end of TextUrl entity"));
    }

    #[test]
    fn entity_offsets_count_utf16_units() {
        let got = parse("😀*bü*").unwrap();
        assert_eq!((got.entities[0].offset, got.entities[0].length), (2, 2));
    }
}
