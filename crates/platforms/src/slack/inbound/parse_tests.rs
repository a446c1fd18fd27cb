use serde_json::{Value, json};

use super::*;
use crate::Secret;
use crate::slack::link::cursor::position;
use crate::slack::rest::api::{Token, TokenKind};

fn bot(number: u32) -> WorkspaceBot {
    let token = Token { secret: Secret::new(format!("xoxb-{number}")), kind: TokenKind::Bot };
    let bot_id = Some(format!("B{number}BOT"));
    WorkspaceBot { team: format!("T{number}"), name: None, bot_user: format!("U{number}BOT"), bot_id, token }
}

fn platform() -> Platform {
    Platform::parse("slack").expect("known")
}

struct ParseFixture {
    config: Config,
    workspaces: Workspaces,
    threads: Vec<(&'static str, &'static str)>,
}

fn fixture() -> ParseFixture {
    let config = Config::new("xapp-1-A1-x", "xoxb-1");
    ParseFixture { config, workspaces: Workspaces(vec![bot(1)]), threads: vec![] }
}

impl ParseFixture {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn envelope(&self, kind: &str, payload: &Value) -> Result<Option<ParsedEnvelope>, ParseError> {
        let frame = json!({
            "type": kind, "envelope_id": "e1", "payload": payload,
            "accepts_response_payload": kind != "events_api",
        });
        let frame: SocketFrame = serde_json::from_str(&frame.to_string()).expect("a frame");
        let filter = MessageFilter::new(&self.config);
        let context = ParseContext {
            platform: platform(),
            config: &self.config,
            filter: &filter,
            workspaces: &self.workspaces,
            is_own_thread: &|channel, thread| self.threads.contains(&(channel, thread)),
        };
        envelope(&frame, &context)
    }

    /// A message event with `fields` added or replaced.
    fn message(&self, fields: Value) -> Option<Inbound> {
        let mut event = json!({
            "type": "message", "channel": "D1", "channel_type": "im", "user": "U7", "text": "hello",
            "ts": "1700000000.000100", "event_ts": "1700000000.000100",
        });
        merge(&mut event, fields);
        let payload = json!({
            "team_id": "T1", "event": event, "type": "event_callback",
            "authorizations": [{ "team_id": "T1", "user_id": "U1BOT" }],
        });
        let parsed = self.envelope("events_api", &payload).expect("readable");
        parsed.map(|parsed| parsed.event)
    }

    fn command(&self, command: &str, text: &str) -> ParsedEnvelope {
        let payload = json!({
            "team_id": "T1", "channel_id": "C1", "channel_name": "general", "user_id": "U7", "user_name": "ada",
            "command": command, "text": text, "response_url": "https://hooks.e.org/1", "trigger_id": "t.1",
        });
        self.envelope("slash_commands", &payload).expect("readable").expect("for the bot")
    }
}

fn merge(into: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else { panic!("an object") };
    for (key, value) in fields {
        into[key] = value;
    }
}

fn channel(fields: Value) -> Value {
    let mut event = json!({ "channel": "C1", "channel_type": "channel" });
    merge(&mut event, fields);
    event
}

#[test]
fn parses_a_direct_message() {
    let event = fixture().message(json!({})).expect("for the bot");
    let mut source = Source::new(platform(), ChatType::Dm, "D1");
    source.user_id = Some("U7".into());
    source.thread_id = Some("1700000000.000100".into());
    source.scope_id = Some("T1".into());
    source.message_id = Some("1700000000.000100".into());
    let want = Inbound {
        source,
        dedup: "T1:D1:1700000000.000100".into(),
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
fn message_and_its_app_mention_are_the_same_event() {
    let fields = || channel(json!({ "text": "<@U1BOT> hi" }));
    let message = fixture().message(fields());
    let mut mention = fields();
    merge(&mut mention, json!({ "type": "app_mention", "channel_type": null }));
    assert_eq!(message, fixture().message(mention));
    assert_eq!(message.expect("for the bot").text, "hi");
}

#[test]
fn distinguishes_channels_direct_messages_and_threads() {
    let own = "1700000000.000100";
    let inside = json!({ "thread_ts": "1.2", "text": "<@U1BOT> x" });
    let root = json!({ "thread_ts": own, "text": "<@U1BOT> x" });
    let top = json!({ "text": "<@U1BOT> x" });
    let flat: fn(&mut ParseFixture) = |s| s.config.reply_in_thread = false;
    let one_session: fn(&mut ParseFixture) = |s| s.config.dm_top_level_threads_as_sessions = false;
    let usual: fn(&mut ParseFixture) = |_| {};
    for (name, change, fields, kind, thread) in [
        ("channel", usual, channel(top.clone()), ChatType::Group, Some(own)),
        ("root", usual, channel(root.clone()), ChatType::Group, Some(own)),
        ("thread", usual, channel(inside.clone()), ChatType::Group, Some("1.2")),
        ("flat channel", flat, channel(top.clone()), ChatType::Group, None),
        ("flat root", flat, channel(root), ChatType::Group, None),
        ("thread in a flat channel", flat, channel(inside.clone()), ChatType::Group, Some("1.2")),
        (
            "several people",
            usual,
            json!({ "channel_type": "mpim", "channel": "G1", "text": "<@U1BOT> x" }),
            ChatType::Group,
            Some(own),
        ),
        ("direct", usual, top.clone(), ChatType::Dm, Some(own)),
        ("direct thread", one_session, inside, ChatType::Dm, Some("1.2")),
        ("one direct session", one_session, top.clone(), ChatType::Dm, None),
        ("flat direct", flat, top, ChatType::Dm, None),
    ] {
        let source = fixture().with(change).message(fields).expect(name).source;
        assert_eq!((source.chat_type, source.thread_id.as_deref()), (kind, thread), "{name}");
    }
}

#[test]
fn accepts_channel_mentions_and_own_threads() {
    let accepts =
        |change: fn(&mut ParseFixture), fields| fixture().with(change).message(channel(fields)).is_some();
    let usual: fn(&mut ParseFixture) = |_| {};
    let joined: fn(&mut ParseFixture) = |s| s.threads.push(("C1", "1.2"));
    let strict: fn(&mut ParseFixture) = |s| {
        s.threads.push(("C1", "1.2"));
        s.config.strict_mention = true;
    };
    assert!(!accepts(usual, json!({})));
    assert!(accepts(usual, json!({ "text": "<@U1BOT> hi" })));
    assert!(!accepts(usual, json!({ "text": "<@U2BOT> hi" })));
    assert!(!accepts(usual, json!({ "thread_ts": "1.2" })));
    assert!(accepts(joined, json!({ "thread_ts": "1.2" })));
    assert!(!accepts(joined, json!({ "thread_ts": "1.3" })));
    assert!(accepts(usual, json!({ "thread_ts": "1.2", "parent_user_id": "U1BOT" })));
    assert!(!accepts(strict, json!({ "thread_ts": "1.2", "parent_user_id": "U1BOT" })));
    assert!(accepts(strict, json!({ "thread_ts": "1.2", "text": "<@U1BOT> hi" })));
}

#[test]
fn ignores_edits_deletions_notices_and_bots() {
    for fields in [
        json!({ "subtype": "message_changed", "message": { "text": "x" }, "user": null }),
        json!({ "subtype": "message_deleted", "deleted_ts": "1.2" }),
        json!({ "subtype": "channel_join" }),
        json!({ "subtype": "bot_message", "bot_id": "B9" }),
        json!({ "bot_id": "B9" }),
        json!({ "user": "U1BOT" }),
        json!({ "bot_id": "B1BOT", "user": null }),
        json!({ "type": "reaction_added", "item": {} }),
        json!({ "type": "channel_created", "channel": { "id": "C9" } }),
        json!({ "text": " " }),
    ] {
        assert_eq!(fixture().message(fields.clone()), None, "{fields}");
    }
    let all: fn(&mut ParseFixture) = |s| s.config.allow_bots = petasos_core::access::Bots::All;
    let other_bot = json!({ "subtype": "bot_message", "bot_id": "B9", "user": null, "username": "ci" });
    let source = fixture().with(all).message(other_bot).expect("allowed").source;
    let got = (source.user_id.as_deref(), source.user_name.as_deref(), source.is_bot);
    assert_eq!(got, (Some("B9"), Some("ci"), true));
    let own = json!({ "bot_id": "B1BOT", "user": "U1BOT" });
    assert_eq!(fixture().with(all).message(own), None, "never our own");
}

#[test]
fn parses_attached_files() {
    let file =
        |kind: &str, subtype: &str| json!({ "id": "F1", "name": "x", "mimetype": kind, "subtype": subtype });
    for (kind, subtype, want) in [
        ("image/png", "", "photo"),
        ("audio/webm", "slack_audio", "voice"),
        ("audio/mpeg", "", "audio"),
        ("video/mp4", "", "video"),
        ("application/pdf", "", "document"),
        ("", "", "document"),
    ] {
        let fields = json!({ "subtype": "file_share", "text": "", "files": [file(kind, subtype)] });
        let attachments = fixture().message(fields).expect("for the bot").attachments;
        assert_eq!((attachments[0].kind.as_str(), attachments[0].reference.as_str()), (want, "F1"), "{kind}");
    }
}

#[test]
fn exclamation_mark_starts_only_known_commands() {
    for (text, want) in [
        ("!stop", "/stop"),
        ("<@U1BOT> !stop", "/stop"),
        ("!model fast", "/model fast"),
        ("!nice", "!nice"),
        ("! stop", "! stop"),
        ("!", "!"),
        ("<@U1BOT>", "<@U1BOT>"),
    ] {
        assert_eq!(fixture().message(json!({ "text": text })).expect("for the bot").text, want, "{text}");
    }
}

#[test]
fn answers_commands_in_private_and_questions_in_public() {
    for (command, text, want, private) in [
        ("/stop", "", "/stop", true),
        ("/model", " fast ", "/model fast", true),
        ("/petasos", "status", "/status", true),
        ("/petasos", "/new now", "/new now", true),
        ("/petasos", "", "/help", true),
        ("/petasos", "what is up?", "what is up?", false),
        ("/queue", "then this", "/queue then this", false),
    ] {
        let ParsedEnvelope { event, reply, .. } = fixture().command(command, text);
        assert_eq!(event.text, want, "{command} {text}");
        let reply_target = event.source.message_id.as_deref();
        assert_eq!(response_url(reply_target).is_some(), private, "{command} {text}");
        assert_eq!(reply.is_some(), private, "{command} {text}");
        assert_eq!(event.dedup, "T1:command:t.1");
        assert_eq!((event.source.user_name.as_deref(), event.source.thread_id), (Some("ada"), None));
    }
    let reply = fixture().command("/petasos", "status").reply.expect("a notice");
    assert_eq!(reply, json!({ "response_type": "ephemeral", "text": "Running /status…" }));
}

#[test]
fn parses_a_pressed_button_as_its_value() {
    let payload = |action: Value| {
        json!({
            "type": "block_actions", "user": { "id": "U7", "username": "ada", "team_id": "T1" },
            "team": { "id": "T1" }, "channel": { "id": "C1", "name": "general" }, "trigger_id": "t.2",
            "container": { "type": "message", "message_ts": "1.5", "channel_id": "C1", "thread_ts": "1.2" },
            "message": { "ts": "1.5", "thread_ts": "1.2", "text": "choose" }, "actions": [action],
        })
    };
    let button =
        json!({ "type": "button", "action_id": "petasos_0", "value": "ea:once:1", "action_ts": "1.6" });
    let event =
        fixture().envelope("interactive", &payload(button)).expect("readable").expect("for the bot").event;
    assert_eq!((event.text.as_str(), event.dedup.as_str()), ("ea:once:1", "T1:pressed:t.2"));
    assert_eq!(event.sent_at, Some(Millis(1_600)));
    assert_eq!(position(&event), None, "no history contains it");
    let source = event.source;
    assert_eq!((source.thread_id.as_deref(), source.message_id.as_deref()), (Some("1.2"), Some("1.5")));
    assert_eq!((source.user_id.as_deref(), source.chat_type), (Some("U7"), ChatType::Group));
    let link = json!({ "type": "button", "url": "https://e.org" });
    assert_eq!(fixture().envelope("interactive", &payload(link)), Ok(None), "a button without a value");
    let view = json!({ "type": "view_submission", "user": { "id": "U7" } });
    assert_eq!(fixture().envelope("interactive", &view), Ok(None));
}

#[test]
fn resolves_the_workspace_by_its_token() {
    let two: fn(&mut ParseFixture) = |s| s.workspaces = Workspaces(vec![bot(1), bot(2)]);
    let of = |change: fn(&mut ParseFixture), team: &str, authorized: &str| {
        let event = json!({ "type": "message", "channel": "D1", "user": "U7", "text": "x", "ts": "1.2" });
        let payload =
            json!({ "team_id": team, "authorizations": [{ "team_id": authorized }], "event": event });
        let parsed = fixture().with(change).envelope("events_api", &payload)?;
        Ok(parsed.and_then(|parsed| parsed.event.source.scope_id))
    };
    assert_eq!(of(two, "T2", "T2"), Ok(Some("T2".into())));
    assert_eq!(of(two, "T9", "T2"), Ok(Some("T2".into())), "a shared channel");
    assert_eq!(of(two, "T9", "T9"), Err(ParseError::Workspace));
    assert_eq!(of(|_| {}, "T9", "T9"), Ok(Some("T1".into())), "there is only one");
}

#[test]
fn malformed_payloads_are_errors_and_unknown_types_are_not() {
    let parse = |kind: &str, payload: Value| fixture().envelope(kind, &payload);
    let event = |event: Value| json!({ "team_id": "T1", "event": event });
    for (kind, payload) in [
        ("events_api", json!(5)),
        ("events_api", json!({ "team_id": "T1" })),
        ("events_api", event(json!({ "type": "message", "channel": 5, "ts": "1.2" }))),
        ("events_api", event(json!({ "type": "message" }))),
        ("slash_commands", json!({ "command": "/x" })),
        ("interactive", json!({ "type": "block_actions" })),
    ] {
        assert!(matches!(parse(kind, payload.clone()), Err(ParseError::Shape(_))), "{kind} {payload}");
    }
    assert_eq!(parse("telepathy", json!({})), Ok(None));
    assert_eq!(parse("events_api", event(json!({ "type": "app_home_opened", "channel": 5 }))), Ok(None));
    assert_eq!(envelope_id(r#"{"envelope_id":"e1","type":5}"#).as_deref(), Some("e1"));
    assert_eq!(envelope_id("[]"), None);
}

#[test]
fn refuses_missing_and_swapped_tokens() {
    let check = |app: &str, bots: &str| check_tokens(&Config::new(app, bots)).map_err(|error| error.code());
    assert_eq!(check("xapp-1-A1-x", "xoxb-1"), Ok(()));
    assert_eq!(check("", "xoxb-1"), Err("slack_missing_app_token"));
    assert_eq!(check("xapp-1-A1-x", " , "), Err("slack_missing_bot_token"));
    assert_eq!(check("xoxb-1", "xapp-1-A1-x"), Err("slack_invalid_auth"));
}

#[test]
fn reads_timestamps_to_the_millisecond() {
    for (ts, want) in [
        ("1700000000.123456", Some(1_700_000_000_123)),
        ("1700000000", Some(1_700_000_000_000)),
        ("1700000000.5", Some(1_700_000_000_500)),
        ("x", None),
        ("1.x", None),
    ] {
        assert_eq!(ts_to_millis(ts).map(|at| at.0), want, "{ts}");
    }
}
