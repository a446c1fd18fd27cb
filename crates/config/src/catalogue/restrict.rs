//! Keys of existing files that restrict something and are not implemented: while one is set, what it may restrict is
//! denied. The wiring says so at every start, in `status` and in `doctor`.

use serde_json::Value;

use crate::key::{flag, keys, table};

keys! {
    PROFILE_ROUTES: Option<Value> = table("profile_routes", "which chat belongs to which profile").closed(
        "nothing is answered in a chat that belongs to another profile",
        "[{platform: telegram, chat_id: c1, profile: work}]",
    );
    TOOL_HOOKS: Option<Value> = table("hooks.pre_tool_call", "programs that may refuse a tool call").closed(
        "every tool is off: nothing would ask these programs",
        "[{command: ./check}]",
    );
    BLOCKLIST: Option<Value> = table("security.website_blocklist", "refuse to read listed websites")
        .closed("the tool web_extract is off", "{enabled: true, domains: [a.example]}");
    MEMORY: bool = flag("memory.memory_enabled", true, "remember facts across conversations")
        .closed("the tool memory is off and stored memories are not shown while it is false", "false");
}
