//! Scheduled jobs: their definition, their schedules, missed runs and the texts of a run.

mod expression;
mod job;
mod missed;
mod schedule;

pub use job::{Job, JobId, JobUpdate, LastRun, NewJob, run_prompt, run_report};
pub use missed::{CatchUpPolicy, DueRuns, MissedRunMode, due_runs};
pub use schedule::Schedule;

#[cfg(test)]
mod tests;
