//! Best-effort notices of the connector in a chat: sent once, never retried.

use std::sync::Arc;

use petasos_core::Route;
use petasos_platforms::SendOptions;

use crate::context::ConnectorContext;

pub(crate) fn send(connector: &Arc<ConnectorContext>, route: Route, text: &'static str) {
    let Some(adapter) = connector.adapters.of(route.platform).cloned() else { return };
    petasos_runtime::spawn(async move {
        for part in adapter.render(text) {
            if let Err(error) = adapter.send(&route, &part, &SendOptions::default()).await {
                tracing::warn!(%error, "notice not sent");
            }
        }
    });
}
