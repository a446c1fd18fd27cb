//! Files: attachments of messages, their paths in model requests, and files that arrive in a chat.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use petasos_agent::ModelRequest;
use petasos_platforms::{Fetched, OutgoingFile, download, http};
use petasos_runtime::clock;

use super::state::{Outside, State};
use crate::promise::Promise;

/// The content of the file of a message.
pub(super) fn content(number: usize) -> String {
    format!("file {number} ").repeat(40)
}

/// Reference and name of a file at its platform.
pub(super) fn name(number: usize) -> String {
    format!("f{number}.txt")
}

/// The message that a file came with, by what is in it.
fn number_in(content: &str) -> Option<usize> {
    let number: usize = content.strip_prefix("file ")?.split(' ').next()?.parse().ok()?;
    (content == self::content(number)).then_some(number)
}

impl Outside {
    /// The download of a file: complete, cut off half way, or refused.
    pub(super) async fn hand_out(
        &self,
        reference: &str,
        to: &tokio::fs::File,
    ) -> Result<Fetched, download::Error> {
        let number = reference.strip_prefix('f').and_then(|rest| rest.strip_suffix(".txt"));
        let number: usize = number.and_then(|number| number.parse().ok()).unwrap_or_default();
        let (wait, fault) = {
            let mut state = self.lock();
            let odds = state.plan.send_odds * 4;
            let fails = state.fails(odds);
            (state.luck.between(5, 3_000), fails.then(|| state.luck.below(4)))
        };
        clock::sleep(Duration::from_millis(wait)).await;
        let all = content(number);
        let mut file = std::fs::File::from(to.as_fd().try_clone_to_owned()?);
        match fault {
            None => file.write_all(all.as_bytes())?,
            Some(0) => return Err(download::Error::Status { status: 404, after: None }),
            Some(1) => return Err(download::Error::Status { status: 503, after: None }),
            Some(_lost) => {
                file.write_all(&all.as_bytes()[..all.len() / 2])?;
                return Err(http::HttpError::ConnectionLost("simulated".into()).into());
            }
        }
        self.lock().figures.fetches += 1;
        let head = all.as_bytes()[..32].to_vec();
        Ok(Fetched { size: all.len() as u64, mime: Some("text/plain".into()), head })
    }

    /// A file arrives in a chat. Returns the text that stands for it there.
    pub(super) fn shown_file(&self, file: &OutgoingFile, caption: &str) -> String {
        let mut bytes = vec![0; 4_096];
        let read = file.opened.read_at(&mut bytes, 0).unwrap_or_default();
        bytes.truncate(read);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match number_in(&text) {
            Some(number) => {
                self.lock().figures.files += 1;
                format!("{caption}📎 [f{number}]")
            }
            None => {
                let what = format!("a file of {read} bytes arrives that was not sent so");
                self.check(Err((Promise::G1, what)));
                caption.to_owned()
            }
        }
    }
}

impl State {
    /// Paths of the files of these messages as the model request names them. Each file must be on disk, complete, unless
    /// the request says that it could not be read.
    pub(super) fn files_of(
        &self,
        request: &ModelRequest,
        asked: &[usize],
    ) -> Result<Vec<String>, (Promise, String)> {
        let mut paths = Vec::new();
        for number in asked.iter().copied().filter(|number| self.world.said[*number].file) {
            let label = format!("{:?}: ", name(number));
            let told = request.messages.iter().rev().find_map(|row| row.content.split_once(&label));
            let Some((_before, told)) = told else {
                return Err((Promise::G2, format!("the model is not notified of the file of [m{number}]")));
            };
            if told.starts_with("could not be read") {
                continue;
            }
            let path = told.split(", ").next().unwrap_or_default();
            match std::fs::read_to_string(path) {
                Ok(text) if text == content(number) => paths.push(path.to_owned()),
                Ok(_other) => return Err((Promise::G1, format!("the file of [m{number}] is another one"))),
                Err(error) => {
                    return Err((
                        Promise::G2,
                        format!("the model cannot read the file of [m{number}]: {error}"),
                    ));
                }
            }
        }
        Ok(paths)
    }
}

/// For the trace: paths differ from run to run.
pub(super) fn without_paths(text: &str) -> String {
    let line = |line: &str| if line.starts_with("MEDIA:") { "MEDIA:…".to_owned() } else { line.to_owned() };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
