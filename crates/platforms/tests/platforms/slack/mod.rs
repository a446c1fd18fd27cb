//! Slack adapter against a fake Slack.

mod backfill;
mod backfill_bounds;
mod cursor;
mod files;
mod fixture;
mod link;
mod send;
mod workspaces;
