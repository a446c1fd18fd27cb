//! Measured values and their format.

use std::time::Duration;

pub(super) struct Figure {
    pub(super) name: String,
    pub(super) value: f64,
    unit: Unit,
}

#[derive(Clone, Copy)]
pub(super) enum Unit {
    Milliseconds,
    Megabytes,
    PerSecond,
}

impl Unit {
    pub(super) fn shown(self, value: f64) -> String {
        match self {
            Self::Milliseconds => format!("{value:.2} ms"),
            Self::Megabytes => format!("{value:.1} MB"),
            Self::PerSecond => format!("{value:.0} /s"),
        }
    }
}

impl Figure {
    pub(super) fn time(name: impl Into<String>, span: Duration) -> Self {
        Self { name: name.into(), value: span.as_secs_f64() * 1000.0, unit: Unit::Milliseconds }
    }

    pub(super) fn memory(name: impl Into<String>, kib: u64) -> Self {
        let kib = f64::from(u32::try_from(kib).unwrap_or(u32::MAX));
        Self { name: name.into(), value: kib / 1024.0, unit: Unit::Megabytes }
    }

    pub(super) fn rate(name: impl Into<String>, count: usize, span: Duration) -> Self {
        Self { name: name.into(), value: float(count) / span.as_secs_f64(), unit: Unit::PerSecond }
    }

    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    pub(super) fn shown(&self) -> String {
        self.unit.shown(self.value)
    }
}

/// Median and 99th percentile of `taken`.
pub(super) fn percentiles(name: &str, taken: &mut [Duration]) -> [Figure; 2] {
    taken.sort_unstable();
    let at = |percent: usize| taken[taken.len() * percent / 100];
    [Figure::time(format!("{name}, p50"), at(50)), Figure::time(format!("{name}, p99"), at(99))]
}

/// CPU time per turn.
pub(super) fn per_turn(name: impl Into<String>, spent: Duration, count: usize) -> Figure {
    Figure::time(name, spent.div_f64(float(count)))
}

pub(super) fn median(spans: &mut [Duration]) -> Duration {
    spans.sort_unstable();
    spans[spans.len() / 2]
}

fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
