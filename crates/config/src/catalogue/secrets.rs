//! Secrets that are not in files of the home.

use std::time::Duration;

use serde_json::Value;

use crate::key::{keys, seconds, table};

keys! {
    COMMANDS: Option<Value> = table(
        "secrets.commands",
        "variables whose value a command prints at start: a map of variable name to command, as a text for the shell or \
         a list of arguments",
    );
    COMMAND_TIMEOUT: Duration =
        seconds("secrets.command_timeout_seconds", 10.0, "end a command of secrets.commands after this many seconds");
}
