//! Reads a file of scripts: a line that starts with `##` is a title, the lines after it are the script.

pub struct Script {
    /// After `##`.
    pub title: &'static str,
    pub text: String,
}

pub fn scripts(file: &'static str) -> Vec<Script> {
    let mut scripts: Vec<Script> = Vec::new();
    for line in file.lines() {
        match (line.strip_prefix("##"), scripts.last_mut()) {
            (Some(title), _) => scripts.push(Script { title, text: String::new() }),
            (None, Some(script)) => script.text += &format!("{line}\n"),
            // Comments before the first script.
            (None, None) => {}
        }
    }
    scripts
}
