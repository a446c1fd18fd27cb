//! Scheduled work: what a job is, when it is due, and what is asked of the agent then.

mod expression;
mod job;
mod missed;
mod schedule;

pub use job::{Change, Job, JobId, Last, NewJob, answer, prompt};
pub use missed::{Due, Missed, Terms, due};
pub use schedule::Schedule;

#[cfg(test)]
mod tests;
