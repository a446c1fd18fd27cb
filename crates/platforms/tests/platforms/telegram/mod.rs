//! Telegram adapter against a fake Bot API.

mod files;
mod fixture;
mod receive;
mod send;
mod webhook;
