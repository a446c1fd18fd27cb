//! The channels' part of the stored cursor: positions and gaps by channel id and workspace.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use petasos_core::Inbound;
use serde::{Deserialize, Serialize};

use super::parse::moment;
use crate::backfill::MessageId;
use crate::backfill::cursor::{self, Bounds, Cursor};
use crate::backfill::gaps::Listing;

const BOUNDS: Bounds = Bounds { unlisted: 0, listed: 500, gaps: 500 };
/// Channels are not in step: a delivered message may be newer than one of another channel that is still to come.
const OUT_OF_STEP: Duration = Duration::from_secs(10);
/// Stands for every channel of a workspace. No channel has this id.
const ANY: &str = "*";

pub(super) type Channels = Cursor<String, String, Ts>;
pub(super) type Position = cursor::Position<String, String, Ts>;
pub(super) type Gap = crate::backfill::gaps::Gap<String, Ts>;
pub(super) type Fill = crate::backfill::gaps::Fill<String, Ts>;

/// The id of a message in its channel: microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ts(u64);

impl Ts {
    pub(super) fn parse(ts: &str) -> Option<Self> {
        let (seconds, fraction) = ts.split_once('.').unwrap_or((ts, "0"));
        let micros: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
        seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros).map(Self)
    }

    /// The first second within the window.
    pub(super) fn floor(window: Duration) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(now.saturating_sub(window).as_secs().saturating_mul(1_000_000))
    }

    fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl MessageId for Ts {
    fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Ts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// `None`: a command or a pressed button, which is in no history.
pub(super) fn position(event: &Inbound) -> Option<Position> {
    let source = &event.source;
    let (team, channel) = (source.scope_id.clone()?, source.chat_id.clone()?);
    // A button is pressed later than its message was sent.
    let ts =
        source.message_id.as_ref().filter(|ts| event.sent_at.is_some() && event.sent_at == moment(ts))?;
    Some(Position { channel, scope: Some(team), id: Ts::parse(ts)? })
}

/// The format on disk: everything up to `ts` is there.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stored {
    team: String,
    channel: String,
    ts: String,
    /// The floor of an open gap. Earlier versions neither write nor read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floor: Option<String>,
}

pub(super) fn new() -> Channels {
    Cursor::new(BOUNDS)
}

pub(super) fn restore(channels: &mut Channels, mut stored: Vec<Stored>) {
    stored.sort_by_key(|it| it.channel == ANY);
    for Stored { team, channel, ts, floor } in stored {
        let Some(id) = Ts::parse(&ts) else { continue };
        let floor = floor.as_deref().and_then(Ts::parse);
        if channel == ANY {
            let floor = floor.unwrap_or(id);
            channels.gaps.open_scope(team, id, floor, Listing::Split(None));
            continue;
        }
        if let Some(floor) = floor {
            channels.gaps.open(channel.clone(), Some(team.clone()), id, floor);
        }
        channels.saw(Position { channel, scope: Some(team), id });
    }
}

pub(super) fn store(channels: &Channels) -> Vec<Stored> {
    let stored = |team: &str, channel: &str, ts: Ts, floor: Option<Ts>| Stored {
        team: team.to_owned(),
        channel: channel.to_owned(),
        ts: ts.to_string(),
        floor: floor.map(|floor| floor.to_string()),
    };
    let settled = channels.seen().filter(|(channel, _, _)| channels.gaps.get(channel).is_none());
    let settled = settled.filter_map(|(channel, team, ts)| Some(stored(team?, channel, ts, None)));
    let open = channels
        .gaps
        .channels()
        .filter_map(|(channel, gap)| Some(stored(gap.scope.as_ref()?, channel, gap.after, Some(gap.floor))));
    let merged = channels.gaps.scopes().map(|(team, gap)| stored(team, ANY, gap.after, Some(gap.floor)));
    settled.chain(open).chain(merged).collect()
}

/// No socket delivered anything for a while. Channels whose position was forgotten are found by listing their workspace.
pub(super) fn interrupted(channels: &mut Channels, floor: Ts) {
    let crowded = channels.crowded();
    // Every channel is in a workspace, so its gap finds room.
    let _none = channels.interrupted(floor);
    for (team, newest) in crowded {
        channels.gaps.open_scope(team, newest.minus(OUT_OF_STEP), floor, Listing::Split(None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(heard: &str) -> Channels {
        let mut channels = new();
        restore(&mut channels, serde_json::from_str(heard).expect("a cursor"));
        channels
    }

    fn write(channels: &Channels) -> String {
        serde_json::to_string(&store(channels)).expect("JSON")
    }

    #[test]
    fn a_ts_is_written_as_it_was_read() {
        for ts in ["1700000001.000001", "0000000000.000000", "1700000001.999999"] {
            assert_eq!(Ts::parse(ts).map(|ts| ts.to_string()).as_deref(), Some(ts));
        }
        assert_eq!(Ts::parse("5").map(|ts| ts.previous().to_string()).as_deref(), Some("0000000004.999999"));
        for ts in ["", "x", "1.x"] {
            assert_eq!(Ts::parse(ts), None, "{ts}");
        }
    }

    #[test]
    fn the_stored_format_without_a_gap_is_that_of_earlier_versions() {
        let heard = r#"[{"team":"T1","channel":"C1","ts":"1700000001.000001"},{"team":"T1","channel":"D1","ts":"1700000002.000002"}]"#;
        assert_eq!(write(&again(heard)), heard);
    }

    #[test]
    fn a_gap_keeps_its_floor_over_a_restart() {
        let mut channels = again(r#"[{"team":"T1","channel":"C1","ts":"1700000001.000001"}]"#);
        interrupted(&mut channels, Ts(5_000_000));
        let mut next = again(&write(&channels));
        interrupted(&mut next, Ts(9_000_000));
        assert_eq!(next.gaps.get(&"C1".to_owned()).map(|gap| gap.floor), Some(Ts(5_000_000)));
    }

    #[test]
    fn merged_gaps_and_forgotten_channels_are_found_by_a_list_also_after_a_restart() {
        let mut channels = new();
        for number in 0..501 {
            let (channel, scope) = (format!("C{number:03}"), Some("T1".to_owned()));
            channels.saw(Position { channel, scope, id: Ts(20_000_000 + number) });
        }
        interrupted(&mut channels, Ts(0));
        for channels in [again(&write(&channels)), channels] {
            let wide: Vec<_> = channels.gaps.scopes().map(|(team, gap)| (team.as_str(), gap.after)).collect();
            assert_eq!(wide, [("T1", Ts(10_000_500))]);
            assert_eq!(channels.gaps.channels().count(), 500);
        }
    }
}
