//! The Bot API without faults: responses, errors, the long poll and the user's view.

use std::time::{Duration, Instant};

use petasos_fakes::telegram::{BOT_USERNAME, Incoming, Outcome, VisibleChange};
use petasos_fakes::{Retention, Telegram};
use serde_json::{Value, json};

use crate::client::{TIMEOUT, call_bot, call_bot_in_background, poll, post, send_message};

#[track_caller]
fn check(fake: &Telegram, method: &str, params: Value, want: Result<(), (u16, &str)>) {
    let reply = call_bot(fake.port(), method, &params).unwrap();
    let body = reply.json();
    let (status, why) = want.err().unwrap_or((200, ""));
    assert_eq!(reply.status, status, "{method} {params}: {body}");
    assert_eq!(body["ok"], status == 200, "{body}");
    if status != 200 {
        assert_eq!(body["error_code"], status, "{body}");
        assert!(body["description"].as_str().unwrap().contains(why), "{method} {params}: {body}");
    }
}

#[test]
fn methods_respond_like_the_real_service() {
    let fake = Telegram::start().unwrap();
    let pushed = fake.push(Incoming::text(1, 1, "hi"));
    let press = fake.push_callback(1, 1, 2, "x");
    assert_eq!((pushed.message_id, pushed.update_id, press), (1, 1, 2));
    fake.add_file("doc", "content");
    let long = "é".repeat(4096);
    let escaped = "\\.".repeat(4096);
    let wide = "😀".repeat(2049);
    let ok = Ok(());
    let bad = |why| Err((400, why));
    for (method, params, want) in [
        ("getMe", json!({}), ok),
        ("GETME", json!({}), ok),
        ("setWebhook", json!({"url": "http://127.0.0.1:1/x", "secret_token": "s"}), ok),
        ("setWebhook", json!({"url": "ftp://x"}), bad("bad webhook")),
        ("getUpdates", json!({}), Err((409, "can't use getUpdates method while webhook is active"))),
        ("deleteWebhook", json!({}), ok),
        ("getWebhookInfo", json!({}), ok),
        ("setMyCommands", json!({"commands": [{"command": "a", "description": "b"}]}), ok),
        ("sendMessage", json!({"chat_id": 1, "text": "one"}), ok),
        ("sendMessage", json!({"chat_id": "1", "text": long}), ok),
        ("sendMessage", json!({"chat_id": 1, "text": escaped, "parse_mode": "MarkdownV2"}), ok),
        ("sendMessage", json!({"chat_id": 1, "text": wide}), bad("Bad Request: message is too long")),
        ("sendMessage", json!({"chat_id": 1, "text": " \n"}), bad("message text is empty")),
        ("sendMessage", json!({"text": "a"}), bad("chat_id is empty")),
        (
            "sendMessage",
            json!({"chat_id": 1, "text": "a.", "parse_mode": "MarkdownV2"}),
            bad("can't parse entities"),
        ),
        (
            "sendMessage",
            json!({"chat_id": 1, "text": "a", "parse_mode": "wiki"}),
            bad("unsupported parse_mode"),
        ),
        ("sendMessage", json!({"chat_id": 1, "text": "r", "reply_parameters": {"message_id": 1}}), ok),
        (
            "sendMessage",
            json!({"chat_id": 1, "text": "r", "reply_to_message_id": 99}),
            bad("to be replied not found"),
        ),
        (
            "sendMessage",
            json!({"chat_id": 1, "text": "t", "message_thread_id": 1}),
            bad("message thread not found"),
        ),
        ("editMessageText", json!({"chat_id": 1, "message_id": 2, "text": "two"}), ok),
        (
            "editMessageText",
            json!({"chat_id": 1, "message_id": 2, "text": "two"}),
            bad("message is not modified: "),
        ),
        (
            "editMessageText",
            json!({"chat_id": 1, "message_id": 2, "text": "two", "parse_mode": "MarkdownV2"}),
            bad("message is not modified: "),
        ),
        (
            "editMessageText",
            json!({"chat_id": 1, "message_id": 2, "text": "*two*", "parse_mode": "MarkdownV2"}),
            ok,
        ),
        (
            "editMessageText",
            json!({"chat_id": 1, "message_id": 1, "text": "a"}),
            bad("message to edit not found"),
        ),
        ("deleteMessage", json!({"chat_id": 1, "message_id": 3}), ok),
        ("deleteMessage", json!({"chat_id": 1, "message_id": 99}), bad("message to delete not found")),
        ("sendChatAction", json!({"chat_id": 1, "action": "typing"}), ok),
        ("sendChatAction", json!({"chat_id": 1}), bad("wrong parameter action")),
        (
            "setMessageReaction",
            json!({"chat_id": 1, "message_id": 1, "reaction": [{"type": "emoji", "emoji": "👀"}]}),
            ok,
        ),
        ("setMessageReaction", json!({"chat_id": 1, "message_id": 99}), bad("message to react not found")),
        ("sendMessageDraft", json!({"chat_id": 1, "draft_id": 5, "text": "dra"}), ok),
        ("answerCallbackQuery", json!({"callback_query_id": "cb1"}), ok),
        ("answerCallbackQuery", json!({"callback_query_id": "cb2"}), bad("query is too old")),
        ("createForumTopic", json!({"chat_id": -5, "name": "t"}), ok),
        (
            "sendMessage",
            json!({"chat_id": -5, "text": "t", "message_thread_id": 1000}),
            bad("thread not found"),
        ),
        ("getFile", json!({"file_id": "doc"}), ok),
        ("getFile", json!({"file_id": "none"}), bad("invalid file_id")),
        ("sendSmell", json!({"chat_id": 1}), Err((404, "Not Found"))),
    ] {
        check(&fake, method, params, want);
    }
    assert_eq!(fake.texts(1), ["two".into(), ".".repeat(4096), "r".to_owned()]);
    assert_eq!(fake.visible(1)[2].reply_to, Some(1));
    assert_eq!(fake.read(|state| state.reactions(1, 1)), ["👀"]);
    assert_eq!(fake.read(|state| state.draft(1).map(|draft| draft.text.clone())).as_deref(), Some("dra"));
    let file = post(fake.port(), "/file/bot1:token/doc", "", b"").unwrap();
    assert_eq!(file.body, b"content");
    let me = call_bot(fake.port(), "getMe", &json!({})).unwrap().json();
    assert_eq!(me["result"]["username"], BOT_USERNAME);
}

#[test]
fn wrong_token_gets_401_or_404_by_its_shape() {
    let fake = Telegram::start().unwrap();
    fake.expect_token("1:token");
    for (token, want) in
        [("1:token", 200), ("1:other", 401), ("other", 404), ("a:b", 404), ("1%3Atoken", 200)]
    {
        let reply = post(fake.port(), &format!("/bot{token}/getMe"), "", b"").unwrap();
        assert_eq!(reply.status, want, "{token}");
    }
    let refused = fake.calls().iter().filter(|call| call.outcome != Outcome::Ok).count();
    assert_eq!(refused, 3);
}

#[test]
fn poll_waits_for_an_update_and_confirms_by_offset() {
    let fake = Telegram::start().unwrap();
    let waiting = call_bot_in_background(fake.port(), "getUpdates", json!({"timeout": 50}));
    assert!(fake.wait_until(TIMEOUT, |state| state.calls_of("getUpdates").next().map(|_| ())).is_some());
    let id = fake.push_text(7, 7, "/start now");
    let got = waiting.join().unwrap().unwrap().json();
    assert_eq!(got["result"][0]["update_id"], id);
    assert_eq!(got["result"][0]["message"]["entities"][0]["type"], "bot_command");
    assert_eq!(fake.pending_updates(), 1, "delivered is not confirmed");
    assert_eq!(poll(fake.port(), 0, 0), [id], "unconfirmed comes again");
    assert!(poll(fake.port(), id + 1, 0).is_empty());
    assert_eq!((fake.pending_updates(), fake.confirmed_offset()), (0, Some(id + 1)));
}

#[test]
fn poll_without_updates_ends_after_its_timeout() {
    let fake = Telegram::start().unwrap();
    let began = Instant::now();
    assert!(poll(fake.port(), 0, 1).is_empty());
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[test]
fn older_of_two_polls_gets_a_conflict() {
    let fake = Telegram::start().unwrap();
    let older = call_bot_in_background(fake.port(), "getUpdates", json!({"timeout": 50}));
    assert!(fake.wait_until(TIMEOUT, |state| state.calls_of("getUpdates").next().map(|_| ())).is_some());
    let newer = call_bot_in_background(fake.port(), "getUpdates", json!({"timeout": 50}));
    let conflict = older.join().unwrap().unwrap();
    assert_eq!(conflict.status, 409);
    assert!(conflict.text().contains("terminated by other getUpdates request"));
    fake.push_text(1, 1, "hi");
    assert_eq!(newer.join().unwrap().unwrap().status, 200);
}

#[test]
fn raw_response_reaches_a_waiting_poll_unchanged() {
    let fake = Telegram::start().unwrap();
    for raw in [&b"\xff\xfe not utf-8"[..], b"{\"ok\":true,\"result\":[{]}", b""] {
        let waiting = call_bot_in_background(fake.port(), "getUpdates", json!({"timeout": 50}));
        fake.push_raw_response(raw.to_vec());
        assert_eq!(waiting.join().unwrap().unwrap().body, raw);
    }
}

#[test]
fn delivers_garbage_updates_with_valid_ones() {
    let fake = Telegram::start().unwrap();
    fake.push_update(json!({"message": {"message_id": "x"}}));
    fake.push_update(json!({"update_id": 70, "from_the_future": {}}));
    assert_eq!(fake.push_text(1, 1, "good"), 71);
    assert_eq!(poll(fake.port(), 0, 0), [1, 70, 71]);
}

#[test]
fn supports_topics_buttons_and_observers() {
    let fake = Telegram::start().unwrap();
    let (sender, receiver) = std::sync::mpsc::sync_channel(64);
    fake.observe(move |change| sender.send(change.clone()).unwrap());
    fake.push_topic(-9, 40, 2, "hello");
    let keys = json!({"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]});
    let params =
        json!({"chat_id": -9, "message_thread_id": 40, "text": "sure?", "reply_markup": keys.to_string()});
    let sent = call_bot(fake.port(), "sendMessage", &params).unwrap().json();
    let id = sent["result"]["message_id"].as_i64().unwrap();
    assert_eq!(sent["result"]["message_thread_id"], 40);
    assert_eq!(fake.visible(-9)[0].reply_markup, Some(keys));
    let Ok(VisibleChange::Sent(message)) = receiver.recv_timeout(TIMEOUT) else {
        panic!("no change was observed")
    };
    assert_eq!((message.id, message.thread), (id, Some(40)));
    let press = fake.push_callback(-9, 2, id, "y");
    let got = call_bot(fake.port(), "getUpdates", &json!({"offset": press})).unwrap().json();
    assert_eq!(got["result"][0]["callback_query"]["message"]["message_id"], id);
    fake.remove_topic(-9, 40);
    fake.add_topic(-9, 50);
    assert_eq!(call_bot(fake.port(), "sendMessage", &params).unwrap().status, 400);
}

#[test]
fn applies_retention_to_calls_and_messages() {
    let fake = Telegram::start().unwrap();
    for (retention, calls, messages) in
        [(Retention::All, 3, 3), (Retention::Last(2), 2, 2), (Retention::Nothing, 0, 1)]
    {
        fake.clear();
        fake.set_retention(retention);
        for text in ["a", "b", "c"] {
            assert_eq!(send_message(fake.port(), 1, text).unwrap().status, 200);
        }
        assert_eq!((fake.calls().len(), fake.visible(1).len()), (calls, messages), "{retention:?}");
    }
    assert_eq!(fake.read(|state| (state.sent_count(), state.call_count())), (9, 9));
}
