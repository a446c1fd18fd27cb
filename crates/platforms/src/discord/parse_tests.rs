use serde_json::json;

use super::*;
use crate::Secret;
use crate::discord::Config;

const ME: u64 = 900;

fn gate() -> Gate {
    Gate::new(&Config::new(Secret::new("t")))
}

fn guild_room() -> Room {
    let channel = json!({ "id": "7", "type": 0, "name": "general", "guild_id": "1" });
    Room::read(&serde_json::from_value(channel).expect("a channel"), None)
}

fn thread_room() -> Room {
    let channel = json!({ "id": "8", "type": 11, "name": "a talk", "guild_id": "1", "parent_id": "7" });
    Room::read(&serde_json::from_value(channel).expect("a channel"), None)
}

fn spot<'a>(room: &'a Room, keys: &'a [String]) -> Spot<'a> {
    Spot { platform: Platform::parse("discord").expect("known"), me: ME, room, keys, joined: false }
}

fn message(change: Value) -> Message {
    let mut wire = json!({
        "id": "175928847299117063", "channel_id": "7", "type": 0, "content": "hello",
        "author": { "id": "5", "username": "ada", "global_name": "Ada" },
    });
    for (key, value) in change.as_object().expect("an object") {
        wire[key] = value.clone();
    }
    serde_json::from_value(wire).expect("a message")
}

fn read(change: Value, room: &Room) -> Option<Said> {
    said(&message(change), &spot(room, &["7".into()]), &gate())
}

#[test]
fn a_private_message_is_for_us_and_keeps_who_and_when() {
    let said = read(json!({}), &Room::default()).expect("for us");
    let inbound = said.inbound;
    assert_eq!(inbound.dedup, "175928847299117063");
    assert_eq!((inbound.text.as_str(), said.thread), ("hello", None));
    assert_eq!(inbound.sent_at, Some(Millis(1_462_015_105_796)));
    assert_eq!(inbound.source.chat_type, ChatType::Dm);
    assert_eq!(inbound.source.chat_id.as_deref(), Some("7"));
    assert_eq!(inbound.source.user_name.as_deref(), Some("Ada"));
    assert_eq!(inbound.source.chat_name.as_deref(), Some("Ada"));
    assert_eq!(inbound.source.message_id.as_deref(), Some("175928847299117063"));
}

#[test]
fn a_mention_in_a_server_is_for_us_and_opens_a_thread_named_after_it() {
    let change = json!({ "guild_id": "1", "content": "<@!900> what is\nup?", "mentions": [{ "id": "900" }] });
    let said = read(change, &guild_room()).expect("for us");
    assert_eq!(said.inbound.text, "what is\nup?");
    assert_eq!(said.thread.as_deref(), Some("what is"));
    assert_eq!(said.inbound.source.chat_type, ChatType::Group);
    assert_eq!(said.inbound.source.scope_id.as_deref(), Some("1"));
    let moved = moved(said.inbound, 99, "what is").source;
    assert_eq!((moved.chat_id.as_deref(), moved.thread_id.as_deref()), (Some("99"), Some("99")));
    assert_eq!((moved.chat_type, moved.parent_chat_id.as_deref()), (ChatType::Thread, Some("7")));
    assert_eq!(moved.message_id, None);
}

#[test]
fn a_thread_is_a_place_of_its_own() {
    let room = thread_room();
    let keys = ["8".to_owned()];
    let here = Spot { joined: true, ..spot(&room, &keys) };
    let said = said(&message(json!({ "channel_id": "8", "guild_id": "1" })), &here, &gate()).expect("ours");
    let source = said.inbound.source;
    assert_eq!(source.chat_type, ChatType::Thread);
    assert_eq!((source.chat_id.as_deref(), source.thread_id.as_deref()), (Some("8"), Some("8")));
    assert_eq!(source.parent_chat_id.as_deref(), Some("7"));
    assert_eq!(said.thread, None);
}

#[test]
fn what_is_not_for_us_is_nothing() {
    for (what, change) in [
        ("our own words", json!({ "author": { "id": "900", "bot": true } })),
        ("a pin notice", json!({ "type": 6 })),
        ("a thread's first line", json!({ "type": 21 })),
        ("another bot", json!({ "author": { "id": "6", "bot": true } })),
        ("nothing at all", json!({ "content": "  " })),
    ] {
        assert_eq!(read(change, &Room::default()), None, "{what}");
    }
    assert_eq!(read(json!({ "guild_id": "1" }), &guild_room()), None, "talk among others");
    assert_eq!(read(json!({}), &guild_room()), None, "a message from REST does not name its server");
}

#[test]
fn attachments_and_quotes_come_along() {
    let change = json!({
        "type": 19, "content": "", "referenced_message": { "content": "before" },
        "attachments": [
            { "id": "1", "filename": "a.png", "content_type": "image/png", "url": "https://e.org/a" },
            { "id": "2", "filename": "b.bin", "url": "https://e.org/b" },
        ],
    });
    let inbound = read(change, &Room::default()).expect("for us").inbound;
    assert_eq!(inbound.quoted.as_deref(), Some("before"));
    let kinds: Vec<&str> = inbound.attachments.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds, ["photo", "document"]);
    assert_eq!(inbound.attachments[0].name.as_deref(), Some("a.png"));
}

#[test]
fn only_our_own_name_is_taken_out() {
    for (text, want) in [
        ("<@900> hello", "hello"),
        ("hello <@!900>", "hello"),
        ("<@900>", "<@900>"),
        ("<@9000> hello", "<@9000> hello"),
    ] {
        assert_eq!(without_address(text, ME), want);
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
    asked(&interaction, &spot(&Room::default(), &["7".into()]), &gate())
}

#[test]
fn a_slash_command_reads_like_a_typed_one() {
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
fn a_pressed_button_says_what_it_carries() {
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
fn a_role_is_vouched_for_where_discord_says_who_has_it() {
    let mut config = Config::new(Secret::new("t"));
    config.allowed_roles = vec!["77".into()];
    let gate = Gate::new(&config);
    let room = guild_room();
    for (roles, want) in [(json!(["1", "77"]), true), (json!(["1"]), false), (json!([]), false)] {
        let change = json!({
            "guild_id": "1", "content": "<@900> hi", "mentions": [{ "id": "900" }], "member": { "roles": roles },
        });
        let said = said(&message(change), &spot(&room, &["7".into()]), &gate).expect("for us");
        assert_eq!(said.inbound.source.role_authorized, want, "{roles}");
    }
    let private = read(json!({}), &Room::default()).expect("for us");
    assert!(!private.inbound.source.role_authorized);
}
