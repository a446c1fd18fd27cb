//! A word of the connector's own in a chat: once, and if it cannot be said, it is not.

use std::sync::Arc;

use petasos_core::Route;
use petasos_platforms::SendOptions;

use crate::shell::Shell;

pub(crate) fn say(shell: &Arc<Shell>, route: Route, text: &'static str) {
    let Some(adapter) = shell.adapters.of(route.platform).cloned() else { return };
    petasos_runtime::spawn(async move {
        for part in adapter.render(text) {
            if let Err(error) = adapter.send(&route, &part, &SendOptions::default()).await {
                tracing::warn!(%error, "a notice was not sent");
            }
        }
    });
}
