//! Connections: opening, groups, checkpoints, and files that other programs use or replace.

mod checkpoints;
mod detached;
mod groups;
mod opening;
mod ownership;
