//! Every name that may appear in configuration and stored sessions, with its capabilities.

use super::{ChatIds, FromStrangers, Peer, PersonIds, ThreadIds};

#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) peer: Peer,
    pub(super) authenticates: bool,
    pub(super) chat_ids: ChatIds,
    pub(super) thread_ids: ThreadIds,
    pub(super) person_ids: PersonIds,
    pub(super) from_strangers: FromStrangers,
}

/// A chat platform.
const CHAT: Row = Row {
    name: "",
    peer: Peer::People,
    authenticates: false,
    chat_ids: ChatIds::Number,
    thread_ids: ThreadIds::Colon,
    person_ids: PersonIds::AsWritten,
    from_strangers: FromStrangers::Expected,
};

const fn chat(name: &'static str) -> Row {
    Row { name, ..CHAT }
}

/// A channel of this gateway's own.
const fn own(name: &'static str, peer: Peer) -> Row {
    Row { name, peer, ..CHAT }
}

pub(super) const ALL: &[Row] = &[
    Row { authenticates: true, ..own("local", Peer::Owner) },
    Row { authenticates: true, ..own("web", Peer::Owner) },
    Row { authenticates: true, ..own("terminal", Peer::Owner) },
    Row { chat_ids: ChatIds::NumberOrUsername, ..chat("telegram") },
    chat("discord"),
    Row {
        chat_ids: ChatIds::Phone,
        thread_ids: ThreadIds::None,
        person_ids: PersonIds::Phone,
        ..chat("whatsapp")
    },
    Row { thread_ids: ThreadIds::None, ..chat("whatsapp_cloud") },
    Row { chat_ids: ChatIds::Letters, ..chat("slack") },
    Row { chat_ids: ChatIds::Phone, thread_ids: ThreadIds::None, ..chat("signal") },
    chat("mattermost"),
    Row { chat_ids: ChatIds::Federated, thread_ids: ThreadIds::Event, ..chat("matrix") },
    Row { authenticates: true, ..chat("homeassistant") },
    Row {
        chat_ids: ChatIds::Mail,
        thread_ids: ThreadIds::None,
        from_strangers: FromStrangers::Unsolicited,
        ..chat("email")
    },
    Row { thread_ids: ThreadIds::None, ..chat("sms") },
    chat("dingtalk"),
    Row { authenticates: true, ..own("api_server", Peer::Caller) },
    own("subagent", Peer::Parent),
    Row { authenticates: true, ..own("webhook", Peer::Sender) },
    Row { authenticates: true, ..chat("msgraph_webhook") },
    chat("feishu"),
    chat("wecom"),
    chat("wecom_callback"),
    chat("weixin"),
    chat("bluebubbles"),
    chat("qqbot"),
    chat("yuanbao"),
    chat("relay"),
    chat("irc"),
    chat("line"),
    Row { chat_ids: ChatIds::Any, ..chat("ntfy") },
    chat("simplex"),
    chat("teams"),
    chat("google_chat"),
    chat("photon"),
    chat("raft"),
    own("cron", Peer::Schedule),
];
