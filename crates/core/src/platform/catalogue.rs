//! Every platform name allowed in configuration and stored sessions, with its properties.

use super::{ChatIds, Peer, PersonIds, StrangerMessages, ThreadIds};

#[derive(Debug)]
pub(super) struct PlatformSpec {
    pub(super) name: &'static str,
    pub(super) peer: Peer,
    pub(super) authenticates: bool,
    pub(super) shows_buttons: bool,
    pub(super) chat_ids: ChatIds,
    pub(super) thread_ids: ThreadIds,
    pub(super) person_ids: PersonIds,
    pub(super) stranger_messages: StrangerMessages,
}

const CHAT: PlatformSpec = PlatformSpec {
    name: "",
    peer: Peer::People,
    authenticates: false,
    shows_buttons: false,
    chat_ids: ChatIds::Number,
    thread_ids: ThreadIds::Colon,
    person_ids: PersonIds::AsWritten,
    stranger_messages: StrangerMessages::Expected,
};

const fn chat(name: &'static str) -> PlatformSpec {
    PlatformSpec { name, ..CHAT }
}

const fn own(name: &'static str, peer: Peer) -> PlatformSpec {
    PlatformSpec { name, peer, ..CHAT }
}

pub(super) const ALL: &[PlatformSpec] = &[
    PlatformSpec { authenticates: true, ..own("local", Peer::Owner) },
    PlatformSpec { authenticates: true, shows_buttons: true, ..own("web", Peer::Owner) },
    PlatformSpec { authenticates: true, ..own("terminal", Peer::Owner) },
    PlatformSpec { chat_ids: ChatIds::NumberOrUsername, ..chat("telegram") },
    chat("discord"),
    PlatformSpec {
        chat_ids: ChatIds::Phone,
        thread_ids: ThreadIds::None,
        person_ids: PersonIds::Phone,
        ..chat("whatsapp")
    },
    PlatformSpec { thread_ids: ThreadIds::None, ..chat("whatsapp_cloud") },
    PlatformSpec { chat_ids: ChatIds::Letters, ..chat("slack") },
    PlatformSpec { chat_ids: ChatIds::Phone, thread_ids: ThreadIds::None, ..chat("signal") },
    chat("mattermost"),
    PlatformSpec { chat_ids: ChatIds::Federated, thread_ids: ThreadIds::Event, ..chat("matrix") },
    PlatformSpec { authenticates: true, ..chat("homeassistant") },
    PlatformSpec {
        chat_ids: ChatIds::Mail,
        thread_ids: ThreadIds::None,
        stranger_messages: StrangerMessages::Unsolicited,
        ..chat("email")
    },
    PlatformSpec { thread_ids: ThreadIds::None, ..chat("sms") },
    chat("dingtalk"),
    PlatformSpec { authenticates: true, ..own("api_server", Peer::Caller) },
    own("subagent", Peer::Parent),
    PlatformSpec { authenticates: true, ..own("webhook", Peer::Sender) },
    PlatformSpec { authenticates: true, ..chat("msgraph_webhook") },
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
    PlatformSpec { chat_ids: ChatIds::Any, ..chat("ntfy") },
    chat("simplex"),
    chat("teams"),
    chat("google_chat"),
    chat("photon"),
    chat("raft"),
    own("cron", Peer::Schedule),
];
