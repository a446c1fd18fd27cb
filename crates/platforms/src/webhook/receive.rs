//! The link: a listener that proves itself (`called.rs`).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::answer::answer;
use super::{Desk, Error, Webhook};
use crate::called::{Bell, Echo, HEALTH, Hearing, News};
use crate::intake::{Health, Intake};
use crate::listener::{Listener, NotBound, is_served};

/// How often we ask. A link is deaf after two minutes without a sign of life.
pub(super) const BEAT: Duration = Duration::from_secs(30);

impl Webhook {
    /// Whether deliveries can be, or are, listened for here.
    pub async fn check(&self) -> Result<String, Error> {
        let place = format!("{}:{}", self.place.host, self.place.port);
        match Listener::bind(&self.place).await {
            Ok(_free) => Ok(format!("{place} is free")),
            Err(NotBound::InUse(_)) if is_served(&self.place, HEALTH).await => Ok(format!("{place} answers")),
            Err(error) => Err(error.into()),
        }
    }

    pub async fn receive(
        &self,
        _cursor: Option<String>,
        intake: &Intake,
        health: &mut (dyn FnMut(Health) + Send),
    ) -> Error {
        health(Health::Connecting);
        let listener = match Listener::bind(&self.place).await {
            Ok(listener) => listener,
            Err(error) => return error.into(),
        };
        info!(platform = "webhook", host = self.place.host, port = self.place.port, "listening");
        let (bell, news) = Bell::new();
        let desk = Arc::new(Desk::new(self, intake.clone(), bell));
        tokio::select! {
            never = listener.serve(move |request| answer(desk.clone(), request)) => match never {},
            error = watch(&listener, Echo::new("webhook", BEAT), news, health) => error,
        }
    }
}

async fn watch(
    listener: &Listener,
    mut echo: Echo,
    mut news: mpsc::Receiver<News>,
    health: &mut (dyn FnMut(Health) + Send),
) -> Error {
    let mut next = Instant::now();
    loop {
        let heard = tokio::select! {
            news = news.recv() => news,
            () = sleep_until(next) => None,
        };
        match heard {
            Some(News::Heard) => {
                echo.heard();
                health(Health::Polling);
            }
            Some(News::NotTaken) => health(Health::Degraded { reason: "webhook_not_taken" }),
            Some(News::Gone) => return Error::Closed,
            None => {
                next = Instant::now() + echo.every;
                match echo.ask(listener).await {
                    Hearing::Good => health(Health::Polling),
                    Hearing::Poor => health(Health::Degraded { reason: "webhook_not_answering" }),
                    Hearing::Gone => return Error::Deaf,
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
    use crate::listener::Place;
    use crate::webhook::Config;

    #[tokio::test]
    async fn a_listener_that_does_not_answer_ends_the_link_at_the_third_question_and_is_bound_anew() {
        let webhook = Webhook::new(Config { port: 0, ..Config::default() }).expect("valid");
        let listener = Listener::bind(&webhook.place).await.expect("a port");
        let place = Place { port: listener.address().port(), ..webhook.place.clone() };
        let (bell, news) = Bell::new();
        let mut told = Vec::new();
        let (every, began) = (Duration::from_millis(20), Instant::now());
        let echo = Echo::new("webhook", every).within(every);
        // Nobody serves: callers get through to the port, and no further.
        let error = watch(&listener, echo, news, &mut |state| told.push(state)).await;
        assert_eq!((error.clone(), error.fault()), (Error::Deaf, Fault::Later { after: None }));
        assert_eq!(told, vec![Health::Degraded { reason: "webhook_not_answering" }; 2]);
        assert!(began.elapsed() >= 3 * every, "three questions");
        drop((bell, listener));
        let webhook = Webhook { place, ..webhook };
        let (intake, _batches) = Intake::new(1);
        let stands = Arc::new(Notify::new());
        let told = stands.clone();
        let mut tell = move |state| {
            if state == Health::Polling {
                told.notify_one();
            }
        };
        tokio::select! {
            error = webhook.receive(None, &intake, &mut tell) => panic!("the link ended: {error}"),
            // The same place answers again.
            () = stands.notified() => {}
        }
    }
}
