//! Where something may be missing since a session ended that no other could go on with. Pure.
//!
//! Part of the cursor. Invariant: up to the beginning of its gap nothing of a channel is missing on disk; a gap moves
//! or closes only with the commit that carries what was missing. A server that has not listed its channels is a gap
//! itself, for as long as that takes. A crash at any point leaves gaps that are as large or larger.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use super::rooms::Room;

/// Channels that may have a gap at the same time; they are written with every commit.
const MOST: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gap {
    /// `None`: in private.
    pub(super) guild: Option<u64>,
    /// Behind this message something may be missing.
    pub(super) after: u64,
    /// What is older is not fetched. It stays as it was when the gap was opened: a gap that cannot be filled at once
    /// does not grow old.
    pub(super) floor: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Gaps {
    channels: BTreeMap<u64, Gap>,
    /// Servers that have not listed their channels.
    servers: BTreeMap<u64, Gap>,
}

impl Gaps {
    /// One that is open already began earlier. False: there are too many.
    pub(super) fn open(&mut self, channel: u64, gap: Gap) -> bool {
        let room = self.channels.len() < MOST || self.channels.contains_key(&channel);
        if room {
            self.channels.entry(channel).or_insert(gap);
        }
        room
    }

    /// A new session names the servers we are on. Gives the channels that were given up with the others.
    pub(super) fn expect(&mut self, guilds: &HashSet<u64>, after: u64, floor: u64) -> usize {
        let before = self.channels.len();
        self.channels.retain(|_, gap| gap.guild.is_none_or(|guild| guilds.contains(&guild)));
        self.servers.retain(|guild, _| guilds.contains(guild));
        for guild in guilds {
            self.servers.entry(*guild).or_insert(Gap { guild: Some(*guild), after, floor });
        }
        before - self.channels.len()
    }

    /// A server lists its channels: one without news has no gap, and one that we never heard has one if there is news.
    /// Gives how many found no room.
    pub(super) fn listed<'a>(&mut self, guild: u64, rooms: impl Iterator<Item = (u64, &'a Room)>) -> usize {
        let Some(server) = self.servers.remove(&guild) else { return 0 };
        let mut left_out = 0;
        for (channel, room) in rooms {
            let known = self.channels.get(&channel);
            let after = known.map_or(server.after, |gap| gap.after);
            if room.newest.is_none_or(|newest| newest <= after) {
                self.channels.remove(&channel);
            } else if !self.open(channel, server) {
                left_out += 1;
            }
        }
        left_out
    }

    /// We are no longer on this server. Gives the channels that were given up with it.
    pub(super) fn leave(&mut self, guild: u64) -> usize {
        let before = self.channels.len();
        self.servers.remove(&guild);
        self.channels.retain(|_, gap| gap.guild != Some(guild));
        before - self.channels.len()
    }

    pub(super) fn get(&self, channel: u64) -> Option<Gap> {
        self.channels.get(&channel).copied()
    }

    pub(super) fn is_expected(&self, guild: u64) -> bool {
        self.servers.contains_key(&guild)
    }

    /// Those that can be filled now: what kind of channel it is, a server tells first.
    pub(super) fn ready(&self) -> impl Iterator<Item = (u64, Gap)> {
        let listed = |gap: &Gap| gap.guild.is_none_or(|guild| !self.servers.contains_key(&guild));
        self.channels.iter().filter(move |(_, gap)| listed(gap)).map(|(channel, gap)| (*channel, *gap))
    }

    pub(super) fn fill(&mut self, channel: u64, until: u64) {
        if let Some(gap) = self.channels.get_mut(&channel) {
            gap.after = gap.after.max(until);
        }
    }

    pub(super) fn close(&mut self, channel: u64) {
        self.channels.remove(&channel);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.servers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(guild: Option<u64>, after: u64) -> Gap {
        Gap { guild, after, floor: 3 }
    }

    fn room(newest: Option<u64>) -> Room {
        Room { newest, ..Room::default() }
    }

    #[track_caller]
    fn check(gaps: &Gaps, want: &[(u64, u64)]) {
        let ready: Vec<_> = gaps.ready().map(|(channel, gap)| (channel, gap.after)).collect();
        assert_eq!(ready, want);
    }

    #[test]
    fn a_gap_keeps_its_beginning_whatever_happens_before_it_is_filled() {
        let mut gaps = Gaps::default();
        assert!(gaps.open(50, gap(None, 10)));
        assert!(gaps.open(50, gap(None, 20)), "another session is lost");
        check(&gaps, &[(50, 10)]);
        gaps.fill(50, 15);
        gaps.fill(50, 12);
        check(&gaps, &[(50, 15)]);
        gaps.close(50);
        assert!(gaps.is_empty());
    }

    #[test]
    fn a_server_is_a_gap_until_it_lists_its_channels() {
        let mut gaps = Gaps::default();
        gaps.open(70, gap(Some(1), 10));
        gaps.open(71, gap(Some(1), 10));
        gaps.open(90, gap(Some(2), 10));
        let both = HashSet::from([1, 2]);
        assert_eq!(gaps.expect(&both, 12, 3), 0);
        assert_eq!(gaps.expect(&both, 40, 30), 0, "another session is lost");
        check(&gaps, &[]);
        let (news, none, old) = (room(Some(20)), room(None), room(Some(11)));
        let listed = [(70, &news), (71, &room(Some(10))), (72, &news), (73, &none), (74, &old)];
        assert_eq!(gaps.listed(1, listed.into_iter()), 0);
        check(&gaps, &[(70, 10), (72, 12)]);
        assert!(!gaps.is_expected(1) && gaps.is_expected(2));
        assert_eq!(gaps.listed(1, [(75, &news)].into_iter()), 0);
        check(&gaps, &[(70, 10), (72, 12)]);
        assert_eq!(gaps.get(72).map(|gap| gap.floor), Some(3), "as it was when the gap was opened");
    }

    #[test]
    fn what_is_given_up_is_counted() {
        let mut gaps = Gaps::default();
        gaps.open(70, gap(Some(1), 10));
        gaps.open(80, gap(Some(2), 10));
        gaps.open(50, gap(None, 10));
        assert_eq!(gaps.expect(&HashSet::from([2]), 12, 3), 1, "not on this server any more");
        assert_eq!(gaps.leave(2), 1);
        check(&gaps, &[(50, 10)]);
        gaps.expect(&HashSet::from([3]), 12, 3);
        let news = room(Some(20));
        assert_eq!(gaps.listed(3, (1000..2010).map(|channel| (channel, &news))), 11);
        assert_eq!(gaps.ready().count(), MOST);
        assert!(!gaps.open(9, gap(None, 1)) && gaps.open(50, gap(None, 1)));
    }
}
