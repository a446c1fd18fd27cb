//! Characters: cleaning, look-alike folding, escapes, patterns, decoding.

use alloc::string::String;
use alloc::vec::Vec;

/// Placeholder for a part of a value that is only known at run time.
pub(crate) const UNKNOWN: char = '\u{10FFFD}';
/// Placeholder for decoded text.
pub(crate) const DECODED: char = '\u{10FFFC}';
/// Placeholder for text from another machine.
pub(crate) const REMOTE: char = '\u{10FFFB}';

pub(crate) fn is_hole(c: char) -> bool {
    matches!(c, UNKNOWN | DECODED | REMOTE)
}

pub(crate) fn has_hole(text: &str) -> bool {
    text.contains(is_hole)
}

/// A command as the shell receives it and as a person reads it.
pub(crate) struct Cleaned {
    pub plain: String,
    /// Without control characters and with look-alikes folded, if that makes a difference.
    pub folded: Option<String>,
    /// Contains characters that hide or reorder text.
    pub hidden: bool,
}

pub(crate) fn clean(command: &str) -> Cleaned {
    let mut hidden = false;
    let mut plain = String::with_capacity(command.len());
    for c in command.chars() {
        match c {
            '\n' | '\t' => plain.push(c),
            // Part of a word to the shell, so it must not be removed.
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => {
                hidden = true;
                plain.push('\u{FFFD}');
            }
            c if is_hole(c) => plain.push('\u{FFFD}'),
            c => {
                hidden |= is_deceptive(c);
                plain.push(c);
            }
        }
    }
    let folded: String = without_escapes(command).chars().filter_map(fold).collect();
    let folded = (folded != plain).then_some(folded);
    Cleaned { plain, folded, hidden }
}

/// As shown by a terminal: without control characters and escape sequences.
fn without_escapes(command: &str) -> String {
    let mut shown = String::with_capacity(command.len());
    let mut chars = command.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\u{1b}' => {
                if chars.next_if_eq(&'[').is_some() {
                    while chars.next_if(|c| !('@'..='~').contains(c)).is_some() {}
                    chars.next();
                }
            }
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => {}
            c if is_hole(c) => shown.push('\u{FFFD}'),
            c => shown.push(c),
        }
    }
    shown
}

/// Invisible or direction-changing characters. Joiners of emoji and scripts are excluded.
fn is_deceptive(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{61c}' | '\u{34f}' | '\u{17b4}' | '\u{17b5}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{180e}'
        | '\u{feff}' | '\u{ad}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

/// Characters that are invisible or displaced on a screen and are escaped in the display form.
pub(crate) fn is_invisible(c: char) -> bool {
    let control = c.is_control() && !matches!(c, '\n' | '\t');
    let blank = matches!(
        c,
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' | '\u{2800}'
    );
    let joiner = matches!(c, '\u{200c}' | '\u{200d}' | '\u{180b}'..='\u{180f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}');
    let broken = matches!(c, '\u{2028}' | '\u{2029}' | '\u{e000}'..='\u{f8ff}' | '\u{fdd0}'..='\u{fdef}' | '\u{f0000}'..='\u{10ffff}');
    control || blank || joiner || broken || is_deceptive(c)
}

/// The ASCII look-alike of `c`; `None` for invisible characters.
fn fold(c: char) -> Option<char> {
    let folded = match c {
        '\0'..='\u{7f}' => c,
        _ if is_deceptive(c) => return None,
        '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' => return None,
        '\u{ff01}'..='\u{ff5e}' => shifted(c, '\u{ff01}', '!'),
        '\u{1d400}'..='\u{1d6a3}' => {
            let index = (u32::from(c) - 0x1d400) % 52;
            let base = if index < 26 { u32::from(b'A') + index } else { u32::from(b'a') + index - 26 };
            char::from_u32(base).unwrap_or(c)
        }
        '\u{1d7ce}'..='\u{1d7ff}' => char::from_digit((u32::from(c) - 0x1d7ce) % 10, 10).unwrap_or(c),
        '\u{24d0}'..='\u{24e9}' => shifted(c, '\u{24d0}', 'a'),
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        '\u{85}' | '\u{2028}' | '\u{2029}' => '\n',
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{2043}' => '-',
        '\u{2044}' | '\u{2215}' | '\u{29f8}' | '\u{2571}' => '/',
        '\u{2217}' | '\u{204e}' | '\u{fe61}' => '*',
        '\u{2dc}' | '\u{223c}' | '\u{2053}' => '~',
        '\u{2223}' | '\u{2758}' | '\u{fe31}' => '|',
        '\u{37e}' | '\u{204f}' | '\u{fe54}' => ';',
        '\u{fe60}' => '&',
        '\u{fe69}' => '$',
        '\u{2024}' => '.',
        '\u{217f}' => 'm',
        '\u{217c}' => 'l',
        '\u{217e}' | '\u{501}' => 'd',
        '\u{217d}' | '\u{441}' | '\u{3f2}' => 'c',
        '\u{430}' | '\u{3b1}' | '\u{251}' => 'a',
        '\u{435}' => 'e',
        '\u{261}' => 'g',
        '\u{4bb}' => 'h',
        '\u{456}' | '\u{131}' | '\u{3b9}' => 'i',
        '\u{458}' => 'j',
        '\u{43a}' | '\u{3ba}' => 'k',
        '\u{43c}' | '\u{271}' => 'm',
        '\u{43e}' | '\u{3bf}' => 'o',
        '\u{440}' | '\u{3c1}' => 'p',
        '\u{51b}' => 'q',
        '\u{433}' | '\u{280}' => 'r',
        '\u{455}' => 's',
        '\u{442}' | '\u{3c4}' => 't',
        '\u{43d}' => 'h',
        '\u{475}' | '\u{3bd}' => 'v',
        '\u{51d}' => 'w',
        '\u{445}' | '\u{3c7}' => 'x',
        '\u{443}' | '\u{3b3}' => 'y',
        other => other,
    };
    Some(folded)
}

fn shifted(c: char, from: char, to: char) -> char {
    char::from_u32(u32::from(c) - u32::from(from) + u32::from(to)).unwrap_or(c)
}

/// Decodes the escapes of `$'…'`, `echo -e` and `printf`.
pub(crate) fn unescape(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some(kind) = chars.next() else {
            out.push('\\');
            break;
        };
        let mut digits = |most: usize, radix: u32| {
            let mut value = None;
            for _ in 0..most {
                let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else { break };
                chars.next();
                value = Some(value.unwrap_or(0) * radix + digit);
            }
            value.and_then(char::from_u32)
        };
        match kind {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' | 'a' | 'b' | 'f' | 'v' | 'e' | 'E' => out.push(' '),
            'x' => out.extend(digits(2, 16)),
            'u' => out.extend(digits(4, 16)),
            'U' => out.extend(digits(8, 16)),
            '0' => out.extend(digits(3, 8)),
            '1'..='7' => {
                let first = kind.to_digit(8).unwrap_or(0);
                let mut value = first;
                for _ in 0..2 {
                    let Some(digit) = chars.peek().and_then(|c| c.to_digit(8)) else { break };
                    chars.next();
                    value = value * 8 + digit;
                }
                out.extend(char::from_u32(value));
            }
            '\\' | '\'' | '"' | '?' => out.push(kind),
            other => out.extend(['\\', other]),
        }
    }
    out
}

/// Matches shell patterns: `*`, `?`, `[…]`. A placeholder matches any text.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let mut p = 0;
    let mut t = 0;
    let mut back: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(c) if *c == '*' || is_hole(*c) => {
                back = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some('[') => {
                let (matched, next) = set(&pattern, p, text[t]);
                if matched {
                    (p, t) = (next, t + 1);
                    continue;
                }
            }
            Some(c) if *c == '?' || *c == text[t] => {
                (p, t) = (p + 1, t + 1);
                continue;
            }
            _ => {}
        }
        let Some((after, at)) = back else { return false };
        back = Some((after, at + 1));
        (p, t) = (after, at + 1);
    }
    pattern[p..].iter().all(|c| *c == '*' || is_hole(*c))
}

fn set(pattern: &[char], start: usize, c: char) -> (bool, usize) {
    let Some(length) = pattern[start + 1..].iter().skip(1).position(|c| *c == ']') else {
        return (c == '[', start + 1);
    };
    let end = start + 2 + length;
    let inside = &pattern[start + 1..end];
    let (negated, inside) = match inside {
        ['!' | '^', rest @ ..] => (true, rest),
        all => (false, all),
    };
    let mut found = false;
    let mut at = 0;
    while at < inside.len() {
        if at + 2 < inside.len() && inside[at + 1] == '-' {
            found |= (inside[at]..=inside[at + 2]).contains(&c);
            at += 3;
        } else {
            found |= inside[at] == c;
            at += 1;
        }
    }
    (found != negated, end + 1)
}

pub(crate) fn base64(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut bits = 0_u32;
    let mut count = 0;
    for c in text.bytes().filter(|c| !c.is_ascii_whitespace() && *c != b'=') {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count).to_le_bytes()[0]);
        }
    }
    String::from_utf8(bytes).ok()
}

pub(crate) fn hex(text: &str) -> Option<String> {
    let digits: Vec<u32> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let bytes =
        digits.chunks(2).map(|pair| u8::try_from(pair.iter().fold(0, |all, digit| all * 16 + digit)).ok());
    String::from_utf8(bytes.collect::<Option<_>>()?).ok()
}
