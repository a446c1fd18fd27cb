use alloc::vec;

use super::*;

fn read(value: Value) -> Event {
    Event::read(&value).unwrap()
}

fn parse_changed(change: impl FnOnce(&mut Value)) -> Event {
    let mut event = json!({
        "text": "hi", "message_type": "text", "message_id": "m1",
        "source": {"platform": "discord", "chat_id": "c1", "chat_type": "group", "user_id": "u1"},
    });
    change(&mut event);
    read(event)
}

#[test]
fn reads_minimal_event() {
    let event = read(json!({
        "text": "buffered", "message_type": "text",
        "source": {"platform": "discord", "chat_id": "c1", "chat_type": "dm"},
    }));
    assert_eq!((event.text.as_str(), event.message_id.as_deref()), ("buffered", None));
    assert_eq!(event.source, Source::new(Platform::parse("discord").unwrap(), ChatType::Dm, "c1"));
    let event = read(json!({"source": {}}));
    assert_eq!((event.source.platform.as_str(), event.source.chat_type), ("relay", ChatType::Dm));
}

#[test]
fn refuses_event_without_source() {
    for (value, want) in [
        (json!(null), Malformed::NotAnObject),
        (json!("x"), Malformed::NotAnObject),
        (json!([]), Malformed::NotAnObject),
        (json!({"text": "x"}), Malformed::Field("source")),
        (json!({"source": "x"}), Malformed::Field("source")),
    ] {
        assert_eq!(Event::read(&value), Err(want), "{value}");
    }
}

#[test]
fn reads_scalars_as_text() {
    let event = read(json!({
        "text": 5, "message_id": 77, "media_urls": "x", "media": [1], "context": 7, "reply_to": "y",
        "source": {"platform": 3, "chat_id": -100, "user_id": 42, "thread_id": [], "user_name": {}},
    }));
    assert_eq!(event.text, "5");
    assert_eq!(event.message_id.as_deref(), Some("77"));
    assert_eq!(event.source.chat_id.as_deref(), Some("-100"));
    assert_eq!(event.source.user_id.as_deref(), Some("42"));
    assert_eq!((event.source.thread_id, event.source.user_name), (None, None));
    assert_eq!(event.source.platform.as_str(), "relay");
    assert!(event.files.is_empty() && event.context.is_empty() && event.quoted.is_none());
}

#[test]
fn reads_fields_of_older_and_newer_connectors() {
    assert_eq!(parse_changed(|event| event["message_type"] = "image".into()).kind, "photo");
    assert_eq!(parse_changed(|event| event["message_type"] = "hologram".into()).kind, "text");
    let named = parse_changed(|event| {
        event["source"]["user_handle"] = "ann_1".into();
        event["source"]["user_display_name"] = "Ann".into();
    });
    assert_eq!(named.source.user_name.as_deref(), Some("Ann"));
    let group = parse_changed(|event| event["source"]["chat_type"] = "supergroup".into());
    assert_eq!(group.source.chat_type, ChatType::Group);
    assert_eq!(parse_changed(|event| event["source"]["guild_id"] = "g".into()).source.scope_id, None);
}

#[test]
fn identifies_files_by_address() {
    let event = parse_changed(|event| {
        event["message_type"] = "photo".into();
        event["media_urls"] = json!(["https://c/1", "https://c/2", 5, ""]);
        event["media"] = json!([
            {"url": "https://c/2", "kind": "document", "mime": "text/plain", "size": 7, "filename": "a.txt"},
            {"url": "https://c/3", "kind": "voice"}, {"kind": "audio"}, null,
        ]);
    });
    let files: Vec<_> =
        event.files.iter().map(|file| (file.reference.as_str(), file.kind.as_str())).collect();
    assert_eq!(files, vec![("https://c/1", "photo"), ("https://c/2", "document"), ("https://c/3", "voice")]);
    assert_eq!((event.files[1].size, event.files[1].name.as_deref()), (Some(7), Some("a.txt")));
}

#[test]
fn deduplicates_by_message_or_buffer_and_content() {
    let digest = || "d1".to_owned();
    assert_eq!(parse_changed(|_| {}).identity(Some("b1"), digest).as_deref(), Some("c1:m1"));
    assert_eq!(parse_changed(|_| {}).identity(None, digest).as_deref(), Some("c1:m1"));
    let edited = parse_changed(|event| event["source"]["message_is_edit"] = true.into());
    assert_eq!(edited.identity(Some("b1"), digest).as_deref(), Some("buffer:b1:d1"));
    assert_eq!(edited.identity(None, digest), None);
    let pressed =
        |event: &str| parse_changed(|it| it["event_id"] = event.into()).identity(Some("b1"), digest);
    assert_eq!(pressed("e1").as_deref(), Some("c1:event:e1"));
    assert_ne!(pressed("e1"), pressed("e2"), "two presses below one message");
    let nameless = parse_changed(|event| event["message_id"] = Value::Null);
    assert_eq!(nameless.identity(Some("b1"), digest).as_deref(), Some("buffer:b1:d1"));
    assert_ne!(
        nameless.identity(Some("b1"), digest),
        nameless.identity(Some("b1"), || "d2".to_owned()),
        "a connector that starts its numbers again"
    );
}

#[test]
fn reads_context_in_groups_if_supported() {
    let event =
        parse_changed(|event| event["context"] = json!([{"text": "before", "source": {"user_name": "Bo"}}]));
    let inbound = event.clone().inbound("x".into(), true);
    assert_eq!(inbound.context.as_deref(), Some("[Recent channel messages]\nBo: before"));
    assert_eq!(inbound.text, "hi", "what was said stays what was said");
    assert_eq!(event.clone().inbound("x".into(), false).context, None);
    let mut private = event;
    private.source.chat_type = ChatType::Dm;
    assert_eq!(private.inbound("x".into(), true).context, None);
}

#[test]
fn choice_replaces_missing_text() {
    let chosen = json!({"prompt_id": "p", "option_id": "yes"});
    let event = parse_changed(|event| {
        event["text"] = "".into();
        event["prompt_response"] = chosen.clone();
    });
    assert_eq!(event.inbound("x".into(), false).text, "yes");
    assert_eq!(
        parse_changed(|event| event["prompt_response"] = json!({"prompt_id": "p"})).prompt_response,
        None
    );
}

#[test]
fn gateway_reads_encoded_events() {
    let file = Attachment { kind: "voice".into(), reference: "f1".into(), ..Attachment::default() };
    let mut heard =
        parse_changed(|event| event["source"]["scope_id"] = "g1".into()).inbound("x".into(), false);
    heard.quoted = Some("before".into());
    heard.sent_at = Some(Millis(1_700_000_000_123));
    heard.attachments = vec![file];
    let event = read(Event::to_value(&heard, |file| Some(format!("https://c/{}", file.reference))));
    assert_eq!(event.kind, "voice");
    let again = event.inbound("x".into(), false);
    assert_eq!(again.attachments[0].reference, "https://c/f1");
    assert_eq!(Inbound { attachments: vec![], ..again }, Inbound { attachments: vec![], ..heard });
}

#[test]
fn source_fields_survive_the_wire() {
    let whole = Source {
        chat_name: Some("room".into()),
        user_id: Some("u1".into()),
        user_name: Some("Ann".into()),
        thread_id: Some("t1".into()),
        chat_topic: Some("topic".into()),
        user_id_alt: Some("u2".into()),
        chat_id_alt: Some("c2".into()),
        scope_id: Some("g1".into()),
        parent_chat_id: Some("p1".into()),
        message_id: Some("m1".into()),
        profile: Some("work".into()),
        is_bot: true,
        ..Source::new(Platform::parse("discord").unwrap(), ChatType::Thread, "c1")
    };
    let heard = Inbound { source: whole.clone(), ..parse_changed(|_| {}).inbound("x".into(), false) };
    assert_eq!(read(Event::to_value(&heard, |_| None)).source, whole);
}

#[test]
fn files_keep_metadata_and_are_limited() {
    let file = Attachment {
        kind: "document".into(),
        name: Some("a.txt".into()),
        mime: Some("text/plain".into()),
        size: Some(7),
        reference: "https://c/1".into(),
        ..Attachment::default()
    };
    let mut heard = parse_changed(|_| {}).inbound("x".into(), false);
    heard.attachments = vec![file.clone()];
    assert_eq!(read(Event::to_value(&heard, |file| Some(file.reference.clone()))).files, [file]);
    let urls: Vec<_> = (0..60).map(|number| format!("https://c/{number}")).collect();
    assert_eq!(parse_changed(|event| event["media_urls"] = json!(urls)).files.len(), 50);
}

#[test]
fn slash_marks_a_command() {
    for (text, kind) in [("/new", "command"), ("new/", "text"), ("", "text")] {
        let heard = Inbound { text: text.into(), ..parse_changed(|_| {}).inbound("x".into(), false) };
        assert_eq!(Event::to_value(&heard, |_| None)["message_type"], kind, "{text}");
    }
}
