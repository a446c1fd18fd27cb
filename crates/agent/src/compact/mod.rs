//! Making a long conversation short: when it is too long, which rows go, and what stands for them. Pure; whoever
//! asks the model for the summary and commits the result is elsewhere.

mod plan;
mod summary;

pub use plan::{After, Conversation, Force, Plan};
pub use summary::{fallback, labelled, question};

/// What a model can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Tokens in all.
    pub context: usize,
    /// Tokens of them that are kept free for the answer.
    pub output: usize,
}

/// Windows from here on are large.
const LARGE: usize = 512_000;
/// Below this a conversation is short, whatever the window.
const SHORT: usize = 64_000;

impl Window {
    /// Tokens from which on a conversation is made shorter.
    pub fn threshold(self) -> usize {
        let usable = self.context.saturating_sub(self.output);
        let share = if self.context < LARGE { usable / 100 * 75 } else { usable / 2 };
        match share.max(SHORT) {
            threshold if threshold < usable => threshold,
            _ => usable / 100 * 85,
        }
    }
}

/// How much of a conversation is sent before it is made shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub tokens: usize,
    pub rows: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_large_window_three_quarters_of_a_usual_one_and_most_of_a_small_one() {
        for (context, output, want) in [
            (1_000_000, 8_000, 496_000),
            (512_000, 0, 256_000),
            (200_000, 8_000, 144_000),
            (80_000, 4_000, 64_000),
            (65_000, 4_000, 51_850),
            (16_000, 4_000, 10_200),
            (0, 4_000, 0),
        ] {
            assert_eq!(Window { context, output }.threshold(), want, "{context} {output}");
        }
    }
}
