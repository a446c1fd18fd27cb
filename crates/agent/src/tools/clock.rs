//! The `clock` tool.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use petasos_core::Millis;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{SessionCtx, ToolOutcome};
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

pub(super) fn tool() -> Definition {
    Definition {
        name: "clock",
        description: "Returns the current date and time.",
        toolset: Toolset::Other,
        service: Service::None,
        effects: Effects::None,
        paginated: false,
        reach: Reach::Turn,
        runner: Runner::immediate(run),
    }
}

#[derive(Deserialize, JsonSchema)]
struct ClockArguments {
    /// IANA name such as Europe/Berlin; default: the owner's time zone
    timezone: Option<String>,
}

fn run(ctx: &SessionCtx, arguments: &ClockArguments) -> ToolOutcome {
    let zone = match arguments.timezone.as_deref().filter(|name| !name.trim().is_empty()) {
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

/// `instant` in the owner's time zone.
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
