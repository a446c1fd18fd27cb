//! Settings that any platform may have. `telegram.rs`, `discord.rs`, `slack.rs` and `webhook.rs` say which of them the
//! adapter of a platform reads; the wiring enforces what restricts something and is not read by an adapter.

use petasos_core::Secret;
use serde_json::Value;

use crate::choices::{Bots, ChatPolicy, NoticeDelivery, ReplyMode, Strangers};
use crate::key::{choice, flag, list, maybe, maybe_choice, platform_keys, secret, table, text, text_or};

const GROUPS: &str = "nothing is answered in groups there: its adapter cannot apply this";

platform_keys! {
    // Who may talk, and where notifications go: on every platform.
    ALLOWED_USERS: Vec<String> =
        list("platforms.*.allowed_users", "people (ids) who may talk to the agent there")
            .env(&["{P}_ALLOWED_USERS"])
            .also(&["platforms.*.allow_from"]);
    ALLOW_ALL_USERS: bool =
        flag("platforms.*.allow_all_users", false, "anybody may, there").env(&["{P}_ALLOW_ALL_USERS"]);
    GROUP_ALLOWED_USERS: Vec<String> = list("platforms.*.group_allowed_users", "people who may, in groups only")
        .env(&["{P}_GROUP_ALLOWED_USERS"])
        .also(&["platforms.*.group_allow_from"]);
    GROUP_ALLOWED_CHATS: Vec<String> = list("platforms.*.group_allowed_chats", "groups in which everyone may")
        .env(&["{P}_GROUP_ALLOWED_CHATS"]);
    ALLOW_BOTS: Bots = choice::<Bots>("platforms.*.allow_bots", "none", "answer other bots").env(&["{P}_ALLOW_BOTS"]);
    STRANGERS: Option<Strangers> = maybe_choice::<Strangers>(
        "platforms.*.unauthorized_dm_behavior",
        "as unauthorized_dm_behavior, for this platform",
    );
    DM_POLICY: Option<ChatPolicy> = maybe_choice::<ChatPolicy>(
        "platforms.*.dm_policy",
        "who may write directly: those on a list; also those who are paired; nobody. open lets in nobody else",
    )
    .env(&["{P}_DM_POLICY"]);
    GROUP_POLICY: Option<ChatPolicy> = maybe_choice::<ChatPolicy>(
        "platforms.*.group_policy",
        "who may write in groups: those on a list; also those who are paired; nobody. open lets in nobody else",
    )
    .env(&["{P}_GROUP_POLICY"]);
    ADMINS: Vec<String> = list("platforms.*.allow_admin_from", "people who may use every command");
    USER_COMMANDS: Vec<String> = list("platforms.*.user_allowed_commands", "commands for everybody else");
    GROUP_ADMINS: Vec<String> =
        list("platforms.*.group_allow_admin_from", "people who may use every command in groups");
    GROUP_COMMANDS: Vec<String> =
        list("platforms.*.group_user_allowed_commands", "commands for everybody else in groups");
    HOME_CHAT: Option<String> = text("platforms.*.home_channel.chat_id", "chat for notifications")
        .env(&["{P}_HOME_CHANNEL"])
        .also(&["platforms.*.home_channel"]);
    HOME_THREAD: Option<String> = text("platforms.*.home_channel.thread_id", "topic in that chat")
        .env(&["{P}_HOME_CHANNEL_THREAD_ID"]);
    HOME_NAME: String = text_or("platforms.*.home_channel.name", "Home", "name of that chat")
        .verbatim()
        .env(&["{P}_HOME_CHANNEL_NAME"]);
    RESTART_NOTICE: bool = flag("platforms.*.gateway_restart_notification", true, "tell chats about restarts");
    // What adapters read.
    ENABLED: Option<bool> = maybe("platforms.*.enabled", "connect to this platform")
        .closed("nothing of this platform is answered while it is false", "false");
    TOKEN: Option<Secret> =
        secret("platforms.*.token", "credential of the bot").env(&["{P}_BOT_TOKEN"]).ignored();
    API_KEY: Option<Secret> =
        secret("platforms.*.api_key", "credential of the account").env(&["{P}_API_KEY"]).ignored();
    PROXY: Option<Secret> = secret("platforms.*.proxy", "proxy for this platform").ignored();
    EXTRA: Option<Value> = table("platforms.*.extra", "settings that only this platform has").ignored();
    REPLY_TO: ReplyMode =
        choice::<ReplyMode>("platforms.*.reply_to_mode", "first", "which parts of an answer quote the question").ignored();
    TYPING: bool = flag("platforms.*.typing_indicator", true, "show that the agent is writing").ignored();
    TYPING_TEXT: Option<String> =
        text("platforms.*.typing_status_text", "text that is shown while the agent is writing").ignored();
    CHANNEL_OVERRIDES: Option<Value> =
        table("platforms.*.channel_overrides", "model, provider and system_prompt per channel").closed(
            "nothing is answered in a channel with a model or provider of its own: another model would get its messages",
            "{c1: {model: other}}",
        );
    REQUIRE_MENTION: bool =
        flag("platforms.*.require_mention", false, "in groups, answer only when addressed")
            .env(&["{P}_REQUIRE_MENTION"])
            .closed(GROUPS, "true");
    STRICT_MENTION: bool =
        flag("platforms.*.strict_mention", false, "in groups, answer only to an explicit mention").closed(GROUPS, "true");
    FREE_CHANNELS: Vec<String> =
        list("platforms.*.free_response_channels", "channels where no mention is needed").ignored();
    FREE_CHATS: Vec<String> =
        list("platforms.*.free_response_chats", "chats where no mention is needed").ignored();
    MENTION_PATTERNS: Vec<String> =
        list("platforms.*.mention_patterns", "regular expressions that count as addressing the bot").ignored();
    ALLOWED_CHANNELS: Vec<String> = list("platforms.*.allowed_channels", "channels the bot answers in; empty: all")
        .closed("in groups only chats with one of these ids are answered", "[c9]");
    ALLOWED_CHATS: Vec<String> = list("platforms.*.allowed_chats", "groups the bot answers in; empty: all")
        .closed("in groups only chats with one of these ids are answered", "[c9]");
    ALLOWED_TOPICS: Vec<String> =
        list("platforms.*.allowed_topics", "topics the bot answers in; empty: all").closed(GROUPS, "[7]");
    IGNORED_CHANNELS: Vec<String> = list("platforms.*.ignored_channels", "channels the bot never answers in")
        .closed("nothing is answered in a chat, thread or server with one of these ids", "[c1]");
    IGNORED_THREADS: Vec<String> = list("platforms.*.ignored_threads", "topics the bot never reads")
        .closed("nothing is answered in a chat, thread or server with one of these ids", "[c1]");
    THREAD_REQUIRE_MENTION: bool = flag(
        "platforms.*.thread_require_mention",
        false,
        "also in threads in which the bot has spoken",
    )
    .closed(GROUPS, "true");
    BOTS_INLINE_MENTION: bool = flag(
        "platforms.*.bots_require_inline_mention",
        false,
        "another bot must mention this one in its text; answering it is not enough",
    )
    .closed("other bots are not answered there", "true");
    NOTICE_DELIVERY: NoticeDelivery = choice::<NoticeDelivery>(
        "platforms.*.notice_delivery",
        "public",
        "private: only the person addressed sees notices",
    )
    .ignored();
    CHANNEL_PROMPTS: Option<Value> = table("platforms.*.channel_prompts", "a prompt per channel").ignored();
    CHANNEL_SKILLS: Option<Value> = table("platforms.*.channel_skill_bindings", "skills per channel").ignored();
    REACTIONS: bool = flag("platforms.*.reactions", false, "mark messages with emoji reactions").ignored();
}
