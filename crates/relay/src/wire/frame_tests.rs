use alloc::format;
use alloc::vec;

use super::*;

fn inbound(buffer: &str) -> Option<String> {
    let line = format!(r#"{{"type":"inbound","event":{{}},"bufferId":{buffer}}}"#);
    match FromConnector::read(line.as_bytes()) {
        Ok(Some(FromConnector::Inbound { buffer, .. })) => buffer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn acknowledges_only_valid_buffer_ids() {
    assert_eq!(inbound("\"b1\"").as_deref(), Some("b1"));
    assert_eq!(inbound("7").as_deref(), Some("7"));
    for nothing in ["0", "0.0", "\"\"", "null", "false", "true", "[]", "{}"] {
        assert_eq!(inbound(nothing), None, "{nothing}");
    }
}

#[test]
fn gateway_skips_malformed_and_ignores_unknown() {
    for (line, want) in [
        ("not json", Err(Malformed::NotJson)),
        ("\u{fffd}{", Err(Malformed::NotJson)),
        ("[]", Err(Malformed::NotAnObject)),
        ("5", Err(Malformed::NotAnObject)),
        ("\"x\"", Err(Malformed::NotAnObject)),
        ("null", Err(Malformed::NotAnObject)),
        ("{}", Err(Malformed::NoType)),
        (r#"{"type":5}"#, Err(Malformed::NoType)),
        (r#"{"type":"inbound"}"#, Ok(Some(FromConnector::Inbound { event: Value::Null, buffer: None }))),
        (
            r#"{"type":"inbound","event":"\ud83d","bufferId":"b"}"#,
            Ok(Some(FromConnector::Inbound { event: json!("\u{fffd}"), buffer: Some("b".into()) })),
        ),
        (r#"{"type":"descriptor","descriptor":null}"#, Err(Malformed::Field("descriptor"))),
        (r#"{"type":"outbound_result"}"#, Err(Malformed::Field("requestId"))),
        (r#"{"type":"interrupt_inbound","session_key":[]}"#, Err(Malformed::Field("session_key"))),
        (r#"{"type":"wat"}"#, Ok(None)),
        (r#"{"type":"hello","platform":"discord","botId":""}"#, Ok(None)),
        (r#"{"type":"going_idle_ack","more":1}"#, Ok(Some(FromConnector::IdleAck))),
    ] {
        assert_eq!(FromConnector::read(line.as_bytes()), want, "{line}");
    }
    assert_eq!(FromConnector::read(b"\xff\xfe{}"), Err(Malformed::NotJson));
}

#[test]
fn empty_result_is_a_failure() {
    for line in [
        r#"{"type":"outbound_result","requestId":"r"}"#,
        r#"{"type":"outbound_result","requestId":"r","result":null}"#,
        r#"{"type":"outbound_result","requestId":"r","result":{"success":"yes"}}"#,
    ] {
        let Ok(Some(FromConnector::Answer { answer, .. })) = FromConnector::read(line.as_bytes()) else {
            panic!("{line}");
        };
        assert!(!answer.success, "{line}");
    }
}

#[test]
fn frames_survive_the_wire() {
    let hello = FromGateway::Hello { platform: "discord".into(), bot_id: "app".into(), commands: None };
    let frames = [
        hello,
        FromGateway::Ack { buffer: "b1".into() },
        FromGateway::Interrupt { session_key: "k".into(), reason: None },
        FromGateway::Outbound {
            request: "r".into(),
            action: json!({"op": "typing", "chat_id": "c"}),
            platform: Some("telegram".into()),
            bot_id: Some("bot9".into()),
        },
        FromGateway::GoingIdle,
    ];
    for frame in frames {
        let line = frame.line().unwrap();
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line:?}");
        assert_eq!(FromGateway::read(line.as_bytes()), Ok(Some(frame)));
    }
    let frames = [
        FromConnector::Inbound { event: json!({"text": "a\nb"}), buffer: Some("b".into()) },
        FromConnector::Forward { forward: json!({}), buffer: None },
        FromConnector::Interrupt { session_key: "k".into(), chat_id: "c".into() },
        FromConnector::Answer { request: "r".into(), answer: Answer::failed("no") },
        FromConnector::IdleAck,
    ];
    for frame in frames {
        let line = frame.line().unwrap();
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line:?}");
        assert_eq!(FromConnector::read(line.as_bytes()), Ok(Some(frame)));
    }
}

#[test]
fn writes_interrupt_reason_and_untagged_outbound() {
    let line = FromGateway::Interrupt { session_key: "k".into(), reason: None }.line().unwrap();
    assert!(line.contains(r#""reason":null"#), "{line}");
    let action = Action::ChatInfo { chat_id: "c".into() };
    let line = FromGateway::outbound("r".into(), &action, None).line().unwrap();
    assert!(!line.contains("platform") && !line.contains("botId"), "{line}");
}

#[test]
fn refuses_to_write_lines_beyond_read_limit() {
    let event = json!({"text": "x".repeat(LONGEST_WRITTEN)});
    assert_eq!(FromConnector::Inbound { event, buffer: None }.line(), Err(TooLong));
}

#[test]
fn defaults_to_identity_without_platform() {
    let generic = FromGateway::Hello { platform: "relay".into(), bot_id: String::new(), commands: None };
    assert_eq!(hellos(&[]), vec![generic]);
    assert_eq!(hellos(&[("discord".into(), "app".into()), ("telegram".into(), "bot9".into())]).len(), 2);
}

#[test]
fn longest_line_is_written_and_one_byte_more_is_not() {
    let ack = |length: usize| FromGateway::Ack { buffer: "x".repeat(length) }.line();
    let around = ack(0).map(|line| line.len()).unwrap();
    assert_eq!(ack(LONGEST_WRITTEN - around).map(|line| line.len()), Ok(LONGEST_WRITTEN));
    assert_eq!(ack(LONGEST_WRITTEN - around + 1), Err(TooLong));
}
