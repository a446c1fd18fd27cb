//! The link: a listener that checks itself (`self_check.rs`).

use std::sync::Arc;
use std::time::Duration;

use petasos_runtime::clock;
use tokio::sync::mpsc;
use tokio::time::sleep_until;
use tracing::info;

use super::request::{RequestHandler, handle_request};
use super::{Error, Webhook};
use crate::inbound::{InboundSink, LinkHealth};
use crate::listener::self_check::{HEALTH_PATH, LinkSignal, SelfCheck, SelfCheckResult, SignalSender};
use crate::listener::{BindError, Listener, is_served};

pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(30);

impl Webhook {
    /// Whether the port is free or already served.
    pub async fn check(&self) -> Result<String, Error> {
        let address = format!("{}:{}", self.listen.host, self.listen.port);
        match Listener::bind(&self.listen).await {
            Ok(_free) => Ok(format!("{address} is free")),
            Err(BindError::InUse(_)) if is_served(&self.listen, HEALTH_PATH).await => {
                Ok(format!("{address} answers"))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub async fn receive(
        &self,
        _cursor: Option<String>,
        sink: &InboundSink,
        health: &mut (dyn FnMut(LinkHealth) + Send),
    ) -> Error {
        health(LinkHealth::Connecting);
        let listener = match Listener::bind(&self.listen).await {
            Ok(listener) => listener,
            Err(error) => return error.into(),
        };
        info!(platform = "webhook", host = self.listen.host, port = self.listen.port, "listening");
        let (signal_tx, signals) = SignalSender::new();
        let handler = Arc::new(RequestHandler::new(self, sink.clone(), signal_tx));
        tokio::select! {
            never = listener.serve(move |request| handle_request(handler.clone(), request)) => match never {},
            error = watch(&listener, SelfCheck::new("webhook", CHECK_INTERVAL), signals, health) => error,
        }
    }
}

async fn watch(
    listener: &Listener,
    mut self_check: SelfCheck,
    mut signals: mpsc::Receiver<LinkSignal>,
    health: &mut (dyn FnMut(LinkHealth) + Send),
) -> Error {
    let mut next = clock::monotonic();
    loop {
        let signal = tokio::select! {
            signal = signals.recv() => signal,
            () = sleep_until(next) => None,
        };
        match signal {
            Some(LinkSignal::RequestHandled) => {
                self_check.reset();
                health(LinkHealth::Connected);
            }
            Some(LinkSignal::NotStored) => health(LinkHealth::Degraded { reason: "webhook_not_taken" }),
            Some(LinkSignal::GatewayClosed) => return Error::Closed,
            None => {
                next = clock::monotonic() + self_check.interval;
                match self_check.run(listener).await {
                    SelfCheckResult::Responding => health(LinkHealth::Connected),
                    SelfCheckResult::Missed => {
                        health(LinkHealth::Degraded { reason: "webhook_not_answering" })
                    }
                    SelfCheckResult::Failed => return Error::SelfCheckFailed,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::Fault;
    use tokio::sync::Notify;

    use super::*;
    use crate::listener::ListenAddress;
    use crate::webhook::Config;

    #[tokio::test]
    async fn three_missed_self_checks_end_the_link_and_free_the_port() {
        let webhook = Webhook::new(Config { port: 0, ..Config::default() }).expect("valid");
        let listener = Listener::bind(&webhook.listen).await.expect("a port");
        let listen = ListenAddress { port: listener.address().port(), ..webhook.listen.clone() };
        let (signal_tx, signals) = SignalSender::new();
        let mut health_log = Vec::new();
        let every = Duration::from_millis(20);
        let start = clock::monotonic();
        let self_check = SelfCheck::new("webhook", every).within(every);
        // The listener is bound and not served.
        let error = watch(&listener, self_check, signals, &mut |state| health_log.push(state)).await;
        assert_eq!((error.clone(), error.fault()), (Error::SelfCheckFailed, Fault::Later { after: None }));
        assert_eq!(health_log, vec![LinkHealth::Degraded { reason: "webhook_not_answering" }; 2]);
        assert!(start.elapsed() >= 3 * every, "three checks");
        drop((signal_tx, listener));
        let webhook = Webhook { listen, ..webhook };
        let (sink, _batches) = InboundSink::new(1);
        let connected = Arc::new(Notify::new());
        let notifier = connected.clone();
        let mut health = move |state| {
            if state == LinkHealth::Connected {
                notifier.notify_one();
            }
        };
        tokio::select! {
            error = webhook.receive(None, &sink, &mut health) => panic!("the link ended: {error}"),
            () = connected.notified() => {}
        }
    }
}
