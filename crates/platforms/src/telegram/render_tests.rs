use proptest::prelude::*;

use super::*;

#[derive(serde::Deserialize)]
struct FormatVector {
    #[serde(rename = "in")]
    source: String,
    out: String,
}

fn one(source: &str) -> String {
    let parts = parts(source, &LIMITS);
    assert_eq!(parts.len(), 1, "{source:?}");
    parts[0].text.clone()
}

#[test]
fn renders_the_vectors() {
    let cases: Vec<FormatVector> =
        serde_json::from_str(include_str!("../../tests/vectors/telegram_mdv2.json")).expect("vectors");
    for case in cases {
        assert_eq!(one(&case.source), case.out, "{:?}", case.source);
        strict::check(&case.out).expect("accepted");
    }
}

#[test]
fn escapes_markup_for_telegram() {
    for (source, want) in [
        ("***x***", "*_x_*"),
        ("*a*_b_", "_a_**_b_"),
        ("# a **b** c", "*a b c*"),
        ("* item", "• item"),
        ("```rust\nlet a = `b`;\\n\n```", "```rust\nlet a = \\`b\\`;\\\\n\n```"),
        ("C:\\dir", "C:\\\\dir"),
        ("[**b**](http://e.org)", "[*b*](http://e.org)"),
        ("![alt](http://e.org/x_y)", "[alt](http://e.org/x_y)"),
        ("> **q**\n> r", "> *q*\n> r"),
    ] {
        let out = one(source);
        assert_eq!(out, want, "{source:?}");
        strict::check(&out).expect("accepted");
    }
}

#[test]
fn splits_long_answers_into_numbered_parts_with_whole_fences() {
    let code = "    let x = \"🙂\"; // (a.b)\n".repeat(250);
    let source = format!("Intro 🙂.\n\n```rust\n{code}```\n\n{}", "Tail! ".repeat(400));
    let parts = parts(&source, &LIMITS);
    assert!(parts.len() > 2);
    for (at, part) in parts.iter().enumerate() {
        strict::check(&part.text).expect("accepted");
        assert!(Unit::Utf16.len(&part.text) <= MAX_MESSAGE);
        assert!(part.text.ends_with(&format!("\\({}/{}\\)", at + 1, parts.len())), "{}", part.text);
        assert_eq!(part.text.matches("```").count() % 2, 0);
        assert!(part.plain.as_ref().is_some_and(|plain| plain.ends_with(&format!(
            "({}/{})",
            at + 1,
            parts.len()
        ))));
    }
    assert!(parts[1].text.starts_with("```rust\n"), "the fence is opened again");
}

#[test]
fn sends_text_of_markup_only_as_written() {
    for source in ["```\n```", "```rust\n\n```", "|a|\n|-|\n| |", ">"] {
        let part = parts(source, &LIMITS).pop().expect("a part");
        assert!(!part.plain.as_ref().unwrap_or(&part.text).trim().is_empty(), "{source:?}: {part:?}");
    }
    assert_eq!(parts("```\n```", &LIMITS), [Part::plain("```\n```")]);
    for blank in ["", " ", "\n\t\u{a0}\n"] {
        assert_eq!(parts(blank, &LIMITS), [], "{blank:?}");
    }
}

#[test]
fn preview_fits_one_message_with_its_cursor() {
    let preview = |text: &str| {
        let config = crate::telegram::Config::new(crate::Secret::new("t"));
        Telegram::new(config).expect("valid").preview(text, " ▉")
    };
    assert_eq!(preview("**half"), "**half ▉");
    let long = preview(&"🙂".repeat(5000));
    assert_eq!(Unit::Utf16.len(&long), MAX_MESSAGE);
    assert!(long.ends_with("🙂 ▉"));
}

/// Text full of markup characters.
fn marked_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => "[a-z ]{1,12}",
        3 => r"[*_~|`\\\[\]()!<>#.\-]{1,4}",
        1 => Just("\n".to_owned()),
        1 => Just("\n```rust\n".to_owned()),
        1 => Just("\n```\n".to_owned()),
        1 => Just("\n> ".to_owned()),
        1 => Just("\n# ".to_owned()),
        1 => Just("\n| a | b |\n|---|---|\n| 1 | 2 |\n".to_owned()),
        1 => Just("[l](http://e.org/(x))".to_owned()),
        1 => Just("**b**".to_owned()),
        1 => Just("_i_".to_owned()),
        1 => Just("🙂é".to_owned()),
    ];
    proptest::collection::vec(piece, 0..80).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn every_part_fits_and_is_accepted(text in marked_text(), max in 128_usize..600) {
        let limits = Limits::new(max, Unit::Utf16);
        for part in parts(&text, &limits) {
            prop_assert!(Unit::Utf16.len(&part.text) <= max, "too long: {:?}", part.text);
            if let Some(plain) = part.plain {
                prop_assert!(Unit::Utf16.len(&plain) <= max);
                prop_assert_eq!(strict::check(&part.text), Ok(()), "{:?}", part.text);
            }
        }
    }

    #[test]
    fn nonblank_text_gives_nonblank_parts(
        text in prop_oneof![any::<String>(), marked_text(), r"[|\-:
`~#>a]{0,40}", r"\s{0,20}"],
        max in 128_usize..600,
    ) {
        let parts = parts(&text, &Limits::new(max, Unit::Utf16));
        prop_assert_eq!(parts.is_empty(), text.trim().is_empty());
        for part in parts {
            let shown = part.plain.as_ref().unwrap_or(&part.text);
            prop_assert!(!shown.trim().is_empty(), "{:?}", part);
        }
    }

    #[test]
    fn rendering_at_most_quadruples_the_length(text in marked_text()) {
        let source = markdown::without_tables(&text).into_owned();
        let marked = markdown_v2(&markdown::parse(&source));
        prop_assert!(Unit::Utf16.len(&marked) <= 4 * Unit::Utf16.len(&source) + 16, "{:?}", marked);
    }
}

/// Parses MarkdownV2 as strictly as the Bot API.
mod strict {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum MarkupEntity {
        Bold,
        Italic,
        Underline,
        Strike,
        Spoiler,
        Code,
        Pre,
        Link,
        Quote,
    }

    pub(super) fn check(text: &str) -> Result<(), String> {
        let chars: Vec<char> = text.chars().collect();
        StrictParser { chars: &chars, at: 0, open: vec![] }.run()
    }

    struct StrictParser<'a> {
        chars: &'a [char],
        at: usize,
        open: Vec<MarkupEntity>,
    }

    impl StrictParser<'_> {
        fn run(mut self) -> Result<(), String> {
            while let Some(c) = self.peek(0) {
                if c == '\\' && self.peek(1).is_some_and(|next| next.is_ascii()) {
                    self.at += 2;
                } else if matches!(self.open.last(), Some(MarkupEntity::Code | MarkupEntity::Pre)) {
                    self.in_code(c);
                } else {
                    self.in_text(c)?;
                }
            }
            self.end_quote()?;
            if self.open.is_empty() { Ok(()) } else { Err(format!("never closed: {:?}", self.open)) }
        }

        fn in_code(&mut self, c: char) {
            let fence = self.next_are("```");
            match self.open.last() {
                Some(MarkupEntity::Pre) if fence => {
                    self.open.pop();
                    self.at += 3;
                }
                Some(MarkupEntity::Code) if c == '`' => {
                    self.open.pop();
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }

        fn in_text(&mut self, c: char) -> Result<(), String> {
            let (entity, width) = match c {
                '*' => (MarkupEntity::Bold, 1),
                '_' if self.peek(1) == Some('_') => (MarkupEntity::Underline, 2),
                '_' => (MarkupEntity::Italic, 1),
                '~' => (MarkupEntity::Strike, 1),
                '|' if self.peek(1) == Some('|') => (MarkupEntity::Spoiler, 2),
                '`' if self.next_are("```") => (MarkupEntity::Pre, 3),
                '`' => (MarkupEntity::Code, 1),
                '[' => (MarkupEntity::Link, 1),
                ']' if self.open.last() == Some(&MarkupEntity::Link) => return self.end_link(),
                '>' if self.at == 0 || self.chars[self.at - 1] == '\n' => {
                    if !self.open.contains(&MarkupEntity::Quote) {
                        if !self.open.is_empty() {
                            return Err(format!("a quote within {:?}", self.open));
                        }
                        self.open.push(MarkupEntity::Quote);
                    }
                    self.at += 1;
                    return Ok(());
                }
                '\n' => {
                    self.at += 1;
                    return if self.peek(0) == Some('>') { Ok(()) } else { self.end_quote() };
                }
                c if "[]()>#+-=|{}.!".contains(c) => {
                    return Err(format!("{c:?} is reserved, at {}", self.at));
                }
                _ => {
                    self.at += 1;
                    return Ok(());
                }
            };
            self.at += width;
            if self.open.last() == Some(&entity) {
                self.open.pop();
            } else if self.open.contains(&entity) {
                return Err(format!("{entity:?} within {:?}", self.open));
            } else {
                self.open.push(entity);
            }
            Ok(())
        }

        fn end_quote(&mut self) -> Result<(), String> {
            match self.open.iter().position(|it| *it == MarkupEntity::Quote) {
                None => Ok(()),
                Some(at) if at + 1 == self.open.len() => {
                    self.open.pop();
                    Ok(())
                }
                Some(_) => Err(format!("a quote ends within {:?}", self.open)),
            }
        }

        fn end_link(&mut self) -> Result<(), String> {
            self.open.pop();
            self.at += 1;
            if self.peek(0) != Some('(') {
                return Err("a link without an address".into());
            }
            while let Some(c) = self.peek(0) {
                match c {
                    '\\' => self.at += 2,
                    ')' => {
                        self.at += 1;
                        return Ok(());
                    }
                    _ => self.at += 1,
                }
            }
            Err("an address without an end".into())
        }

        fn peek(&self, ahead: usize) -> Option<char> {
            self.chars.get(self.at + ahead).copied()
        }

        fn next_are(&self, text: &str) -> bool {
            text.chars().enumerate().all(|(at, c)| self.peek(at) == Some(c))
        }
    }

    #[test]
    fn strict_parser_rejects_bad_markup() {
        for bad in ["a.", "*a", "_a__b_", "[a]", "[a](b", "a > b", "*a\n>b*", ">*a\nb*", "a|b", "```\na"] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        for good in ["a\\.", "*a*", "_a_**_b_", "[a](b)", ">a\n>b\nc", "```rs\na.b*\n```", "||a||", "`a.b`"] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
    }
}
