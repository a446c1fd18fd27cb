use petasos_core::LinkId;
use petasos_core::link::State;
use petasos_core::rate_limit::PenaltyScope;
use petasos_fakes::Telegram;
use petasos_platforms::{Secret, discord, telegram};
use tokio::time::timeout;

use super::*;
use crate::clock;
use crate::links::supervisor::connection;

/// Has no cursor and refuses every batch.
struct RejectingSink;

impl LinkSink for RejectingSink {
    async fn cursor(&self, _link: LinkId) -> Result<Option<String>, Error> {
        Ok(None)
    }

    async fn accept_batch(
        &self,
        _link: LinkId,
        _events: Vec<Inbound>,
        _unreadable: Vec<Unreadable>,
        _cursor: Option<String>,
    ) -> Result<AcceptedBatch, Error> {
        Err(Error::Stopping)
    }

    fn post(&self, _platform: &'static str, _account: &str, _post: Post) {}

    fn interrupt(&self, _key: SessionKey) {}

    async fn came_up(&mut self, _adapter: &Arc<Adapter>) {}
}

#[tokio::test]
async fn reports_and_replaces_connection_that_does_not_close() {
    let close_timeout = Lifetime::default().disconnect_within;
    assert!(close_timeout <= Duration::from_secs(5), "the default timeout is at most five seconds");
    let fake = Telegram::start().expect("a fake");
    let mut config = telegram::Config::new(Secret::new("123:abc"));
    config.base_url = format!("{}/bot", fake.url());
    let adapter = Arc::new(Adapter::Telegram(telegram::Telegram::new(config).expect("valid")));
    // A blocking task cannot be aborted.
    let (release, stuck) = std::sync::mpsc::sync_channel::<()>(1);
    let (begin, begun) = tokio::sync::oneshot::channel();
    let task = petasos_runtime::blocking(move || {
        begin.send(()).expect("the test waits");
        let _released = stuck.recv();
        telegram::Error::Closed.into()
    });
    begun.await.expect("it runs");
    let (connection, _pulse) = connection::connection_of(task);
    let since = clock::now().before(Duration::from_secs(60));
    let stood = Link { state: State::Up { since }, generation: 1, ..Link::default() };
    let (report, mut link) = watch::channel(stood);
    let (_sender, commands) = mpsc::channel(1);
    let shutdown = ShutdownHandle::default();
    let supervisor = Supervisor {
        adapter,
        sink: RejectingSink,
        shutdown: shutdown.clone(),
        policy: LinkPolicy { name: "telegram", ..LinkPolicy::default() },
        close_timeout,
        redactor: Redactor::default(),
        report,
        commands,
        bot_lock: None,
        lock_guard: None,
        connection: Some(connection),
    };
    let broke = Event::Failed {
        generation: 1,
        fault: Fault::Later { after: None },
        code: "telegram_network_error".into(),
        reason: "the network is gone".into(),
    };
    let began = clock::monotonic();
    let running = petasos_runtime::spawn(supervisor.run_from(broke));
    let waits = link.wait_for(|link| !matches!(link.state, State::Up { .. })).await.expect("a state").clone();
    assert!(matches!(waits.state, State::Waiting { .. }), "{waits:?}");
    assert!(began.elapsed() < close_timeout, "reported before the old connection is abandoned");
    assert_eq!(fake.calls_of("getMe").len(), 0, "reported before the new connection starts");
    let back = timeout(close_timeout + Duration::from_secs(2), link.wait_for(|link| link.generation == 2));
    assert!(back.await.expect("within seven seconds").is_ok());
    let up = timeout(Duration::from_secs(20), link.wait_for(|link| matches!(link.state, State::Up { .. })));
    assert_eq!(up.await.expect("connected").expect("a state").generation, 2);
    shutdown.stop();
    timeout(Duration::from_secs(20), running).await.expect("an end").expect("no panic");
    drop(release);
}

/// Accepts every batch as new and answered.
struct AcceptingSink;

impl LinkSink for AcceptingSink {
    async fn cursor(&self, _link: LinkId) -> Result<Option<String>, Error> {
        Ok(None)
    }

    async fn accept_batch(
        &self,
        _link: LinkId,
        events: Vec<Inbound>,
        _unreadable: Vec<Unreadable>,
        _cursor: Option<String>,
    ) -> Result<AcceptedBatch, Error> {
        Ok(AcceptedBatch { has_new: true, answered: vec![true; events.len()] })
    }

    fn post(&self, _platform: &'static str, _account: &str, _post: Post) {}

    fn interrupt(&self, _key: SessionKey) {}

    async fn came_up(&mut self, _adapter: &Arc<Adapter>) {}
}

#[tokio::test]
async fn acknowledges_discord_button_in_rate_limited_chat() {
    let soon = Duration::from_secs(20);
    let fake = Arc::new(petasos_fakes::Discord::start().expect("a fake"));
    fake.add_direct(50);
    let mut config = discord::Config::new(Secret::new("OTAw.x.secret"));
    config.api_base = fake.api_base();
    config.identify_gap = Duration::ZERO;
    let adapter = Arc::new(Adapter::Discord(discord::Discord::new(config).expect("valid")));
    let wait = Duration::from_secs(60);
    adapter.limits().record(adapter.platform(), PenaltyScope::Chat("50".into()), wait, "slow down");
    let shutdown = ShutdownHandle::default();
    let (mut handle, running) = supervisor(adapter, AcceptingSink, shutdown.clone(), &Lifetime::default());
    let running = petasos_runtime::spawn(running);
    let up = timeout(soon, handle.link.wait_for(|link| matches!(link.state, State::Up { .. })));
    up.await.expect("connected").expect("a state");
    fake.push_button(50, 5, 1, "ea:once:7");
    let acknowledged = {
        let fake = fake.clone();
        move || fake.wait_until(soon, |world| world.calls_of("answerInteraction").next().map(drop))
    };
    assert!(petasos_runtime::blocking(acknowledged).await.expect("no panic").is_some());
    shutdown.stop();
    timeout(soon, running).await.expect("an end").expect("no panic");
}
