//! Ratio of one figure between two programs, over paired rounds.

/// New divided by old, per round, summarised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    rounds: usize,
}

/// Whether the rounds agree on a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Higher,
    Lower,
    /// The rounds disagree, or are too few to say.
    NoDifference,
}

/// Fewer rounds than this all fall on one side by chance too often (once in 16).
const ROUNDS_TO_AGREE: usize = 5;

impl Ratio {
    /// Pairs the rounds of both programs. `None` without a round, or where the old figure is zero.
    pub(super) fn of(new: &[f64], old: &[f64]) -> Option<Self> {
        let mut ratios: Vec<_> = new.iter().zip(old).map(|(new, old)| new / old).collect();
        if ratios.iter().any(|ratio| !ratio.is_finite()) {
            return None;
        }
        ratios.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*ratios.first()?, *ratios.last()?);
        Some(Self { median: median(&ratios)?, least, most, rounds: ratios.len() })
    }

    pub(super) fn verdict(&self) -> Verdict {
        if self.rounds < ROUNDS_TO_AGREE {
            return Verdict::NoDifference;
        }
        if self.least > 1.0 {
            return Verdict::Higher;
        }
        if self.most < 1.0 {
            return Verdict::Lower;
        }
        Verdict::NoDifference
    }
}

/// The middle of sorted values; the mean of the two in the middle if their number is even.
pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*sorted.get(middle - 1)?, upper))
}
