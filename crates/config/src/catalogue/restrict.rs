//! Keys of existing files that restrict something but are not implemented: while one is set, what it may restrict is denied.
//! The wiring reports this at every start, in `status` and in `doctor`.

use serde_json::Value;

use crate::key::{flag, keys, table};

keys! {
    PROFILE_ROUTES: Option<Value> = table("profile_routes", "profile of each chat").closed(
        "the bot answers no message in a chat that belongs to another profile",
        "[{platform: telegram, chat_id: c1, profile: work}]",
    );
    TOOL_HOOKS: Option<Value> = table("hooks.pre_tool_call", "programs that may refuse a tool call").closed(
        "every tool is off, because these programs would not be asked",
        "[{command: ./check}]",
    );
    BLOCKLIST: Option<Value> = table("security.website_blocklist", "websites that the agent must not read")
        .closed("the tool web_extract is off", "{enabled: true, domains: [a.example]}");
    MEMORY: bool = flag("memory.memory_enabled", true, "remember facts across conversations")
        .closed("the tool memory is off and stored memories are not shown while it is false", "false");
    MEMORY_APPROVAL: bool = flag("memory.write_approval", false, "ask before a memory is stored").closed(
        "the tool memory is off while it is true, because it would store memories without asking",
        "true",
    );
    SKILL_APPROVAL: bool = flag("skills.write_approval", false, "ask before a skill is written").closed(
        "the tools write_file and patch are off while it is true, because they could write a skill without asking",
        "true",
    );
}
