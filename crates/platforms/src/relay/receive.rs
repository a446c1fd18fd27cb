//! The link of one platform: the first adapter runs the shared connection, the others report its state.

use super::link::LinkTask;
use super::wire::ConnectionState;
use super::{Error, Relay};
use crate::inbound::{InboundSink, LinkHealth};
use crate::relay::socket::Socket;

impl Relay {
    /// Tests the connection. Without a hello, so it takes nothing over.
    pub async fn check(&self) -> Result<String, Error> {
        let bearer = self.wire.credentials().map(|it| super::control::token(&it));
        let config = &self.wire.config;
        let dialled = tokio::time::timeout(config.open_timeout, Socket::dial(0, config, bearer)).await;
        dialled.map_err(|_elapsed| Error::Silent)??;
        Ok(format!("{} answers", config.url))
    }

    pub async fn receive(
        &self,
        _cursor: Option<String>,
        sink: &InboundSink,
        health: &mut (dyn FnMut(LinkHealth) + Send),
    ) -> Error {
        health(LinkHealth::Connecting);
        if self.leads {
            return LinkTask::new(&self.wire, sink, health).run().await;
        }
        self.follow(health).await
    }

    async fn follow(&self, health: &mut (dyn FnMut(LinkHealth) + Send)) -> Error {
        let mut connection = self.wire.connection.subscribe();
        loop {
            let now = *connection.borrow_and_update();
            match now {
                ConnectionState::Up => health(LinkHealth::Connected),
                ConnectionState::Down => health(LinkHealth::Degraded { reason: "relay_not_connected" }),
                ConnectionState::Revoked => return Error::Revoked,
            }
            // The link task checks that the connection is alive.
            let change = tokio::time::timeout(self.wire.config.ping_every, connection.changed());
            if let Ok(Err(_gone)) = change.await {
                return Error::Deserted;
            }
        }
    }
}
