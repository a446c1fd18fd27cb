//! Stored cursor: positions and gaps of the channels, by channel id and workspace.

use std::fmt;
use std::time::Duration;

use petasos_core::Inbound;
use serde::{Deserialize, Serialize};

use crate::backfill::MessageId;
use crate::backfill::cursor::{self, Bounds, Cursor};
use crate::backfill::gaps::Listing;
use crate::slack::inbound::parse::ts_to_millis;
use petasos_runtime::clock;

const BOUNDS: Bounds = Bounds { unlisted: 0, listed: 500, gaps: 500 };
/// Channels are delivered independently: a message may be newer than one of another channel still to come.
const MAX_SKEW: Duration = Duration::from_secs(10);
/// Stands for every channel of a workspace; no channel has this id.
const ANY_CHANNEL: &str = "*";

pub(in crate::slack) type ChannelCursor = Cursor<String, String, Ts>;
pub(in crate::slack) type Position = cursor::Position<String, String, Ts>;
pub(in crate::slack) type Gap = crate::backfill::gaps::Gap<String, Ts>;
pub(in crate::slack) type Fill = crate::backfill::gaps::Fill<String, Ts>;

/// The id of a message in its channel: microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::slack) struct Ts(u64);

impl Ts {
    pub(in crate::slack) fn parse(ts: &str) -> Option<Self> {
        let (seconds, fraction) = ts.split_once('.').unwrap_or((ts, "0"));
        let micros: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
        seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros).map(Self)
    }

    /// The first second within the window.
    pub(in crate::slack) fn window_start(window: Duration) -> Self {
        let now = Duration::from_millis(clock::now().0);
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

/// `None`: a command or a pressed button, which no history contains.
pub(in crate::slack) fn position(event: &Inbound) -> Option<Position> {
    let source = &event.source;
    let team = source.scope_id.clone()?;
    let channel = source.chat_id.clone()?;
    // A button is pressed later than its message was sent.
    let is_message = |ts: &&String| event.sent_at.is_some() && event.sent_at == ts_to_millis(ts);
    let ts = source.message_id.as_ref().filter(is_message)?;
    Some(Position { channel, scope: Some(team), id: Ts::parse(ts)? })
}

/// The format on disk: everything up to `ts` is stored.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::slack) struct StoredPosition {
    team: String,
    channel: String,
    ts: String,
    /// Floor of an open gap. Earlier versions neither write nor read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floor: Option<String>,
}

pub(in crate::slack) fn new_cursor() -> ChannelCursor {
    Cursor::new(BOUNDS)
}

pub(in crate::slack) fn restore(channels: &mut ChannelCursor, mut stored: Vec<StoredPosition>) {
    stored.sort_by_key(|it| it.channel == ANY_CHANNEL);
    for StoredPosition { team, channel, ts, floor } in stored {
        let Some(id) = Ts::parse(&ts) else { continue };
        let floor = floor.as_deref().and_then(Ts::parse);
        if channel == ANY_CHANNEL {
            let floor = floor.unwrap_or(id);
            channels.gaps.open_scope(team, id, floor, Listing::Split(None));
            continue;
        }
        if let Some(floor) = floor {
            channels.gaps.open(channel.clone(), Some(team.clone()), id, floor);
        }
        channels.advance(Position { channel, scope: Some(team), id });
    }
}

pub(in crate::slack) fn to_stored(channels: &ChannelCursor) -> Vec<StoredPosition> {
    let stored = |team: &str, channel: &str, ts: Ts, floor: Option<Ts>| StoredPosition {
        team: team.to_owned(),
        channel: channel.to_owned(),
        ts: ts.to_string(),
        floor: floor.map(|floor| floor.to_string()),
    };
    let settled = channels.positions().filter(|(channel, _, _)| channels.gaps.get(channel).is_none());
    let settled = settled.filter_map(|(channel, team, ts)| Some(stored(team?, channel, ts, None)));
    let open = channels
        .gaps
        .channels()
        .filter_map(|(channel, gap)| Some(stored(gap.scope.as_ref()?, channel, gap.after, Some(gap.floor))));
    let merged =
        channels.gaps.scopes().map(|(team, gap)| stored(team, ANY_CHANNEL, gap.after, Some(gap.floor)));
    settled.chain(open).chain(merged).collect()
}

/// For a time without a socket. Channels whose position was evicted are found by listing their workspace.
pub(in crate::slack) fn open_all_gaps(channels: &mut ChannelCursor, floor: Ts) {
    let evicted = channels.evicted_through();
    // Every channel is in a workspace, so its gap finds room.
    let _none = channels.open_all_gaps(floor);
    for (team, newest) in evicted {
        channels.gaps.open_scope(team, newest.minus(MAX_SKEW), floor, Listing::Split(None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restored(stored: &str) -> ChannelCursor {
        let mut channels = new_cursor();
        restore(&mut channels, serde_json::from_str(stored).expect("a cursor"));
        channels
    }

    fn write(channels: &ChannelCursor) -> String {
        serde_json::to_string(&to_stored(channels)).expect("JSON")
    }

    #[test]
    fn writes_a_ts_as_it_was_read() {
        for ts in ["1700000001.000001", "0000000000.000000", "1700000001.999999"] {
            assert_eq!(Ts::parse(ts).map(|ts| ts.to_string()).as_deref(), Some(ts));
        }
        assert_eq!(Ts::parse("5").map(|ts| ts.previous().to_string()).as_deref(), Some("0000000004.999999"));
        for ts in ["", "x", "1.x"] {
            assert_eq!(Ts::parse(ts), None, "{ts}");
        }
    }

    #[test]
    fn reads_and_writes_the_stored_format_of_earlier_versions() {
        let stored = r#"[{"team":"T1","channel":"C1","ts":"1700000001.000001"},{"team":"T1","channel":"D1","ts":"1700000002.000002"}]"#;
        assert_eq!(write(&restored(stored)), stored);
    }

    #[test]
    fn gap_keeps_its_floor_after_a_restart() {
        let mut channels = restored(r#"[{"team":"T1","channel":"C1","ts":"1700000001.000001"}]"#);
        open_all_gaps(&mut channels, Ts(5_000_000));
        let mut next = restored(&write(&channels));
        open_all_gaps(&mut next, Ts(9_000_000));
        assert_eq!(next.gaps.get(&"C1".to_owned()).map(|gap| gap.floor), Some(Ts(5_000_000)));
    }

    #[test]
    fn lists_merged_gaps_and_evicted_channels_after_a_restart() {
        let mut channels = new_cursor();
        for number in 0..501 {
            let channel = format!("C{number:03}");
            let scope = Some("T1".to_owned());
            channels.advance(Position { channel, scope, id: Ts(20_000_000 + number) });
        }
        open_all_gaps(&mut channels, Ts(0));
        for channels in [restored(&write(&channels)), channels] {
            let wide: Vec<_> = channels.gaps.scopes().map(|(team, gap)| (team.as_str(), gap.after)).collect();
            assert_eq!(wide, [("T1", Ts(10_000_500))]);
            assert_eq!(channels.gaps.channels().count(), 500);
        }
    }
}
