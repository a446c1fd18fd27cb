//! Ratio of one figure between two programs, over paired rounds.

/// Summary of new/old over all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    rounds: usize,
}

/// Direction on which all rounds agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trend {
    Higher,
    Lower,
    /// The rounds disagree, or are too few.
    NoDifference,
}

/// With fewer rounds, agreement by chance is too likely (once in 16).
const ROUNDS_TO_AGREE: usize = 5;

impl Ratio {
    /// Pairs the rounds of both programs. `None` without rounds, or if an old figure is zero.
    pub(super) fn of(new: &[f64], old: &[f64]) -> Option<Self> {
        let mut ratios: Vec<_> = new.iter().zip(old).map(|(new, old)| new / old).collect();
        if ratios.iter().any(|ratio| !ratio.is_finite()) {
            return None;
        }
        ratios.sort_unstable_by(f64::total_cmp);
        let least = *ratios.first()?;
        let most = *ratios.last()?;
        Some(Self { median: median(&ratios)?, least, most, rounds: ratios.len() })
    }

    pub(super) fn trend(&self) -> Trend {
        if self.rounds < ROUNDS_TO_AGREE {
            return Trend::NoDifference;
        }
        if self.least > 1.0 {
            return Trend::Higher;
        }
        if self.most < 1.0 {
            return Trend::Lower;
        }
        Trend::NoDifference
    }
}

pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*sorted.get(middle - 1)?, upper))
}
