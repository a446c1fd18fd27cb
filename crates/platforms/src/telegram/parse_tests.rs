use serde_json::{Value, json};

use super::*;
use crate::Secret;
use crate::inbound::TEXT_LIMIT;
use crate::telegram::Config;

fn me() -> BotUser {
    BotUser { id: 42, username: "petasos_bot".into() }
}

fn platform() -> Platform {
    Platform::parse("telegram").expect("known")
}

fn raw_update(update: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(update).expect("JSON")
}

fn read_with(update: &Value, change: impl FnOnce(&mut Config)) -> Option<Inbound> {
    let mut config = Config::new(Secret::new("t"));
    change(&mut config);
    let filter = MessageFilter::new(&config).expect("valid");
    inbound(&raw_update(update), platform(), &me(), &filter).expect("readable")
}

fn read(update: &Value) -> Option<Inbound> {
    read_with(update, |_| {})
}

/// A message in a private chat, with `fields` added or replaced.
fn private(fields: Value) -> Value {
    let mut message = json!({
        "message_id": 9, "date": 1_700_000_000,
        "from": { "id": 7, "is_bot": false, "first_name": "Ada", "last_name": "L" },
        "chat": { "id": 7, "type": "private", "first_name": "Ada" },
    });
    merge(&mut message, fields);
    json!({ "update_id": 1001, "message": message })
}

fn group(fields: Value) -> Value {
    let mut message = private(json!({ "chat": { "id": -100, "type": "supergroup", "title": "Club" } }));
    merge(&mut message["message"], fields);
    message
}

fn merge(into: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else { panic!("an object") };
    for (key, value) in fields {
        into[key] = value;
    }
}

#[test]
fn parses_a_private_message() {
    let event = read(&private(json!({ "text": "hello" }))).expect("for us");
    let mut source = Source::new(platform(), ChatType::Dm, "7");
    source.chat_name = Some("Ada".into());
    source.user_id = Some("7".into());
    source.user_name = Some("Ada L".into());
    source.message_id = Some("9".into());
    let want = Inbound {
        source,
        dedup: "1001".into(),
        text: "hello".into(),
        attachments: vec![],
        quoted: None,
        context: None,
        sent_at: Some(Millis(1_700_000_000_000)),
        internal: false,
        reply_route: None,
        fingerprints: vec![],
    };
    assert_eq!(event, want);
}

#[test]
fn distinguishes_chats_and_topics() {
    let forum = json!({ "id": -100, "type": "supergroup", "title": "Club", "is_forum": true });
    let opening = json!({ "message_id": 1, "chat": forum, "forum_topic_created": { "name": "Plans" } });
    for (fields, chat_type, thread, topic) in [
        (json!({}), ChatType::Group, None, None),
        // Reply chains of a plain group are not topics.
        (json!({ "message_thread_id": 5 }), ChatType::Group, None, None),
        (json!({ "chat": forum }), ChatType::Forum, Some("1"), None),
        (
            json!({ "chat": forum, "message_thread_id": 5, "is_topic_message": true, "reply_to_message": opening }),
            ChatType::Forum,
            Some("5"),
            Some("Plans"),
        ),
        (json!({ "chat": { "id": 3, "type": "channel" } }), ChatType::Channel, None, None),
    ] {
        let mut update = group(fields);
        update["message"]["text"] = "x".into();
        let event = read(&update).expect("for us");
        let source = event.source;
        assert_eq!(source.chat_type, chat_type, "{update}");
        assert_eq!((source.thread_id.as_deref(), source.chat_topic.as_deref()), (thread, topic), "{update}");
        assert_eq!(event.quoted, None, "{update}");
    }
    let private_topic = private(json!({ "text": "x", "message_thread_id": 5, "is_topic_message": true }));
    assert_eq!(read(&private_topic).expect("for us").source.thread_id.as_deref(), Some("5"));
}

#[test]
fn channel_posts_and_anonymous_admins_have_a_chat_as_author() {
    let post = json!({ "update_id": 5, "channel_post": {
        "message_id": 1, "date": 1, "text": "news",
        "chat": { "id": -200, "type": "channel", "title": "News" },
        "sender_chat": { "id": -200, "type": "channel", "title": "News" },
    }});
    let source = read(&post).expect("for us").source;
    assert_eq!((source.user_id.as_deref(), source.user_name.as_deref()), (Some("-200"), Some("News")));

    let anonymous = group(json!({
        "text": "hi",
        "from": { "id": 1_087_968_824, "is_bot": true, "first_name": "Group" },
        "sender_chat": { "id": -100, "type": "supergroup", "title": "Club" },
    }));
    assert_eq!(read(&anonymous).expect("for us").source.user_id.as_deref(), Some("-100"));
}

#[test]
fn ignores_updates_not_for_the_bot() {
    for (why, update) in [
        (
            "our own words",
            group(json!({ "text": "x", "from": { "id": 42, "is_bot": true, "first_name": "P" } })),
        ),
        (
            "another bot",
            group(json!({ "text": "x", "from": { "id": 43, "is_bot": true, "first_name": "O" } })),
        ),
        ("another bot's command", group(json!({ "text": "/new@other_bot" }))),
        ("a join notice", group(json!({ "new_chat_members": [] }))),
        ("white space", private(json!({ "text": "  " }))),
        ("an edit", json!({ "update_id": 3, "edited_message": private(json!({ "text": "x" }))["message"] })),
        ("a kind from the future", json!({ "update_id": 3, "telepathy": { "strength": 9 } })),
    ] {
        assert_eq!(read(&update), None, "{why}");
    }
}

#[test]
fn reads_the_id_of_an_unreadable_update() {
    let filter = MessageFilter::new(&Config::new(Secret::new("t"))).expect("valid");
    for update in [
        json!({ "update_id": 77, "message": { "message_id": "nine" } }),
        json!({ "update_id": 77, "message": 5 }),
        json!({ "update_id": 77, "message": { "message_id": 1, "chat": null } }),
    ] {
        let raw = raw_update(&update);
        assert!(inbound(&raw, platform(), &me(), &filter).is_err(), "{update}");
        assert_eq!(update_id(&raw), Some(77));
    }
    assert_eq!(update_id(&raw_update(&json!({ "update_id": "x" }))), None);
    assert_eq!(update_id(&raw_update(&json!([]))), None);
}

#[test]
fn keeps_captions_with_attachments() {
    let file = |id: &str| json!({ "file_id": id });
    for (fields, kind, reference, name) in [
        (json!({ "photo": [file("small"), file("large")] }), "photo", "large", None),
        (json!({ "voice": file("v") }), "voice", "v", None),
        (json!({ "audio": { "file_id": "a", "title": "Song" } }), "audio", "a", Some("Song")),
        (json!({ "video": file("m") }), "video", "m", None),
        (json!({ "document": { "file_id": "d", "file_name": "a.pdf" } }), "document", "d", Some("a.pdf")),
        (json!({ "animation": file("g"), "document": file("g") }), "animation", "g", None),
        (json!({ "sticker": { "file_id": "s", "emoji": "🙂" } }), "sticker", "s", Some("🙂")),
        (json!({ "location": { "latitude": 52.5, "longitude": 13.4 } }), "location", "52.5,13.4", None),
        (json!({ "contact": { "phone_number": "+49", "first_name": "Bo" } }), "contact", "+49", Some("Bo")),
    ] {
        let mut update = private(fields);
        update["message"]["caption"] = "look".into();
        let event = read(&update).expect("for us");
        assert_eq!(event.text, "look");
        let want = Attachment {
            kind: kind.into(),
            reference: reference.into(),
            name: name.map(str::to_owned),
            ..Attachment::default()
        };
        assert_eq!(event.attachments, [want]);
    }
}

#[test]
fn reply_quotes_the_passage_or_the_whole_text() {
    let replied =
        json!({ "message_id": 3, "chat": { "id": 7, "type": "private" }, "text": "the whole text" });
    let whole = private(json!({ "text": "x", "reply_to_message": replied }));
    assert_eq!(read(&whole).expect("for us").quoted.as_deref(), Some("the whole text"));
    let passage = private(json!({ "text": "x", "reply_to_message": replied, "quote": { "text": "whole" } }));
    assert_eq!(read(&passage).expect("for us").quoted.as_deref(), Some("whole"));
}

#[test]
fn require_mention_drops_other_group_messages() {
    let ours = json!({ "message_id": 3, "chat": { "id": -100, "type": "supergroup" }, "text": "t",
                       "from": { "id": 42, "is_bot": true, "first_name": "P" } });
    let named = json!([{ "type": "text_mention", "offset": 0, "length": 1, "user": { "id": 42 } }]);
    for (fields, heard) in [
        (json!({ "text": "plain" }), false),
        (json!({ "text": "hey @petasos_bot" }), true),
        (json!({ "text": "yes", "reply_to_message": ours }), true),
        (json!({ "text": "P, hi", "entities": named }), true),
        (json!({ "text": "hermes, hi" }), true),
        (json!({ "photo": [{ "file_id": "p" }], "caption": "@petasos_bot look" }), true),
    ] {
        let update = group(fields);
        let event = read_with(&update, |config| {
            config.require_mention = true;
            config.mention_patterns = vec!["^hermes".into()];
        });
        assert_eq!(event.is_some(), heard, "{update}");
    }
}

#[test]
fn parses_a_pressed_button_with_its_callback_id() {
    let update = json!({ "update_id": 8, "callback_query": {
        "id": "555", "data": "ea:once:3",
        "from": { "id": 7, "first_name": "Ada" },
        "message": { "message_id": 30, "date": 0, "chat": { "id": -100, "type": "supergroup" },
                     "from": { "id": 42, "is_bot": true, "first_name": "P" } },
    }});
    let event = read(&update).expect("for us");
    assert_eq!((event.dedup.as_str(), event.text.as_str()), ("cb:555", "ea:once:3"));
    assert_eq!(callback_id(&event.dedup), Some("555"));
    assert_eq!(callback_id("1001"), None);
    assert_eq!(event.source.user_id.as_deref(), Some("7"));
    assert_eq!(event.source.message_id.as_deref(), Some("30"));
}

#[test]
fn truncates_oversized_texts_visibly() {
    let text = "ü".repeat(TEXT_LIMIT);
    let event = read(&private(json!({ "text": text }))).expect("for us");
    assert!(event.text.len() < TEXT_LIMIT + 100);
    assert!(event.text.ends_with(&format!("[cut here: the message was {} bytes long]", text.len())));
}
