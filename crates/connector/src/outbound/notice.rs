//! Best-effort notices of the connector in a chat: sent once, never retried.

use petasos_core::Route;
use petasos_platforms::SendOptions;

use crate::adapters::Adapters;

pub(crate) fn send(adapters: &Adapters, route: Route, text: &'static str) {
    let Some(adapter) = adapters.of(route.platform).cloned() else { return };
    petasos_runtime::spawn(async move {
        for part in adapter.render(text) {
            if let Err(error) = adapter.send(&route, &part, &SendOptions::default()).await {
                tracing::warn!(%error, "notice not sent");
            }
        }
    });
}
