//! Lookup of entries in `script.txt`.

const SCRIPT: &str = include_str!("script.txt");

/// The text of the entry with the longest phrase that occurs in `words`; ties go to the earlier entry.
pub(super) fn find(words: &str) -> Option<String> {
    let padded = format!(" {words} ");
    let mut best: Option<(usize, &str)> = None;
    for (phrases, text) in entries() {
        let longest = phrases
            .split('|')
            .map(normalise)
            .filter(|phrase| padded.contains(&format!(" {phrase} ")))
            .map(|phrase| phrase.len())
            .max();
        if let Some(length) = longest
            && best.is_none_or(|(known, _)| length > known)
        {
            best = Some((length, text));
        }
    }
    best.map(|(_, text)| text.trim().to_owned())
}

/// Lower case, single spaces, no punctuation.
pub(super) fn normalise(text: &str) -> String {
    let letters: String = text
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { ' ' })
        .flat_map(char::to_lowercase)
        .collect();
    letters.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(super) fn entries() -> impl Iterator<Item = (&'static str, &'static str)> {
    SCRIPT.split("\n? ").skip(1).filter_map(|entry| entry.split_once('\n'))
}
