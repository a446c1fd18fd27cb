//! What the kit needs of a fake server, the same for all platforms.

use petasos_platforms::Adapter;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Alone with `user`.
    Private,
    /// Among others.
    Group,
}

/// How long the adapter waits for its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Temper {
    /// Long enough for a machine under load.
    Patient,
    /// Every bound on silence is a fraction of a second.
    Impatient,
}

/// What goes wrong with the next message that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Too many requests, with a wait.
    TooMany,
    /// The bot may not write there (any more).
    Blocked,
    /// There is no such chat.
    NoChat,
    /// The bot may not send files there.
    NoFiles,
    /// The server is not well, and says so in its own words.
    ServerError,
    /// Somebody in between answers with something else.
    Rubbish,
    /// Nothing was done, and the connection is gone.
    Reset,
    /// The message is in the chat, and the connection is gone.
    LostAnswer,
    /// The message is in the chat, and no answer ever comes.
    NoAnswer,
}

/// What is odd about a file that somebody sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    Sound,
    /// It is larger than it is said to be.
    SaysItIsSmall,
    /// Whoever wants it is sent to this address.
    LeadsTo(String),
}

/// What goes wrong with the next download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileTrouble {
    Gone,
    NotWell,
    Reset,
    /// Half of it comes.
    CutOff,
}

/// A message of ours, as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) text: String,
    /// The message that it is shown as an answer to.
    pub(crate) answers: Option<String>,
}

/// Signs of life of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signs {
    /// That the server has seen.
    pub(crate) seen: usize,
    /// That take longer than every bound on silence of an impatient adapter.
    pub(crate) enough: usize,
}

/// A fake server and an adapter that talks to it.
pub(crate) trait Peer {
    fn adapter(&self) -> &Adapter;
    /// A new adapter at the same server, as after a restart.
    fn restarted(&self) -> Box<dyn Peer>;

    /// What no error may show.
    fn secrets(&self) -> &'static [&'static str];
    /// A word of the sentence that says what to do about bad credentials.
    fn remedy(&self) -> &'static str;
    fn user(&self) -> String;
    fn chat(&self, place: Place) -> String;

    /// `user` writes to us; in a group, by calling us. The id of the message is returned.
    fn say(&self, place: Place, text: &str) -> String;
    /// `user` gives us the command `/status`, alone with us.
    fn say_command(&self);
    /// A thread in the group, by its id.
    fn thread(&self) -> String;
    /// Our messages in it.
    fn seen_in(&self, thread: &str) -> Vec<String>;
    /// It is gone; the group is still there.
    fn remove_thread(&self, thread: &str);
    /// `user` sends us a document, alone with us.
    fn say_file(&self, text: &str, name: &str, content: &[u8], shape: Shape);
    /// The next download meets this.
    fn download_trouble(&self, trouble: FileTrouble);
    /// An event that nobody can read; it holds `sad news` somewhere.
    fn say_rubbish(&self);
    /// Tells us again of something that was told already: of this, or of whatever comes next.
    fn say_again(&self, place: Place, id: &str, text: &str);
    /// `user` presses a button below a message of ours.
    fn press(&self, place: Place, message: &str, data: &str);
    /// Our messages, oldest first.
    fn seen(&self, place: Place) -> Vec<Seen>;
    /// The files in them, by name.
    fn files(&self, place: Place) -> Vec<(String, Vec<u8>)>;

    /// What we put below a message of somebody else's.
    fn marks(&self, place: Place, message: &str) -> Vec<String>;

    /// Cases that make no sense on this platform, and why: every other one must hold.
    fn excuses(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn excuse(&self, case: &str) -> Option<&'static str> {
        self.excuses().iter().find(|(name, _)| *name == case).map(|(_, reason)| *reason)
    }

    /// A link with this cursor hears what is said from now on.
    fn is_settled(&self, _cursor: Option<&str>) -> bool {
        true
    }
    /// The server was told that everything before this cursor is kept.
    fn is_confirmed(&self, cursor: Option<&str>) -> bool;

    /// Heartbeats, pings and polls of the link, where they come often. `None`: they do not, or the platform calls us.
    fn signs(&self) -> Option<Signs> {
        None
    }

    /// The next message that we send meets this.
    fn trouble(&self, trouble: Trouble);
    /// The next document that we send meets this, at the moment when people see it.
    fn file_trouble(&self, trouble: Trouble);
    /// Every connection is reset and new ones are refused, until `up`.
    fn down(&self);
    fn up(&self);
    /// Connections stay open and nothing comes through them, until `speak`.
    fn silence(&self);
    fn speak(&self);
    /// Our credentials are good no longer; whoever the server tells is told.
    fn revoke(&self);
}
