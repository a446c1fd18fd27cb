//! Outgoing messages: rendered parts, send options and receipts.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use petasos_core::outbox::Button;
use rustix::fs::OFlags;

/// Length that every rendered part leaves free for a prefix, in the platform's unit.
pub const PREFIX_RESERVE: usize = 48;

/// One message, within the platform's size limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub text: String,
    /// Without markup, used if the platform rejects the markup. `None`: `text` is plain.
    pub plain: Option<String>,
    /// Sent with `text` as its caption.
    pub file: Option<OutgoingFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingFile {
    pub opened: OpenFile,
    /// File name shown to the recipient.
    pub name: String,
    pub mime: &'static str,
    pub show: MediaKind,
}

/// An open descriptor, so the file that passed the media policy is the one that is sent.
#[derive(Debug, Clone)]
pub struct OpenFile(Arc<std::fs::File>);

impl OpenFile {
    /// Does not follow a symbolic link, and does not block on a pipe.
    pub fn at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let mut options = std::fs::OpenOptions::new();
        // The system's flags are a signed integer.
        options.read(true).custom_flags(flags.bits().cast_signed());
        Ok(options.open(path)?.into())
    }

    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// Has its own offset, so every attempt starts at the beginning.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
}

impl From<std::fs::File> for OpenFile {
    fn from(file: std::fs::File) -> Self {
        Self(Arc::new(file))
    }
}

impl PartialEq for OpenFile {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OpenFile {}

/// How a file is shown. Platforms without such a kind send a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    Photo,
    Voice,
    Audio,
    Video,
    Document,
}

/// Hint in the system prompt for platforms that accept files.
pub(crate) const FILES_HINT: &str =
    "To send a file, write MEDIA:/absolute/path on a line of its own, quoted if it has spaces.";

impl Part {
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), plain: None, file: None }
    }

    pub fn file(file: OutgoingFile) -> Self {
        Self { file: Some(file), ..Self::plain("") }
    }

    pub fn is_empty(&self) -> bool {
        self.file.is_none() && self.text.trim().is_empty()
    }

    /// Prepends `mark`, which must be free of markup characters.
    pub fn with_prefix(&self, mark: &str) -> Self {
        let plain = self.plain.as_ref().map(|plain| format!("{mark}{plain}"));
        Self { text: format!("{mark}{}", self.text), plain, file: self.file.clone() }
    }

    pub fn marked(text: impl Into<String>, plain: impl Into<String>) -> Self {
        Self { text: text.into(), plain: Some(plain.into()), file: None }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SendOptions<'a> {
    /// Send as a reply to the route's `reply_to`.
    pub reply: bool,
    /// Without a notification sound.
    pub silent: bool,
    pub buttons: &'a [Button],
    /// The session that the message belongs to, for connectors that check it.
    pub session: Option<&'a str>,
}

/// Reaction on a user's message that shows the state of its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusReaction {
    /// The turn runs.
    Seen,
    /// Replaces `Seen`: answered.
    Done,
    /// Replaces `Seen`: no answer will follow.
    Failed,
    Cleared,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Receipt {
    /// `None`: accepted, but not editable.
    pub message_id: Option<String>,
    /// The thread is gone, so the message went to its chat.
    pub thread_fallback: bool,
    /// The thread that was created; later parts go there.
    pub opened: Option<String>,
}
