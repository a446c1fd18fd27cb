//! Settings of any platform. The modules of the platforms declare which of them their adapter reads; the wiring enforces
//! restrictions that no adapter reads.

use petasos_core::Secret;
use serde_json::Value;

use crate::choices::{Bots, ChatPolicy, NoticeDelivery, ReplyMode, Strangers};
use crate::key::{choice, flag, list, maybe, maybe_choice, platform_keys, secret, table, text, text_or};

const GROUPS: &str = "the bot answers no message in groups there, because its adapter cannot apply this";

platform_keys! {
    // Access and notifications, on every platform.
    ALLOWED_USERS: Vec<String> =
        list("platforms.*.allowed_users", "user ids that may talk to the agent on this platform")
            .env(&["{P}_ALLOWED_USERS"])
            .also(&["platforms.*.allow_from"]);
    ALLOW_ALL_USERS: bool =
        flag(
            "platforms.*.allow_all_users",
            false,
            "let every user of this platform talk to the agent",
        )
        .env(&["{P}_ALLOW_ALL_USERS"]);
    GROUP_ALLOWED_USERS: Vec<String> = list(
        "platforms.*.group_allowed_users",
        "user ids that may talk to the agent, in groups only",
    )
        .env(&["{P}_GROUP_ALLOWED_USERS"])
        .also(&["platforms.*.group_allow_from"]);
    GROUP_ALLOWED_CHATS: Vec<String> = list(
        "platforms.*.group_allowed_chats",
        "group ids in which every user may talk to the agent",
    )
        .env(&["{P}_GROUP_ALLOWED_CHATS"]);
    ALLOW_BOTS: Bots = choice::<Bots>(
        "platforms.*.allow_bots",
        "none",
        "answer other bots: none, mentions (only if mentioned), all",
    )
    .env(&["{P}_ALLOW_BOTS"]);
    STRANGERS: Option<Strangers> = maybe_choice::<Strangers>(
        "platforms.*.unauthorized_dm_behavior",
        "unauthorized_dm_behavior for this platform",
    );
    DM_POLICY: Option<ChatPolicy> = maybe_choice::<ChatPolicy>(
        "platforms.*.dm_policy",
        "direct messages from: allowlist (listed users), pairing (also paired users), disabled (none); open adds no further users",
    )
    .env(&["{P}_DM_POLICY"]);
    GROUP_POLICY: Option<ChatPolicy> = maybe_choice::<ChatPolicy>(
        "platforms.*.group_policy",
        "group messages from: allowlist (listed users), pairing (also paired users), disabled (none); open adds no further users",
    )
    .env(&["{P}_GROUP_POLICY"]);
    ADMINS: Vec<String> = list("platforms.*.allow_admin_from", "user ids that may use every command");
    USER_COMMANDS: Vec<String> = list("platforms.*.user_allowed_commands", "commands for all other users");
    GROUP_ADMINS: Vec<String> =
        list("platforms.*.group_allow_admin_from", "user ids that may use every command in groups");
    GROUP_COMMANDS: Vec<String> =
        list("platforms.*.group_user_allowed_commands", "commands for all other users in groups");
    HOME_CHAT: Option<String> = text("platforms.*.home_channel.chat_id", "chat for notifications")
        .env(&["{P}_HOME_CHANNEL"])
        .also(&["platforms.*.home_channel"]);
    HOME_THREAD: Option<String> = text("platforms.*.home_channel.thread_id", "topic of the notification chat")
        .env(&["{P}_HOME_CHANNEL_THREAD_ID"]);
    HOME_NAME: String = text_or("platforms.*.home_channel.name", "Home", "name of the notification chat")
        .verbatim()
        .env(&["{P}_HOME_CHANNEL_NAME"]);
    RESTART_NOTICE: bool = flag("platforms.*.gateway_restart_notification", true, "notify chats about restarts");
    // Read by adapters.
    ENABLED: Option<bool> = maybe("platforms.*.enabled", "connect to this platform")
        .closed("the bot answers no message of this platform while it is false", "false");
    TOKEN: Option<Secret> =
        secret("platforms.*.token", "credential of the bot").env(&["{P}_BOT_TOKEN"]).ignored();
    API_KEY: Option<Secret> =
        secret("platforms.*.api_key", "credential of the account").env(&["{P}_API_KEY"]).ignored();
    PROXY: Option<Secret> = secret("platforms.*.proxy", "proxy for this platform").ignored();
    EXTRA: Option<Value> = table("platforms.*.extra", "settings that only this platform has").ignored();
    REPLY_TO: ReplyMode =
        choice::<ReplyMode>(
            "platforms.*.reply_to_mode",
            "first",
            "parts of an answer that quote the message: off, first, all",
        )
        .ignored();
    TYPING: bool = flag("platforms.*.typing_indicator", true, "show that the agent is writing").ignored();
    TYPING_TEXT: Option<String> =
        text("platforms.*.typing_status_text", "text shown while the agent is writing").ignored();
    CHANNEL_OVERRIDES: Option<Value> =
        table("platforms.*.channel_overrides", "model, provider and system_prompt per channel").closed(
            "the bot answers no message in a channel with its own model or provider, because another model would get its messages",
            "{c1: {model: other}}",
        );
    REQUIRE_MENTION: bool =
        flag("platforms.*.require_mention", false, "in groups, answer only when addressed")
            .env(&["{P}_REQUIRE_MENTION"])
            .closed(GROUPS, "true");
    STRICT_MENTION: bool =
        flag(
            "platforms.*.strict_mention",
            false,
            "in groups, answer only to an explicit mention",
        )
        .closed(GROUPS, "true");
    FREE_CHANNELS: Vec<String> =
        list("platforms.*.free_response_channels", "channels in which the bot answers without a mention").ignored();
    FREE_CHATS: Vec<String> =
        list("platforms.*.free_response_chats", "chats in which the bot answers without a mention").ignored();
    MENTION_PATTERNS: Vec<String> =
        list("platforms.*.mention_patterns", "regular expressions that count as addressing the bot").ignored();
    ALLOWED_CHANNELS: Vec<String> = list(
        "platforms.*.allowed_channels",
        "channels in which the bot answers (empty = all)",
    )
        .closed("in groups the bot answers only in chats with these ids", "[c9]");
    ALLOWED_CHATS: Vec<String> = list("platforms.*.allowed_chats", "groups in which the bot answers (empty = all)")
        .closed("in groups the bot answers only in chats with these ids", "[c9]");
    ALLOWED_TOPICS: Vec<String> =
        list("platforms.*.allowed_topics", "topics in which the bot answers (empty = all)").closed(GROUPS, "[7]");
    IGNORED_CHANNELS: Vec<String> = list("platforms.*.ignored_channels", "channels in which the bot never answers")
        .closed("the bot answers no message in a chat, thread or server with these ids", "[c1]");
    IGNORED_THREADS: Vec<String> = list("platforms.*.ignored_threads", "topics the bot never reads")
        .closed("the bot answers no message in a chat, thread or server with these ids", "[c1]");
    THREAD_REQUIRE_MENTION: bool = flag(
        "platforms.*.thread_require_mention",
        false,
        "require a mention also in threads in which the bot has answered",
    )
    .closed(GROUPS, "true");
    BOTS_INLINE_MENTION: bool = flag(
        "platforms.*.bots_require_inline_mention",
        false,
        "answer another bot only if its text mentions this bot; a reply alone is not enough",
    )
    .closed("the bot does not answer other bots there", "true");
    NOTICE_DELIVERY: NoticeDelivery = choice::<NoticeDelivery>(
        "platforms.*.notice_delivery",
        "public",
        "public, or private: only the addressed user sees notices",
    )
    .ignored();
    CHANNEL_PROMPTS: Option<Value> = table("platforms.*.channel_prompts", "extra system prompt per channel").ignored();
    CHANNEL_SKILLS: Option<Value> = table("platforms.*.channel_skill_bindings", "skills per channel").ignored();
    REACTIONS: bool = flag("platforms.*.reactions", false, "mark messages with emoji reactions").ignored();
}
