//! Adapter rate limits: while one is in force, no request of its scope reaches the platform.

use std::time::Duration;

use petasos_core::message::{ChatType, Delivery};
use petasos_core::rate_limit::PenaltyScope;
use petasos_core::{Fault, Reached, Route, Source};
use petasos_fakes::telegram::{Fault as TelegramFault, Telegram};
use petasos_platforms::{Adapter, Kind, PREFIX_RESERVE, Part, Secret, SendOptions, StatusReaction, telegram};

const WAIT: Duration = Duration::from_secs(40);

fn adapter(fake: &Telegram) -> Adapter {
    let mut config = telegram::Config::new(Secret::new("123:abc"));
    config.base_url = format!("{}/bot", fake.url());
    config.reactions = true;
    Adapter::Telegram(telegram::Telegram::new(config).expect("good"))
}

fn route(adapter: &Adapter, chat: &str) -> Route {
    let source = Source::new(adapter.platform(), ChatType::Dm, chat);
    Route { reply_to: Some("1".into()), ..Route::to_source(&source, Delivery::Push) }
}

/// Sends one request of every kind and returns their errors.
async fn send_all_kinds(
    adapter: &Adapter,
    to: &Route,
) -> Vec<(&'static str, Option<petasos_platforms::Error>)> {
    let part = Part::plain("x".repeat(PREFIX_RESERVE));
    let options = SendOptions::default();
    vec![
        ("send", adapter.send(to, &part, &options).await.err()),
        ("send once", adapter.send_idempotent(to, &part, &options, "k").await.err()),
        ("edit", adapter.edit(to, "1", &part).await.err()),
        ("draft", adapter.draft(to, 1, "x").await.err()),
        ("delete", adapter.delete(to, "1").await.err()),
        ("typing", adapter.typing(to).await.err()),
        ("reaction", adapter.react(to, StatusReaction::Seen).await.err()),
        ("topic", adapter.create_topic(to, "News").await.err()),
    ]
}

#[tokio::test]
async fn holds_back_requests_of_a_limited_chat_only() {
    let fake = Telegram::start().expect("a fake");
    let adapter = adapter(&fake);
    let limited = route(&adapter, "7");
    let other = route(&adapter, "8");
    adapter.limits().record(adapter.platform(), PenaltyScope::chat_of(&limited), WAIT, "slow down");
    for (name, error) in send_all_kinds(&adapter, &limited).await {
        let error = error.unwrap_or_else(|| panic!("{name} was sent"));
        assert!(error.is_penalized(), "{name}: {error}");
        assert!(matches!(error.fault(), Fault::Later { after: Some(left) } if left <= WAIT), "{name}");
        assert_eq!((error.reached(), error.kind()), (Reached::No, Kind::RateLimited), "{name}");
    }
    assert!(fake.calls().is_empty(), "{:?}", fake.calls());
    adapter.typing(&other).await.expect("not limited");
    assert_eq!(fake.calls().len(), 1);
}

#[tokio::test]
async fn platform_limit_holds_back_requests_without_a_chat() {
    let fake = Telegram::start().expect("a fake");
    let adapter = adapter(&fake);
    adapter.limits().record(adapter.platform(), PenaltyScope::Platform, WAIT, "slow down");
    assert!(adapter.check().await.expect_err("held").is_penalized());
    assert!(adapter.typing(&route(&adapter, "8")).await.expect_err("held").is_penalized());
    assert!(fake.calls().is_empty());
}

#[tokio::test]
async fn records_the_wait_of_any_refusal_for_its_chat() {
    for method in ["sendMessage", "editMessageText", "deleteMessage", "sendChatAction", "setMessageReaction"]
    {
        let fake = Telegram::start().expect("a fake");
        let adapter = adapter(&fake);
        let to = route(&adapter, "7");
        fake.on(method).does(TelegramFault::too_many(40));
        let errors = send_all_kinds(&adapter, &to).await;
        let after = errors.iter().skip_while(|(_, error)| {
            error.as_ref().is_none_or(|error| error.is_penalized() || error.kind() != Kind::RateLimited)
        });
        assert!(
            after.skip(1).all(|(_, error)| error.as_ref().is_some_and(|it| it.is_penalized())),
            "{method}"
        );
        assert_eq!(fake.calls_of(method).len(), 1, "{method}");
        let [penalty] = &adapter.limits().all()[..] else { panic!("{method}: one penalty") };
        assert_eq!(penalty.scope, PenaltyScope::Chat("7".into()), "{method}");
    }
}

#[tokio::test]
async fn limits_a_method_without_a_chat_alone() {
    let fake = Telegram::start().expect("a fake");
    let adapter = adapter(&fake);
    fake.on("getMe").does(TelegramFault::too_many(40));
    assert!(!adapter.check().await.expect_err("refused").is_penalized());
    assert!(adapter.check().await.expect_err("held").is_penalized());
    assert_eq!(fake.calls_of("getMe").len(), 1);
    adapter.typing(&route(&adapter, "7")).await.expect("chats are not limited");
}
