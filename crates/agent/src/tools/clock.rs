//! The date and the time.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use petasos_core::Millis;
use serde_json::{Value, json};

use super::{Arguments, Outcome, SessionCtx};

pub(super) fn schema() -> (&'static str, Value) {
    let parameters = json!({
        "type": "object",
        "properties": {
            "timezone": {"type": "string", "description": "IANA name such as Europe/Berlin; default: the owner's time zone"},
        },
    });
    ("Tells the current date and time.", parameters)
}

pub(super) fn run(ctx: &SessionCtx, arguments: &Arguments) -> Outcome {
    let zone = match arguments.maybe("timezone")?.filter(|name| !name.trim().is_empty()) {
        Some(name) => TimeZone::get(name.trim()).map_err(|_| format!("No time zone is called {name:?}."))?,
        None => zone(ctx.timezone.as_deref()),
    };
    let now = at(ctx.now, zone);
    Ok(json!({
        "time": now.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        "weekday": now.strftime("%A").to_string(),
        "timezone": now.time_zone().iana_name().unwrap_or("local"),
        "utc_offset": now.strftime("%:z").to_string(),
    }))
}

/// `instant` on the owner's clock.
pub(crate) fn local(instant: Millis, timezone: Option<&str>) -> Zoned {
    at(instant, zone(timezone))
}

fn zone(name: Option<&str>) -> TimeZone {
    match name {
        Some(name) => TimeZone::get(name).unwrap_or(TimeZone::UTC),
        None => TimeZone::system(),
    }
}

fn at(instant: Millis, zone: TimeZone) -> Zoned {
    let millis = i64::try_from(instant.0).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX).to_zoned(zone)
}
