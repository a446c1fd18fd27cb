//! Code fences: lines of three or more back-ticks or tildes.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence<'a> {
    mark: char,
    width: usize,
    /// The first word after the mark, if it can be the name of a language.
    pub language: &'a str,
}

impl<'a> Fence<'a> {
    pub fn opened_by(line: &'a str) -> Option<Self> {
        let line = line.trim();
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let info = line.trim_start_matches(mark);
        let width = line.len() - info.len();
        if width < 3 || info.contains('`') {
            return None;
        }
        let word = info.split_whitespace().next().unwrap_or_default();
        let language = if word.chars().all(is_language) { word } else { "" };
        Some(Self { mark, width, language })
    }

    /// Without the borrowed language.
    pub const fn detached(&self) -> Fence<'static> {
        Fence { mark: self.mark, width: self.width, language: "" }
    }

    pub fn closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.width && line.chars().all(|c| c == self.mark)
    }
}

fn is_language(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '#' | '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_is_closed_only_by_its_own_kind() {
        let fence = Fence::opened_by("````rust ignore").expect("a fence");
        assert_eq!(fence.language, "rust");
        assert!(!fence.closed_by("```"));
        assert!(!fence.closed_by("~~~~"));
        assert!(fence.closed_by("  `````"));
        assert_eq!(Fence::opened_by("``` a`b ```"), None);
        assert_eq!(Fence::opened_by("``"), None);
        assert_eq!(Fence::opened_by("~~~ \"x\"").map(|it| it.language), Some(""));
    }
}
