//! Splits socket messages into lines: a line may span messages, and a message may hold several lines.

use alloc::vec::Vec;

use crate::LONGEST_READ;

/// The unfinished line of one connection.
#[derive(Debug, Default)]
pub struct Lines {
    carry: Vec<u8>,
}

/// Line limit exceeded; close with 1009.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooBig;

impl Lines {
    /// Returns the lines completed by this message, without newlines and blank lines. On error, lines before the long
    /// one are lost; they were not acknowledged.
    pub fn push(&mut self, message: &[u8]) -> Result<Vec<Vec<u8>>, TooBig> {
        if message.len() > LONGEST_READ {
            return Err(TooBig);
        }
        let mut pieces = message.split(|byte| *byte == b'\n');
        let first = pieces.next().unwrap_or_default();
        if self.carry.len() + first.len() > LONGEST_READ {
            return Err(TooBig);
        }
        self.carry.extend_from_slice(first);
        let mut lines = Vec::new();
        for piece in pieces {
            let line = core::mem::replace(&mut self.carry, piece.to_vec());
            if !line.trim_ascii().is_empty() {
                lines.push(line);
            }
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec;

    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;

    #[track_caller]
    fn check(messages: &[&str], want: &[&str]) {
        let mut lines = Lines::default();
        let read = messages.iter().flat_map(|message| lines.push(message.as_bytes()).unwrap());
        let read: Vec<_> = read.map(|line| String::from_utf8(line).unwrap()).collect();
        assert_eq!(read, want);
    }

    #[test]
    fn splits_lines_at_newlines_across_messages() {
        check(&["a\nb\n"], &["a", "b"]);
        check(&["{\"a\"", ":1", "}\n"], &["{\"a\":1}"]);
        check(&["a"], &[]);
        check(&["a", "\n"], &["a"]);
        check(&["\n \n\r\n\ta\r\n"], &["\ta\r"]);
    }

    #[test]
    fn refuses_long_line_before_buffering() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(&vec![b'x'; LONGEST_READ + 1]), Err(TooBig));
        assert_eq!(lines.push(&vec![b'x'; LONGEST_READ]), Ok(vec![]));
        assert_eq!(lines.push(b"x"), Err(TooBig));
        assert_eq!(lines.carry.len(), LONGEST_READ, "nothing grows behind the limit");
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_lines_are_the_same(text in "[ab\n ]{0,200}", cuts in proptest::collection::vec(any::<u8>(), 0..20)) {
            let whole = Lines::default().push(text.as_bytes()).unwrap();
            let mut lines = Lines::default();
            let mut read = vec![];
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (piece, tail) = rest.split_at(usize::from(cut).min(rest.len()));
                read.extend(lines.push(piece).unwrap());
                rest = tail;
            }
            read.extend(lines.push(rest).unwrap());
            prop_assert_eq!(read, whole);
        }
    }
}
