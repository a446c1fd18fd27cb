//! `POST /api/gateway/drain`: begins or cancels a drain.
//!
//! Writes or removes the drain marker in the home, which the gateway watches; clients poll `/api/status` until no turn
//! is active. An invalid body changes nothing: a malformed "cancel" must not begin a drain.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use petasos_gateway::Handle;
use petasos_gateway::home::drain::{DrainRequest, PRINCIPAL};
use serde_json::{Map, Value, json};
use tracing::info;

use crate::error::ApiError;
use crate::lifecycle::profile::OwnProfile;
use crate::security::credentials::Caller;

const MAX_TEXT_CHARS: usize = 200;
/// An unknown action is truncated to this length in the error.
const MAX_ACTION_CHARS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
enum DrainAction {
    Begin {
        suppress_notification: bool,
        reason: Option<String>,
        /// The claimed requester; used on the control socket only.
        principal: Option<String>,
    },
    Cancel,
}

pub(crate) async fn request_drain(
    State(handle): State<Handle>,
    caller: Caller,
    _: OwnProfile,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, ApiError> {
    let body = body.map_err(unreadable_body)?;
    match parse_action(&body).map_err(|detail| ApiError::bad_request(detail).into_detail())? {
        DrainAction::Begin { suppress_notification, reason, principal } => {
            let principal = principal_of(caller, principal);
            info!(principal, "drain requested");
            let marker = handle
                .drain(DrainRequest { principal, suppress_notification, reason })
                .await
                .map_err(detail_of)?;
            Ok(Json(json!({
                "ok": true,
                "action": "drain",
                "requested_at": marker.requested_at,
                "draining": true,
                "suppress_notification": marker.suppress_notification,
                "gateway_running": true,
            })))
        }
        DrainAction::Cancel => {
            let was_draining = handle.cancel_drain().await.map_err(detail_of)?;
            info!(was_draining, "drain cancelled");
            Ok(Json(json!({
                "ok": true,
                "action": "cancel",
                "was_draining": was_draining,
                "gateway_running": true,
            })))
        }
    }
}

fn unreadable_body(rejection: BytesRejection) -> ApiError {
    ApiError::from_axum(rejection.status(), rejection.body_text(), "64 KiB").into_detail()
}

fn detail_of(error: petasos_gateway::Error) -> ApiError {
    ApiError::from(error).into_detail()
}

fn principal_of(caller: Caller, stated: Option<String>) -> String {
    match caller {
        Caller::DrainControl => PRINCIPAL.to_owned(),
        Caller::Owner => stated.unwrap_or_else(|| "petasos".to_owned()),
        Caller::Anonymous | Caller::Dashboard => "dashboard".to_owned(),
    }
}

/// An empty body begins a drain.
fn parse_action(body: &[u8]) -> Result<DrainAction, String> {
    let fields = match body {
        [] => Map::new(),
        body => match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => return Err("The request body must be a JSON object".to_owned()),
            Err(_) => return Err("The request body is not valid JSON".to_owned()),
        },
    };
    let action_name = action_name(&fields);
    let suppress_notification = match fields.get("suppress_notification") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(suppress)) => *suppress,
        Some(_) => return Err("suppress_notification must be true or false".to_owned()),
    };
    let reason = optional_text(&fields, "reason")?;
    let principal = optional_text(&fields, "principal")?;
    match action_name.as_str() {
        "drain" => Ok(DrainAction::Begin { suppress_notification, reason, principal }),
        "cancel" => Ok(DrainAction::Cancel),
        unknown => {
            let shown: String = unknown.chars().take(MAX_ACTION_CHARS).collect();
            Err(format!("Unknown drain action '{shown}'; expected 'drain' or 'cancel'"))
        }
    }
}

fn action_name(fields: &Map<String, Value>) -> String {
    match fields.get("action") {
        None => "drain".to_owned(),
        // The name that other gateways report.
        Some(Value::Null) => "none".to_owned(),
        Some(Value::String(action_name)) => action_name.trim().to_lowercase(),
        // Contains quotes, brackets or digits, or is a bool: never a known action.
        Some(other) => other.to_string().to_lowercase(),
    }
}

/// A single line of bounded length; `None` if it is empty.
fn optional_text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(optional_text)) => {
            let line = optional_text.trim().chars().filter(|char| !char.is_control()).take(MAX_TEXT_CHARS);
            Ok(Some(line.collect::<String>()).filter(|line| !line.is_empty()))
        }
        Some(_) => Err(format!("{name} must be text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(suppress_notification: bool, reason: Option<&str>, principal: Option<&str>) -> DrainAction {
        let reason = reason.map(str::to_owned);
        let principal = principal.map(str::to_owned);
        DrainAction::Begin { suppress_notification, reason, principal }
    }

    #[test]
    fn parses_drain_action() {
        let plain = begin(false, None, None);
        for (body, want) in [
            ("", plain.clone()),
            ("{}", plain.clone()),
            (r#"{"action":"drain"}"#, plain.clone()),
            (r#"{"action":" Drain\n"}"#, plain.clone()),
            (r#"{"suppress_notification":true}"#, begin(true, None, None)),
            (r#"{"action":"CANCEL","suppress_notification":true}"#, DrainAction::Cancel),
            (
                r#"{"reason":" new\u0007 disk ","principal":"nas"}"#,
                begin(false, Some("new disk"), Some("nas")),
            ),
            (r#"{"reason":" ","principal":null,"suppress_notification":null,"more":[1]}"#, plain),
        ] {
            assert_eq!(parse_action(body.as_bytes()), Ok(want), "{body}");
        }
    }

    #[test]
    fn error_names_unknown_action() {
        for (action, shown) in [
            ("\"explode\"", "explode"),
            ("\" STOP \"", "stop"),
            ("\"\"", ""),
            ("null", "none"),
            ("true", "true"),
            ("1", "1"),
            ("[\"drain\"]", "[\"drain\"]"),
        ] {
            let want = format!("Unknown drain action '{shown}'; expected 'drain' or 'cancel'");
            assert_eq!(parse_action(format!("{{\"action\":{action}}}").as_bytes()), Err(want), "{action}");
        }
    }

    #[test]
    fn truncates_reason_by_characters() {
        let body = json!({ "reason": "ä".repeat(500) }).to_string();
        assert_eq!(parse_action(body.as_bytes()), Ok(begin(false, Some(&"ä".repeat(MAX_TEXT_CHARS)), None)));
    }

    #[test]
    fn only_owner_sets_principal() {
        let stated = || Some("nas".to_owned());
        assert_eq!(principal_of(Caller::DrainControl, stated()), "drain-control");
        assert_eq!(principal_of(Caller::Dashboard, stated()), "dashboard");
        assert_eq!(principal_of(Caller::Owner, stated()), "nas");
        assert_eq!(principal_of(Caller::Owner, None), "petasos");
    }
}
