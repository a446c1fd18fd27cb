//! Explains non-zero exit codes of common programs to the model.

pub(super) fn explain(command: &str, code: i32) -> Option<&'static str> {
    let last = command.rsplit(['|', ';', '&']).next().unwrap_or(command);
    let mut words = last.split_whitespace().skip_while(|word| word.contains('=') || *word == "sudo");
    let program = words.next()?.rsplit('/').next()?;
    Some(match (program, code) {
        ("grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack", 1) => "No matches found (not an error)",
        ("diff" | "cmp" | "colordiff", 1) => "The files differ (not an error)",
        ("find", 1) => "Some directories could not be read (the rest is listed)",
        ("test" | "[", 1) => "The condition is false (not an error)",
        ("git", 1) => "Git found a difference or nothing to do (often not an error)",
        ("curl", 6) => "The host name could not be resolved",
        ("curl", 7) => "The connection was refused",
        ("curl", 22) => "The server answered with an HTTP error",
        ("curl", 28) => "The request took too long",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explains_some_exit_codes() {
        assert!(explain("cat x | grep y", 1).is_some());
        assert!(explain("LANG=C /usr/bin/diff a b", 1).is_some());
        assert!(explain("curl -f http://x", 22).is_some());
        assert_eq!(explain("grep x y", 2), None);
        assert_eq!(explain("make", 1), None);
        assert_eq!(explain("", 1), None);
    }
}
