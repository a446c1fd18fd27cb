use petasos_core::LinkId;
use petasos_core::link::State;
use petasos_core::rate_limit::Scope;
use petasos_fakes::Telegram;
use petasos_platforms::{Secret, discord, telegram};
use tokio::time::{Instant, timeout};

use super::*;
use crate::links::supervisor::connection;

/// Has nothing, and keeps nothing.
struct Nobody;

impl Taker for Nobody {
    async fn cursor(&self, _link: LinkId) -> Result<Option<String>, Error> {
        Ok(None)
    }

    async fn take(
        &self,
        _link: LinkId,
        _events: Vec<Inbound>,
        _unreadable: Vec<Unreadable>,
        _cursor: Option<String>,
    ) -> Result<Kept, Error> {
        Err(Error::Stopping)
    }

    fn post(&self, _platform: &'static str, _account: &str, _post: Post) {}

    fn interrupt(&self, _key: SessionKey) {}

    async fn came_up(&mut self, _adapter: &Arc<Adapter>) {}
}

#[tokio::test]
async fn a_connection_that_does_not_end_hides_nothing_and_keeps_nobody_waiting_for_long() {
    let farewell = Lifetime::default().disconnect_within;
    assert!(farewell <= Duration::from_secs(5), "a connection that will not end is given no longer");
    let fake = Telegram::start().expect("a fake");
    let mut config = telegram::Config::new(Secret::new("123:abc"));
    config.base_url = format!("{}/bot", fake.url());
    let adapter = Arc::new(Adapter::Telegram(telegram::Telegram::new(config).expect("valid")));
    // A task on a thread of its own cannot be ended from outside.
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let task = tokio::task::spawn_blocking(move || {
        begin.send(()).expect("the test waits");
        let _released = stuck.recv();
        telegram::Error::Closed.into()
    });
    begun.await.expect("it runs");
    let (connection, _pulse) = connection::with(task);
    let since = clock::now().before(Duration::from_secs(60));
    let stood = Link { state: State::Up { since }, generation: 1, ..Link::default() };
    let (report, mut link) = watch::channel(stood);
    let (_commands, asked) = mpsc::channel(1);
    let stopper = Stopper::default();
    let supervisor = Supervisor {
        adapter,
        taker: Nobody,
        stopper: stopper.clone(),
        terms: Terms { name: "telegram", ..Terms::default() },
        farewell,
        report,
        asked,
        sole: None,
        held: None,
        connection: Some(connection),
    };
    let broke = Event::Broke {
        generation: 1,
        fault: Fault::Later { after: None },
        code: "telegram_network_error".into(),
        reason: "the network is gone".into(),
    };
    let began = Instant::now();
    let running = tokio::spawn(supervisor.go_on(broke));
    let waits = link.wait_for(|link| !matches!(link.state, State::Up { .. })).await.expect("told").clone();
    assert!(matches!(waits.state, State::Waiting { .. }), "{waits:?}");
    assert!(began.elapsed() < farewell, "told before the old one is given up");
    assert_eq!(fake.calls_of("getMe").len(), 0, "and before anything new is begun");
    let back = timeout(farewell + Duration::from_secs(2), link.wait_for(|link| link.generation == 2));
    assert!(back.await.expect("within seven seconds").is_ok());
    let up = timeout(Duration::from_secs(20), link.wait_for(|link| matches!(link.state, State::Up { .. })));
    assert_eq!(up.await.expect("it stands").expect("told").generation, 2);
    stopper.stop();
    timeout(Duration::from_secs(20), running).await.expect("an end").expect("no panic");
    drop(release);
}

/// Keeps everything and answers everybody.
struct Everything;

impl Taker for Everything {
    async fn cursor(&self, _link: LinkId) -> Result<Option<String>, Error> {
        Ok(None)
    }

    async fn take(
        &self,
        _link: LinkId,
        events: Vec<Inbound>,
        _unreadable: Vec<Unreadable>,
        _cursor: Option<String>,
    ) -> Result<Kept, Error> {
        Ok(Kept { news: true, answered: vec![true; events.len()] })
    }

    fn post(&self, _platform: &'static str, _account: &str, _post: Post) {}

    fn interrupt(&self, _key: SessionKey) {}

    async fn came_up(&mut self, _adapter: &Arc<Adapter>) {}
}

#[tokio::test]
async fn pressed_discord_button_is_acknowledged_in_a_rate_limited_chat() {
    let soon = Duration::from_secs(20);
    let fake = Arc::new(petasos_fakes::Discord::start().expect("a fake"));
    fake.add_direct(50);
    let mut config = discord::Config::new(Secret::new("OTAw.x.secret"));
    config.api_base = fake.api_base();
    config.identify_gap = Duration::ZERO;
    let adapter = Arc::new(Adapter::Discord(discord::Discord::new(config).expect("valid")));
    let wait = Duration::from_secs(60);
    adapter.limits().record(adapter.platform(), Scope::Chat("50".into()), wait, "slow down");
    let stopper = Stopper::default();
    let (mut handle, running) = supervisor(adapter, Everything, stopper.clone(), &Lifetime::default());
    let running = tokio::spawn(running);
    let up = timeout(soon, handle.link.wait_for(|link| matches!(link.state, State::Up { .. })));
    up.await.expect("it stands").expect("told");
    fake.push_button(50, 5, 1, "ea:once:7");
    let acknowledged = {
        let fake = fake.clone();
        move || fake.wait_until(soon, |world| world.calls_of("answerInteraction").next().map(drop))
    };
    assert!(tokio::task::spawn_blocking(acknowledged).await.expect("no panic").is_some());
    stopper.stop();
    timeout(soon, running).await.expect("an end").expect("no panic");
}
