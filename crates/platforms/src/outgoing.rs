//! What leaves: a message of the platform's size, how to send it, and what came back.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use petasos_core::outbox::Button;
use rustix::fs::OFlags;

/// Room that every rendered part leaves for a mark in front of it, in the platform's unit.
pub const MARK_ROOM: usize = 48;

/// One message, small enough for the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What is sent.
    pub text: String,
    /// The same without markup, for when the platform does not accept ours.
    /// `None`: `text` is plain already (a preview), and is sent as it stands.
    pub plain: Option<String>,
    /// A file that goes with it; the text is its caption then, and may be empty.
    pub file: Option<File>,
}

/// An open file that passed the media policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub opened: Opened,
    /// What the other end calls it.
    pub name: String,
    pub mime: &'static str,
    pub show: Show,
}

/// An open descriptor. Its path plays no part any more: the file that was judged is the one that is sent.
#[derive(Debug, Clone)]
pub struct Opened(Arc<std::fs::File>);

impl Opened {
    /// Follows no link at the last name, and does not wait for the writer of a pipe.
    pub fn at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let mut options = std::fs::OpenOptions::new();
        // Every flag has its place in the system's own number, which is signed.
        options.read(true).custom_flags(flags.bits().cast_signed());
        Ok(options.open(path)?.into())
    }

    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// Reads at a place of its own, so that every try starts at the beginning.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
}

impl From<std::fs::File> for Opened {
    fn from(file: std::fs::File) -> Self {
        Self(Arc::new(file))
    }
}

impl PartialEq for Opened {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Opened {}

/// How a file is to appear. A platform that knows no such way sends it as a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    Photo,
    /// Spoken.
    Voice,
    Audio,
    Video,
    Document,
}

/// Said to a model that writes where files can be sent.
pub(crate) const FILES_HINT: &str =
    "To send a file, write MEDIA:/absolute/path on a line of its own, quoted if it has spaces.";

impl Part {
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), plain: None, file: None }
    }

    pub fn file(file: File) -> Self {
        Self { file: Some(file), ..Self::plain("") }
    }

    /// There is nothing in it to be sent.
    pub fn is_empty(&self) -> bool {
        self.file.is_none() && self.text.trim().is_empty()
    }

    /// The same with `mark` in front; a mark has no character that any markup reserves.
    pub fn led_by(&self, mark: &str) -> Self {
        let plain = self.plain.as_ref().map(|plain| format!("{mark}{plain}"));
        Self { text: format!("{mark}{}", self.text), plain, file: self.file.clone() }
    }

    pub fn marked(text: impl Into<String>, plain: impl Into<String>) -> Self {
        Self { text: text.into(), plain: Some(plain.into()), file: None }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SendOptions<'a> {
    /// Show the message as an answer to the route's `reply_to`.
    pub reply: bool,
    /// Without a sound at the other end.
    pub silent: bool,
    pub buttons: &'a [Button],
    /// The conversation that it belongs to, where what may be said there hangs on it.
    pub session: Option<&'a str>,
}

/// A small sign below a message of somebody else's: how far we are with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// We are at it.
    Seen,
    /// In place of `Seen`: answered.
    Done,
    /// In place of `Seen`: there will be no answer.
    Failed,
    /// Nothing any more.
    Cleared,
}

/// The platform has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Receipt {
    /// `None`: accepted, but there is nothing that could be edited later.
    pub message_id: Option<String>,
    /// The thread is gone; the message went to the chat itself.
    pub thread_fallback: bool,
    /// The thread that it opened: what belongs to it goes there.
    pub opened: Option<String>,
}
