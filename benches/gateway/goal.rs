//! Goals of the case `stored`: figures of the large home against those of the empty one.

/// A goal, the figure that was measured for it, and whether it was reached.
#[derive(Debug, PartialEq)]
pub(super) struct Judged {
    pub(super) name: &'static str,
    pub(super) shown: String,
    pub(super) met: bool,
}

enum Limit {
    /// The figure of the large home is at most this multiple of the empty one's.
    Ratio(f64),
    /// The figure of the large home, in milliseconds, is less than this.
    Below(f64),
}

/// In the order of the figures of one home.
const GOALS: [(&str, Limit); 4] = [
    ("start", Limit::Ratio(1.3)),
    ("CPU in the first minute without turns", Limit::Below(300.0)),
    ("CPU per turn", Limit::Ratio(1.2)),
    ("RSS", Limit::Ratio(1.2)),
];

/// The figures of the empty home, then those of the large one.
pub(super) fn judge(figures: &[f64]) -> Vec<Judged> {
    let (empty, large) = figures.split_at(figures.len() / 2);
    let judged =
        GOALS.iter().zip(empty.iter().zip(large)).map(|((name, limit), (empty, large))| match limit {
            Limit::Ratio(most) => {
                let ratio = large / empty;
                Judged { name, shown: format!("{ratio:.2}x, at most {most}x"), met: ratio <= *most }
            }
            Limit::Below(end) => {
                Judged { name, shown: format!("{large:.0} ms, under {end} ms"), met: large < end }
            }
        });
    judged.collect()
}
