//! A fake server and its adapter, as the kit uses it.

use petasos_platforms::Adapter;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChatKind {
    /// Alone with `user`.
    Private,
    Group,
}

/// Timeouts of the adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeoutProfile {
    /// Long enough for a machine under load.
    Long,
    /// Every timeout is a fraction of a second.
    Short,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendFault {
    /// With a wait.
    TooMany,
    /// The bot may not write there.
    Blocked,
    NoChat,
    NoFiles,
    /// An error in the platform's own format.
    ServerError,
    /// An intermediary's answer.
    Garbage,
    /// The connection breaks before any effect.
    Reset,
    /// The message is delivered, then the connection breaks.
    LostAnswer,
    /// The message is delivered and no response follows.
    NoAnswer,
}

/// How an attachment is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileOffer {
    Valid,
    /// It is larger than announced.
    UnderstatedSize,
    /// The download redirects to this address.
    RedirectsTo(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DownloadFault {
    Gone,
    ServerError,
    Reset,
    CutOff,
}

/// A message sent by the adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VisibleMessage {
    pub(crate) id: String,
    pub(crate) text: String,
    /// The message that it replies to.
    pub(crate) answers: Option<String>,
}

/// Heartbeats, pings or polls of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkActivity {
    /// Number received by the server.
    pub(crate) seen: usize,
    /// Number that takes longer than every short timeout.
    pub(crate) enough: usize,
}

pub(crate) trait TestPlatform {
    fn adapter(&self) -> &Adapter;
    /// A new adapter at the same server, as after a restart.
    fn restarted(&self) -> Box<dyn TestPlatform>;

    /// Must not appear in any error.
    fn secrets(&self) -> &'static [&'static str];
    /// A word in the advice for bad credentials.
    fn remedy(&self) -> &'static str;
    fn user(&self) -> String;
    fn chat(&self, kind: ChatKind) -> String;

    /// `user` sends a message (in a group, with a mention). Returns its id.
    fn receive_message(&self, kind: ChatKind, text: &str) -> String;
    /// `user` sends `/status` in private.
    fn receive_command(&self);
    /// Creates a thread in the group and returns its id.
    fn thread(&self) -> String;
    fn sent_in_thread(&self, thread: &str) -> Vec<String>;
    fn remove_thread(&self, thread: &str);
    /// `user` sends a document in private.
    fn receive_file(&self, text: &str, name: &str, content: &[u8], shape: FileOffer);
    fn fail_next_download(&self, fault: DownloadFault);
    /// Delivers an event that cannot be parsed; it contains `sad news`.
    fn receive_unreadable_event(&self);
    /// Delivers this message again, or the next one twice.
    fn redeliver(&self, kind: ChatKind, id: &str, text: &str);
    /// `user` presses a button below one of the adapter's messages.
    fn press_button(&self, kind: ChatKind, message: &str, data: &str);
    /// Oldest first.
    fn sent_messages(&self, kind: ChatKind) -> Vec<VisibleMessage>;
    /// Files of the sent messages, by name.
    fn files(&self, kind: ChatKind) -> Vec<(String, Vec<u8>)>;

    /// Status reactions of the adapter on a user's message.
    fn reactions(&self, kind: ChatKind, message: &str) -> Vec<String>;

    /// Cases that do not apply to this platform, with the reason.
    fn skipped_cases(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn skip_reason(&self, case: &str) -> Option<&'static str> {
        self.skipped_cases().iter().find(|(name, _)| *name == case).map(|(_, reason)| *reason)
    }

    /// Whether a link with this cursor receives new messages.
    fn is_settled(&self, _cursor: Option<&str>) -> bool {
        true
    }
    /// Whether the server has the acknowledgement up to this cursor.
    fn is_confirmed(&self, cursor: Option<&str>) -> bool;

    /// `None`: the link sends none regularly.
    fn activity(&self) -> Option<LinkActivity> {
        None
    }

    fn fail_next_send(&self, fault: SendFault);
    /// Applies when the message with the file becomes visible.
    fn fail_next_file(&self, fault: SendFault);
    /// Resets every connection and refuses new ones, until `up`.
    fn down(&self);
    fn up(&self);
    /// Keeps connections open without traffic, until `end_silence`.
    fn silence(&self);
    fn end_silence(&self);
    /// Makes the credentials invalid.
    fn revoke(&self);
}
