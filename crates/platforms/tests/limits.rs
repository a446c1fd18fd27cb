//! Rate limits of the adapters: while one lasts, no request of its scope reaches the platform.
#![allow(clippy::expect_used, reason = "tests")]

use std::time::Duration;

use petasos_core::message::{ChatType, Delivery};
use petasos_core::rate_limit::Scope;
use petasos_core::{Fault, Reached, Route, Source};
use petasos_fakes::telegram::{Fault as Trouble, Telegram};
use petasos_platforms::{Adapter, Kind, MARK_ROOM, Mark, Part, Secret, SendOptions, telegram};

const WAIT: Duration = Duration::from_secs(40);

fn adapter(fake: &Telegram) -> Adapter {
    let mut config = telegram::Config::new(Secret::new("123:abc"));
    config.base_url = format!("{}/bot", fake.url());
    config.reactions = true;
    Adapter::Telegram(telegram::Telegram::new(config).expect("good"))
}

fn route(adapter: &Adapter, chat: &str) -> Route {
    let source = Source::new(adapter.platform(), ChatType::Dm, chat);
    Route { reply_to: Some("1".into()), ..Route::back_to(&source, Delivery::Push) }
}

/// One request of every kind; the name and the error of each.
async fn everything(adapter: &Adapter, to: &Route) -> Vec<(&'static str, Option<petasos_platforms::Error>)> {
    let (part, options) = (Part::plain("x".repeat(MARK_ROOM)), SendOptions::default());
    vec![
        ("send", adapter.send(to, &part, &options).await.err()),
        ("send once", adapter.send_once(to, &part, &options, "k").await.err()),
        ("edit", adapter.edit(to, "1", &part).await.err()),
        ("draft", adapter.draft(to, 1, "x").await.err()),
        ("delete", adapter.delete(to, "1").await.err()),
        ("typing", adapter.typing(to).await.err()),
        ("reaction", adapter.react(to, Mark::Seen).await.err()),
        ("topic", adapter.make_topic(to, "News").await.err()),
    ]
}

#[tokio::test]
async fn no_request_of_a_limited_chat_is_sent_and_others_are() {
    let fake = Telegram::start().expect("a fake");
    let adapter = adapter(&fake);
    let (limited, other) = (route(&adapter, "7"), route(&adapter, "8"));
    adapter.limits().record(adapter.platform(), Scope::chat_of(&limited), WAIT, "slow down");
    for (name, error) in everything(&adapter, &limited).await {
        let error = error.unwrap_or_else(|| panic!("{name} was sent"));
        assert!(error.is_held(), "{name}: {error}");
        assert!(matches!(error.fault(), Fault::Later { after: Some(left) } if left <= WAIT), "{name}");
        assert_eq!((error.reached(), error.kind()), (Reached::No, Kind::RateLimited), "{name}");
    }
    assert!(fake.calls().is_empty(), "{:?}", fake.calls());
    adapter.typing(&other).await.expect("not limited");
    assert_eq!(fake.calls().len(), 1);
}

#[tokio::test]
async fn limit_of_the_platform_holds_back_requests_without_a_chat_too() {
    let fake = Telegram::start().expect("a fake");
    let adapter = adapter(&fake);
    adapter.limits().record(adapter.platform(), Scope::Platform, WAIT, "slow down");
    assert!(adapter.check().await.expect_err("held").is_held());
    assert!(adapter.typing(&route(&adapter, "8")).await.expect_err("held").is_held());
    assert!(fake.calls().is_empty());
}

#[tokio::test]
async fn refusal_of_any_request_is_recorded_for_its_chat() {
    for method in ["sendMessage", "editMessageText", "deleteMessage", "sendChatAction", "setMessageReaction"]
    {
        let fake = Telegram::start().expect("a fake");
        let adapter = adapter(&fake);
        let to = route(&adapter, "7");
        fake.on(method).does(Trouble::too_many(40));
        let errors = everything(&adapter, &to).await;
        let after = errors.iter().skip_while(|(_, error)| {
            error.as_ref().is_none_or(|error| error.is_held() || error.kind() != Kind::RateLimited)
        });
        assert!(after.skip(1).all(|(_, error)| error.as_ref().is_some_and(|it| it.is_held())), "{method}");
        assert_eq!(fake.calls_of(method).len(), 1, "{method}");
        let [penalty] = &adapter.limits().all()[..] else { panic!("{method}: one penalty") };
        assert_eq!(penalty.scope, Scope::Chat("7".into()), "{method}");
    }
}

#[tokio::test]
async fn method_without_a_chat_is_limited_alone() {
    let fake = Telegram::start().expect("a fake");
    let adapter = adapter(&fake);
    fake.on("getMe").does(Trouble::too_many(40));
    assert!(!adapter.check().await.expect_err("refused").is_held());
    assert!(adapter.check().await.expect_err("held").is_held());
    assert_eq!(fake.calls_of("getMe").len(), 1);
    adapter.typing(&route(&adapter, "7")).await.expect("chats are not limited");
}
