//! Goals of the workload `stored`: figures of the large home compared with the empty one.

/// Result of checking one goal.
#[derive(Debug, PartialEq)]
pub(super) struct GoalResult {
    pub(super) name: &'static str,
    pub(super) shown: String,
    pub(super) met: bool,
}

enum GoalLimit {
    /// Upper limit of the ratio large/empty.
    Ratio(f64),
    /// Upper limit of the large home's figure, in milliseconds.
    Below(f64),
}

/// In the order of the figures of one home.
const GOALS: [(&str, GoalLimit); 4] = [
    ("start", GoalLimit::Ratio(1.3)),
    ("CPU in the first minute without turns", GoalLimit::Below(300.0)),
    ("CPU per turn", GoalLimit::Ratio(1.2)),
    ("RSS", GoalLimit::Ratio(1.2)),
];

/// `figures`: those of the empty home, then those of the large one.
pub(super) fn judge(figures: &[f64]) -> Vec<GoalResult> {
    let (empty, large) = figures.split_at(figures.len() / 2);
    let judged =
        GOALS.iter().zip(empty.iter().zip(large)).map(|((name, limit), (empty, large))| match limit {
            GoalLimit::Ratio(most) => {
                let ratio = large / empty;
                GoalResult { name, shown: format!("{ratio:.2}x, at most {most}x"), met: ratio <= *most }
            }
            GoalLimit::Below(end) => {
                GoalResult { name, shown: format!("{large:.0} ms, under {end} ms"), met: large < end }
            }
        });
    judged.collect()
}
