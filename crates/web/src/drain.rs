//! `POST /api/gateway/drain`: asking for quiet, and taking it back.
//!
//! All it does is to write or remove the marker in the home, as any other program could; the gateway follows within
//! moments, and whoever asked looks at `/api/status` until nobody is at work. A body that says anything but a clear
//! yes changes nothing: a garbled "cancel" must not begin a drain.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use petasos_gateway::Handle;
use petasos_gateway::home::drain::{Ask, PRINCIPAL};
use serde_json::{Map, Value, json};
use tracing::info;

use crate::error::ApiError;
use crate::profile::OwnProfile;
use crate::token::Caller;

/// Longest text that goes into the marker.
const TEXT_LIMIT: usize = 200;
/// Of an action that we do not know, this much is repeated.
const ACTION_SHOWN: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wish {
    Begin {
        suppress_notification: bool,
        reason: Option<String>,
        /// Who it says it is; believed on the control socket only.
        principal: Option<String>,
    },
    Cancel,
}

pub(crate) async fn ask(
    State(handle): State<Handle>,
    caller: Caller,
    _: OwnProfile,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, ApiError> {
    let body = body.map_err(unread)?;
    match wish(&body).map_err(|detail| ApiError::detail(StatusCode::BAD_REQUEST, detail))? {
        Wish::Begin { suppress_notification, reason, principal } => {
            let principal = principal_of(caller, principal);
            info!(principal, "drain asked for");
            let marker = handle
                .drain(Ask { principal, suppress_notification, reason })
                .await
                .map_err(ApiError::detail_of)?;
            Ok(Json(json!({
                "ok": true,
                "action": "drain",
                "requested_at": marker.requested_at,
                "draining": true,
                "suppress_notification": marker.suppress_notification,
                "gateway_running": true,
            })))
        }
        Wish::Cancel => {
            let was_draining = handle.cancel_drain().await.map_err(ApiError::detail_of)?;
            info!(was_draining, "drain taken back");
            Ok(Json(json!({
                "ok": true,
                "action": "cancel",
                "was_draining": was_draining,
                "gateway_running": true,
            })))
        }
    }
}

fn unread(rejection: BytesRejection) -> ApiError {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::detail(StatusCode::PAYLOAD_TOO_LARGE, "The request body is larger than 64 KiB")
        }
        status => ApiError::detail(status, rejection.body_text()),
    }
}

fn principal_of(caller: Caller, said: Option<String>) -> String {
    match caller {
        Caller::DrainControl => PRINCIPAL.to_owned(),
        Caller::Owner => said.unwrap_or_else(|| "petasos".to_owned()),
        Caller::Anyone | Caller::Dashboard => "dashboard".to_owned(),
    }
}

/// What a body asks for; no body at all asks for a drain.
fn wish(body: &[u8]) -> Result<Wish, String> {
    let fields = match body {
        [] => Map::new(),
        body => match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => return Err("The request body must be a JSON object".to_owned()),
            Err(_) => return Err("The request body is not valid JSON".to_owned()),
        },
    };
    let action = action(&fields);
    let suppress_notification = match fields.get("suppress_notification") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(suppress)) => *suppress,
        Some(_) => return Err("suppress_notification must be true or false".to_owned()),
    };
    let (reason, principal) = (text(&fields, "reason")?, text(&fields, "principal")?);
    match action.as_str() {
        "drain" => Ok(Wish::Begin { suppress_notification, reason, principal }),
        "cancel" => Ok(Wish::Cancel),
        unknown => {
            let shown: String = unknown.chars().take(ACTION_SHOWN).collect();
            Err(format!("Unknown drain action '{shown}'; expected 'drain' or 'cancel'"))
        }
    }
}

fn action(fields: &Map<String, Value>) -> String {
    match fields.get("action") {
        None => "drain".to_owned(),
        // As other gateways name it.
        Some(Value::Null) => "none".to_owned(),
        Some(Value::String(action)) => action.trim().to_lowercase(),
        // Has quotes, brackets or digits in it, or is a truth value: never one of ours.
        Some(other) => other.to_string().to_lowercase(),
    }
}

/// A line for people to read, of bounded length; `None` when there is nothing in it.
fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => {
            let line = text.trim().chars().filter(|char| !char.is_control()).take(TEXT_LIMIT);
            Ok(Some(line.collect::<String>()).filter(|line| !line.is_empty()))
        }
        Some(_) => Err(format!("{name} must be text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(suppress_notification: bool, reason: Option<&str>, principal: Option<&str>) -> Wish {
        let (reason, principal) = (reason.map(str::to_owned), principal.map(str::to_owned));
        Wish::Begin { suppress_notification, reason, principal }
    }

    #[test]
    fn a_body_begins_or_cancels_a_drain() {
        let plain = begin(false, None, None);
        for (body, want) in [
            ("", plain.clone()),
            ("{}", plain.clone()),
            (r#"{"action":"drain"}"#, plain.clone()),
            (r#"{"action":" Drain\n"}"#, plain.clone()),
            (r#"{"suppress_notification":true}"#, begin(true, None, None)),
            (r#"{"action":"CANCEL","suppress_notification":true}"#, Wish::Cancel),
            (
                r#"{"reason":" new\u0007 disk ","principal":"nas"}"#,
                begin(false, Some("new disk"), Some("nas")),
            ),
            (r#"{"reason":" ","principal":null,"suppress_notification":null,"more":[1]}"#, plain),
        ] {
            assert_eq!(wish(body.as_bytes()), Ok(want), "{body}");
        }
    }

    #[test]
    fn an_action_that_is_none_is_named() {
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
            assert_eq!(wish(format!("{{\"action\":{action}}}").as_bytes()), Err(want), "{action}");
        }
    }

    #[test]
    fn a_reason_is_cut_to_its_limit_by_letters() {
        let body = json!({ "reason": "ä".repeat(500) }).to_string();
        assert_eq!(wish(body.as_bytes()), Ok(begin(false, Some(&"ä".repeat(TEXT_LIMIT)), None)));
    }

    #[test]
    fn only_the_owner_says_who_they_are() {
        let said = || Some("nas".to_owned());
        assert_eq!(principal_of(Caller::DrainControl, said()), "drain-control");
        assert_eq!(principal_of(Caller::Dashboard, said()), "dashboard");
        assert_eq!(principal_of(Caller::Owner, said()), "nas");
        assert_eq!(principal_of(Caller::Owner, None), "petasos");
    }
}
