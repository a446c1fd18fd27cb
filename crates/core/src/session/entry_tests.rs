use alloc::format;

use serde_json::{Value, json};

use super::*;

fn entry() -> Entry {
    let key = SessionKey("agent:main:telegram:dm:123".into());
    let mut origin = Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "123");
    origin.chat_name = Some("Bob".into());
    let now = LocalTime::parse("2026-11-15T18:12:05.741101").unwrap();
    Entry::new(key, SessionId("20261115_181205_13f6a7af".into()), Some(origin), now)
}

/// The four required fields plus `extra`.
#[track_caller]
fn load(extra: Value) -> Entry {
    let mut object = json!({
        "session_key": "agent:main:telegram:dm:123", "session_id": "s1",
        "created_at": "2026-11-15T18:12:05", "updated_at": "2026-11-15T18:12:05",
    });
    object.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

#[test]
fn creates_entries_without_a_resume_mark() {
    let entry = entry();
    assert!(!entry.resume_pending);
    assert_eq!((entry.resume_reason, entry.last_resume_marked_at), (None, None));
    assert_eq!(entry.display_name.as_deref(), Some("Bob"));
}

#[test]
fn sums_prices_to_an_estimate_in_dollars() {
    let mut entry = entry();
    entry.add_cost(1_500_000);
    entry.add_cost(250_000);
    assert_eq!((entry.estimated_cost_usd, entry.cost_status.as_str()), (1.75, "estimated"));
}

#[test]
fn round_trips_resume_fields() {
    let mut before = entry();
    before.resume_pending = true;
    before.resume_reason = Some(ResumeReason::ShutdownTimeout);
    before.last_resume_marked_at = LocalTime::parse("2026-11-15T19:00:00.000001");
    before.auto_reset_reason = Some(ResetReason::ResumePendingExpired);
    let text = serde_json::to_string(&before).unwrap();
    assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), before);
    assert!(text.contains(
        r#""resume_reason":"shutdown_timeout","last_resume_marked_at":"2026-11-15T19:00:00.000001""#
    ));
    assert!(text.contains(r#""auto_reset_reason":"resume_pending_expired""#));
}

#[test]
fn loads_entries_without_resume_fields() {
    let entry = load(json!({}));
    assert!(!entry.resume_pending && !entry.suspended && entry.cost_status == "unknown");
    assert_eq!((entry.chat_type, entry.platform), (ChatType::Dm, None));
}

#[test]
fn keeps_the_mark_but_drops_an_invalid_time() {
    let entry = load(json!({
        "resume_pending": true, "resume_reason": "restart_timeout", "last_resume_marked_at": "not-a-timestamp",
    }));
    assert!(entry.resume_pending);
    assert_eq!(entry.resume_reason, Some(ResumeReason::RestartTimeout));
    assert_eq!(entry.last_resume_marked_at, None);
}

#[test]
fn treats_invalid_values_as_missing() {
    let entry = load(json!({
        "platform": "icq", "chat_type": 7, "input_tokens": -3, "cost_status": null, "suspended": "yes",
        "auto_reset_reason": "moon", "origin": {"platform": "icq"}, "model_override": "m", "from_the_future": {},
        "display_name": null, "estimated_cost_usd": "much", "resume_reason": "odd",
    }));
    let want = load(json!({"resume_reason": "odd"}));
    assert_eq!(entry, want);
    assert_eq!(entry.resume_reason, Some(ResumeReason::Other("odd".into())));
}

#[test]
fn reads_but_does_not_write_the_older_expiry_name() {
    let entry = load(json!({"memory_flushed": true}));
    assert!(entry.expiry_finalized);
    assert!(!serde_json::to_string(&entry).unwrap().contains("memory_flushed"));
}

#[test]
fn does_not_write_back_credentials() {
    let entry = load(json!({"model_override": {"model": "m", "provider": "p", "api_key": "sk-secret"}}));
    assert_eq!(entry.model_override.as_ref().and_then(|it| it.model.as_deref()), Some("m"));
    assert!(!serde_json::to_string(&entry).unwrap().contains("secret"));
}

#[test]
fn writes_the_shared_file_format() {
    let want = json!({
        "session_key": "agent:main:telegram:dm:123", "session_id": "20261115_181205_13f6a7af",
        "created_at": "2026-11-15T18:12:05.741101", "updated_at": "2026-11-15T18:12:05.741101",
        "display_name": "Bob", "platform": "telegram", "chat_type": "dm",
        "input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0, "total_tokens": 0,
        "last_prompt_tokens": 0, "estimated_cost_usd": 0.0, "cost_status": "unknown", "expiry_finalized": false,
        "suspended": false, "resume_pending": false, "resume_reason": null, "last_resume_marked_at": null,
        "is_fresh_reset": false, "was_auto_reset": false, "auto_reset_reason": null, "reset_had_activity": false,
        "origin": {"platform": "telegram", "chat_id": "123", "chat_name": "Bob", "chat_type": "dm", "user_id": null,
            "user_name": null, "thread_id": null, "chat_topic": null},
    });
    assert_eq!(serde_json::to_value(entry()).unwrap(), want);
}

#[test]
fn skips_invalid_entries_of_a_file() {
    let good = serde_json::to_value(entry()).unwrap();
    let with = |field: &str, value: &str| {
        let mut changed = good.clone();
        changed[field] = json!(value);
        changed
    };
    let file = json!({
        "_README": "LEGACY MIRROR",
        "_sound": good,
        "agent:main:telegram:dm:123": good,
        "agent:main:google_chat:dm:spaces/AAA": with("session_key", "agent:main:google_chat:dm:spaces/AAA"),
        "a:bool": true,
        "no times": {"session_key": "k", "session_id": "s"},
        "bad time": with("updated_at", "yesterday"),
        "escaping id": with("session_id", "../x"),
        "nested id": with("session_id", "a/b"),
        "/abs": with("session_key", "/abs"),
    });
    let routing: Routing = serde_json::from_str(&format!("{file}")).unwrap();
    let keys: alloc::vec::Vec<&str> = routing.0.keys().map(SessionKey::as_str).collect();
    assert_eq!(keys, ["agent:main:google_chat:dm:spaces/AAA", "agent:main:telegram:dm:123"]);
}
