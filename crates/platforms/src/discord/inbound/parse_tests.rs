use serde_json::json;

use super::*;
use crate::Secret;
use crate::discord::Config;

const ME: u64 = 900;

fn filter() -> MessageFilter {
    MessageFilter::new(&Config::new(Secret::new("t")))
}

fn guild_room() -> ChannelInfo {
    let channel = json!({ "id": "7", "type": 0, "name": "general", "guild_id": "1" });
    ChannelInfo::from_wire(&serde_json::from_value(channel).expect("a channel"), None)
}

fn thread_room() -> ChannelInfo {
    let channel = json!({ "id": "8", "type": 11, "name": "a talk", "guild_id": "1", "parent_id": "7" });
    ChannelInfo::from_wire(&serde_json::from_value(channel).expect("a channel"), None)
}

fn context<'a>(info: &'a ChannelInfo, names: &'a [String]) -> ChannelContext<'a> {
    ChannelContext {
        platform: Platform::parse("discord").expect("known"),
        me: ME,
        info,
        names,
        joined: false,
    }
}

fn message(change: Value) -> DiscordMessage {
    let mut wire = json!({
        "id": "175928847299117063", "channel_id": "7", "type": 0, "content": "hello",
        "author": { "id": "5", "username": "ada", "global_name": "Ada" },
    });
    for (key, value) in change.as_object().expect("an object") {
        wire[key] = value.clone();
    }
    serde_json::from_value(wire).expect("a message")
}

fn read(change: Value, info: &ChannelInfo) -> Option<ParsedMessage> {
    message_event(&message(change), &context(info, &["7".into()]), &filter())
}

#[test]
fn parses_author_and_time_of_a_private_message() {
    let parsed = read(json!({}), &ChannelInfo::default()).expect("for us");
    let inbound = parsed.inbound;
    assert_eq!(inbound.dedup, "175928847299117063");
    assert_eq!((inbound.text.as_str(), parsed.thread), ("hello", None));
    assert_eq!(inbound.sent_at, Some(Millis(1_462_015_105_796)));
    assert_eq!(inbound.source.chat_type, ChatType::Dm);
    assert_eq!(inbound.source.chat_id.as_deref(), Some("7"));
    assert_eq!(inbound.source.user_name.as_deref(), Some("Ada"));
    assert_eq!(inbound.source.chat_name.as_deref(), Some("Ada"));
    assert_eq!(inbound.source.message_id.as_deref(), Some("175928847299117063"));
}

#[test]
fn server_mention_opens_a_thread_named_after_it() {
    let change = json!({ "guild_id": "1", "content": "<@!900> what is\nup?", "mentions": [{ "id": "900" }] });
    let parsed = read(change, &guild_room()).expect("for us");
    assert_eq!(parsed.inbound.text, "what is\nup?");
    assert_eq!(parsed.thread.as_deref(), Some("what is"));
    assert_eq!(parsed.inbound.source.chat_type, ChatType::Group);
    assert_eq!(parsed.inbound.source.scope_id.as_deref(), Some("1"));
    let moved = into_thread(parsed.inbound, 99, "what is").source;
    assert_eq!((moved.chat_id.as_deref(), moved.thread_id.as_deref()), (Some("99"), Some("99")));
    assert_eq!((moved.chat_type, moved.parent_chat_id.as_deref()), (ChatType::Thread, Some("7")));
    assert_eq!(moved.message_id, None);
}

#[test]
fn threads_have_their_own_chat_id() {
    let info = thread_room();
    let names = ["8".to_owned()];
    let here = ChannelContext { joined: true, ..context(&info, &names) };
    let parsed = message_event(&message(json!({ "channel_id": "8", "guild_id": "1" })), &here, &filter())
        .expect("ours");
    let source = parsed.inbound.source;
    assert_eq!(source.chat_type, ChatType::Thread);
    assert_eq!((source.chat_id.as_deref(), source.thread_id.as_deref()), (Some("8"), Some("8")));
    assert_eq!(source.parent_chat_id.as_deref(), Some("7"));
    assert_eq!(parsed.thread, None);
}

#[test]
fn ignores_messages_not_for_the_bot() {
    for (what, change) in [
        ("our own words", json!({ "author": { "id": "900", "bot": true } })),
        ("a pin notice", json!({ "type": 6 })),
        ("a thread's first line", json!({ "type": 21 })),
        ("another bot", json!({ "author": { "id": "6", "bot": true } })),
        ("nothing at all", json!({ "content": "  " })),
    ] {
        assert_eq!(read(change, &ChannelInfo::default()), None, "{what}");
    }
    assert_eq!(read(json!({ "guild_id": "1" }), &guild_room()), None, "talk among others");
    assert_eq!(read(json!({}), &guild_room()), None, "a message from REST does not name its server");
}

#[test]
fn parses_attachments_and_quotes() {
    let change = json!({
        "type": 19, "content": "", "referenced_message": { "content": "before" },
        "attachments": [
            { "id": "1", "filename": "a.png", "content_type": "image/png", "url": "https://e.org/a" },
            { "id": "2", "filename": "b.bin", "url": "https://e.org/b" },
        ],
    });
    let inbound = read(change, &ChannelInfo::default()).expect("for us").inbound;
    assert_eq!(inbound.quoted.as_deref(), Some("before"));
    let kinds: Vec<&str> = inbound.attachments.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds, ["photo", "document"]);
    assert_eq!(inbound.attachments[0].name.as_deref(), Some("a.png"));
}

#[test]
fn strips_only_mentions_of_the_bot() {
    for (text, want) in [
        ("<@900> hello", "hello"),
        ("hello <@!900>", "hello"),
        ("<@900>", "<@900>"),
        ("<@9000> hello", "<@9000> hello"),
    ] {
        assert_eq!(strip_mentions(text, ME), want);
    }
}

fn interaction(change: Value) -> Option<Inbound> {
    let mut wire = json!({
        "id": "175928847299117063", "token": "tok", "type": 2, "channel_id": "7",
        "user": { "id": "5", "username": "ada" }, "data": { "name": "status" },
    });
    for (key, value) in change.as_object().expect("an object") {
        wire[key] = value.clone();
    }
    let interaction = serde_json::from_value(wire).expect("an interaction");
    interaction_event(&interaction, &context(&ChannelInfo::default(), &["7".into()]), &filter())
}

#[test]
fn parses_a_slash_command_as_typed_text() {
    let inbound = interaction(json!({})).expect("for us");
    assert_eq!((inbound.text.as_str(), inbound.dedup.as_str()), ("/status", "ix:175928847299117063"));
    assert_eq!(interaction_id(&inbound.dedup), Some("175928847299117063"));
    assert_eq!(inbound.source.message_id, None);
    let options = json!({ "data": { "name": "model", "options": [
        { "name": "set", "options": [{ "name": "args", "value": "opus" }, { "name": "n", "value": 3 }] },
    ] } });
    assert_eq!(interaction(options).expect("for us").text, "/model set opus 3");
}

#[test]
fn parses_a_pressed_button_as_its_data() {
    let pressed = json!({
        "type": 3, "guild_id": "1", "member": { "user": { "id": "6", "username": "bob" } },
        "data": { "custom_id": "ea:once:1" }, "message": { "id": "44" },
    });
    let inbound = interaction(pressed).expect("for us");
    assert_eq!(inbound.text, "ea:once:1");
    assert_eq!(inbound.source.user_id.as_deref(), Some("6"));
    assert_eq!(inbound.source.message_id.as_deref(), Some("44"));
    assert_eq!(interaction(json!({ "type": 4 })), None, "a half-typed command");
}

#[test]
fn authorises_members_with_an_allowed_role() {
    let mut config = Config::new(Secret::new("t"));
    config.allowed_roles = vec!["77".into()];
    let filter = MessageFilter::new(&config);
    let info = guild_room();
    for (roles, want) in [(json!(["1", "77"]), true), (json!(["1"]), false), (json!([]), false)] {
        let change = json!({
            "guild_id": "1", "content": "<@900> hi", "mentions": [{ "id": "900" }], "member": { "roles": roles },
        });
        let parsed =
            message_event(&message(change), &context(&info, &["7".into()]), &filter).expect("for us");
        assert_eq!(parsed.inbound.source.role_authorized, want, "{roles}");
    }
    let private = read(json!({}), &ChannelInfo::default()).expect("for us");
    assert!(!private.inbound.source.role_authorized);
}
