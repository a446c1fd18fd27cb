//! The link of one platform: the first keeps the shared connection, the others say how it is.

use super::link::Link;
use super::wire::Standing;
use super::{Error, Relay};
use crate::intake::{Health, Intake};
use crate::relay::socket::Socket;

impl Relay {
    /// Whether a connection can be opened. It says no hello, so it takes nothing over.
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
        intake: &Intake,
        health: &mut (dyn FnMut(Health) + Send),
    ) -> Error {
        health(Health::Connecting);
        if self.leads {
            return Link::new(&self.wire, intake, health).run().await;
        }
        self.follow(health).await
    }

    async fn follow(&self, health: &mut (dyn FnMut(Health) + Send)) -> Error {
        let mut standing = self.wire.standing.subscribe();
        loop {
            let now = *standing.borrow_and_update();
            match now {
                Standing::Up => health(Health::Polling),
                Standing::Down => health(Health::Degraded { reason: "relay_not_connected" }),
                Standing::Revoked => return Error::Revoked,
            }
            // While it stands, it is alive: whoever keeps it has seen to that.
            let beat = tokio::time::timeout(self.wire.config.ping_every, standing.changed());
            if let Ok(Err(_gone)) = beat.await {
                return Error::Deserted;
            }
        }
    }
}
