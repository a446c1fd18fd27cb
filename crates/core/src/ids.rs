//! Identifiers, each of its own type.

use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

macro_rules! row_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

text_id! {
    /// The key of a session (`agent:main:telegram:dm:123`).
    SessionKey
}
text_id! {
    /// The current transcript of a session (`20261115_181205_13f6a7af`); changes on `/new`.
    SessionId
}
text_id! {
    /// A run of the HTTP API (`run_…`, `resp_…`, `chatcmpl-…`); the message id of its message.
    RunId
}
text_id! {
    /// A batch of tasks that a turn gave to subagents (`deleg_0123abcd`).
    DelegationId
}
text_id! {
    /// A gateway, as its connector names it.
    GatewayId
}
text_id! {
    /// An agent at a connector; its gateways share one queue.
    InstanceId
}
text_id! {
    /// The owner of instances at a connector.
    TenantId
}
row_id! {
    InboxId
}
row_id! {
    /// One turn. It has the number of its first inbound message, so a second turn for the same message violates the
    /// primary key.
    TurnId
}
row_id! {
    OutboxId
}
row_id! {
    /// One row of a transcript; ascending within a session.
    RowId
}

impl From<InboxId> for TurnId {
    fn from(id: InboxId) -> Self {
        Self(id.0)
    }
}

impl From<TurnId> for InboxId {
    fn from(id: TurnId) -> Self {
        Self(id.0)
    }
}
