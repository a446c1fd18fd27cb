//! Conversations on every kind of link but Telegram's long poll, and programs that call us.

use std::net::TcpStream;

use petasos_fakes::Connector;
use petasos_fakes::connector::event;
use petasos_fakes::hooks::{Delivery, Sender};
use petasos_gateway::Commit;
use petasos_platforms::AdapterKind;
use serde_json::{Value, json};

use crate::life::{Life, Outcome, is_marked, short, wait};
use crate::support::api::KEY;
use crate::support::http::{Ask, Reply};
use crate::support::{Bench, SOON};
use crate::talk::{self, CHAT, Form, QUESTION, answer};
use crate::{Scenario, owner};

/// A private chat on Discord, on Slack, and behind the connector.
const DIRECT: u64 = 50;
const SLACK_DIRECT: &str = "D1";
const RELAYED: &str = "c1";
const WARM: &str = "are you there";

/// How people and programs reach the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Discord,
    Slack,
    /// Telegram calls instead of being polled.
    TelegramWebhook,
    /// Another program delivers, and its answer goes to a chat.
    Webhook,
    /// A connector carries it.
    Relay,
    Api,
    Terminal,
}

const CHATS: [Link; 4] = [Link::Discord, Link::Slack, Link::TelegramWebhook, Link::Relay];
const PUSHED: [Link; 5] = [Link::Discord, Link::Slack, Link::TelegramWebhook, Link::Relay, Link::Webhook];
const ALL: [Link; 7] = [
    Link::Discord,
    Link::Slack,
    Link::TelegramWebhook,
    Link::Relay,
    Link::Webhook,
    Link::Api,
    Link::Terminal,
];

/// No `_` arm: a new adapter needs a link here, and a way for people to write over it (`say`).
fn link_of(kind: AdapterKind) -> Link {
    match kind {
        // Its long poll is swept by `main.rs`.
        AdapterKind::Telegram => Link::TelegramWebhook,
        AdapterKind::Discord => Link::Discord,
        AdapterKind::Slack => Link::Slack,
        AdapterKind::Webhook => Link::Webhook,
        AdapterKind::External(_) => Link::Relay,
    }
}

#[test]
fn every_adapter_is_swept() {
    for kind in AdapterKind::all() {
        assert!(ALL.contains(&link_of(kind)), "{kind:?}");
    }
}

/// The commits on the way of a message over each link. A new commit needs a row here, too. `all_forms`: of every answer.
pub fn visits(commit: Commit, all_forms: bool) -> Vec<(Scenario, u32)> {
    let (links, forms): (&[Link], &[Form]) = match commit {
        Commit::TakeOver | Commit::WakeLanes => (&CHATS, &[Form::Plain, Form::Streamed, Form::Split]),
        Commit::Take | Commit::Claim => (&PUSHED, &[Form::Plain, Form::Streamed, Form::Split]),
        Commit::Begin | Commit::Step => (&ALL, &[Form::Plain, Form::Streamed, Form::Split]),
        Commit::StagePreview | Commit::PreviewShown => (&CHATS, &[Form::Streamed]),
        Commit::Sending | Commit::PartSent => (&CHATS, &[Form::Split]),
        // Not on the way of a message, or the same code on every link: the table of the program has them.
        Commit::Submit
        | Commit::Completions
        | Commit::Say
        | Commit::Rewrite
        | Commit::TakenUp
        | Commit::GiveUp
        | Commit::ClearSuspect
        | Commit::Outcome
        | Commit::Postpone
        | Commit::RateLimit
        | Commit::Bury
        | Commit::DropPreview
        | Commit::ChatAlive
        | Commit::MarkAtWork
        | Commit::Announce
        | Commit::CloseBooks
        | Commit::DropBanners
        | Commit::Post
        | Commit::PassOn
        | Commit::Outage
        | Commit::CronBegin
        | Commit::CronTell
        | Commit::CronJob
        | Commit::Process
        | Commit::Operator
        | Commit::Question
        | Commit::Todo
        | Commit::Run
        | Commit::Delegation
        | Commit::Topic
        | Commit::Connector
        | Commit::Sweep
        | Commit::Archive
        | Commit::Pulse => (&[], &[]),
    };
    let forms = if all_forms { forms } else { forms.get(..1).unwrap_or_default() };
    let each = |link: &Link| forms.iter().map(|form| (Scenario::On(*link, *form), 1)).collect::<Vec<_>>();
    links.iter().flat_map(each).filter(|(scenario, _)| is_possible(*scenario)).collect()
}

/// Programs and the terminal read an answer as a whole.
fn is_possible(scenario: Scenario) -> bool {
    match scenario {
        Scenario::On(Link::Api | Link::Terminal, form) => form == Form::Plain,
        _other => true,
    }
}

pub fn set_up(link: Link, form: Form) -> Life {
    let life = match link {
        Link::Discord => Life::new(Bench::setup().discord().with(talk::streaming(form)).build()),
        Link::Slack => on_slack(form),
        Link::TelegramWebhook => called_by_telegram(form),
        Link::Webhook => with_webhook_and(talk::streaming(form)),
        Link::Relay => behind_connector(form),
        Link::Api => with_api(),
        Link::Terminal => Life::new(Bench::new()),
    };
    talk::answers(&life.bench, form, text(link, form));
    life
}

/// A message of Slack's takes ten times as much as one of Telegram's.
fn text(link: Link, form: Form) -> String {
    let more = if (link, form) == (Link::Slack, Form::Split) {
        "words and words ".repeat(2_400)
    } else {
        String::new()
    };
    answer(form) + &more
}

fn on_slack(form: Form) -> Life {
    let bench = Bench::setup().slack().with(talk::streaming(form)).build();
    // The fake's clock stands in another year.
    let file = bench.home.path().join("config.yaml");
    let config = std::fs::read_to_string(&file).expect("a configuration");
    let window = "missed_message_backfill: {window_seconds: 1000000000}\n      api_base: ";
    std::fs::write(&file, config.replace("api_base: ", window)).expect("written");
    Life::new(bench)
}

fn called_by_telegram(form: Form) -> Life {
    let port = petasos_fakes::port::free();
    Life::new(Bench::with(talk::streaming(form)))
        .env("TELEGRAM_WEBHOOK_URL", format!("http://127.0.0.1:{port}/tg"))
        .env("TELEGRAM_WEBHOOK_PORT", port.to_string())
        .env("TELEGRAM_WEBHOOK_SECRET", "s3cret")
}

fn behind_connector(form: Form) -> Life {
    let connector = Connector::start().expect("a fake");
    let config = format!(
        "{}gateway:\n  relay_url: {}\n  relay_reconnect_base: 0.05\n  relay_platforms: [discord]\n  \
         relay_bot_ids: '{{\"discord\": {{\"botId\": \"app\"}}}}'\n",
        talk::streaming(form),
        connector.url()
    );
    let mut life = Life::new(Bench::setup().with(&config).build());
    life.connector = Some(connector);
    life
}

pub fn with_webhook() -> Life {
    with_webhook_and("")
}

fn with_webhook_and(more: &str) -> Life {
    let port = petasos_fakes::port::free();
    let to = "deliver: telegram, deliver_extra: {chat_id: '101'}";
    let config = format!(
        "{more}webhook:\n  enabled: true\n  extra:\n    port: {port}\n    delivery_wait: 1\n    routes:\n      \
         ask: {{secret: s, prompt: '{{text}}', {to}}}\n      \
         say: {{secret: s, prompt: '{{text}}', {to}, deliver_only: true}}\n"
    );
    let mut life = Life::new(Bench::with(&config));
    (life.port, life.provider) = (port, Some(Sender::start(port)));
    life
}

fn deliver(life: &Life, route: &str) {
    let delivery = Delivery::json(format!("/webhooks/{route}"), &json!({ "text": QUESTION }));
    let delivery = delivery.header("X-Gitlab-Token", "s").header("X-Request-ID", "d1");
    life.provider.as_ref().expect("a provider").send(delivery);
}

pub fn pass_on(life: &mut Life) -> Outcome {
    life.launch();
    deliver(life, "say");
    Ok(())
}

pub fn check_passed_on(life: &mut Life) -> Outcome {
    life.launch();
    life.sees(CHAT, QUESTION)?;
    is_taken(life)?;
    life.bench.settle();
    life.at_most_one_unmarked(CHAT, QUESTION)
}

fn is_taken(life: &Life) -> Outcome {
    let provider = life.provider.as_ref().ok_or("no provider")?;
    if provider.wait_idle(SOON) { Ok(()) } else { Err(format!("{} were never taken", provider.pending())) }
}

pub fn with_api() -> Life {
    let port = petasos_fakes::port::free();
    let mut life = Life::new(Bench::setup().build()).env("API_SERVER_KEY", KEY);
    life.port = port;
    life.env("API_SERVER_PORT", port.to_string())
}

fn post_run(life: &Life) -> std::io::Result<Reply> {
    let ask = Ask::new("POST", "/v1/runs").header("Authorization", format!("Bearer {KEY}"));
    let ask = ask.header("Idempotency-Key", "once").json(&json!({ "input": QUESTION }));
    ask.send(("127.0.0.1", life.port))
}

fn listens(life: &Life) -> Outcome {
    wait("it listens", || TcpStream::connect(("127.0.0.1", life.port)).is_ok())
}

pub fn start_run(life: &mut Life) -> Outcome {
    life.launch();
    listens(life)?;
    // It may die before it answers.
    let _answer = post_run(life);
    Ok(())
}

/// The same request under the same name is the same run, and it ends.
pub fn check_run(life: &mut Life) -> Outcome {
    life.launch();
    listens(life)?;
    let reply = post_run(life).map_err(|error| error.to_string())?;
    if reply.status != 202 {
        return Err(format!("{}: {}", reply.status, reply.body));
    }
    let path = format!("/v1/runs/{}", reply.json()["run_id"].as_str().unwrap_or_default());
    let mut found = Value::Null;
    let ended = wait("completed", || {
        let ask = Ask::new("GET", &path).header("Authorization", format!("Bearer {KEY}"));
        found = ask.send(("127.0.0.1", life.port)).map(|reply| reply.json()).unwrap_or_default();
        found["status"] == "completed"
    });
    ended.map_err(|error| format!("{error}: {found}"))?;
    if !found.to_string().contains(&answer(Form::Plain)) {
        return Err(format!("another answer: {found}"));
    }
    life.asked_at_most(2)
}

pub fn provoke(life: &mut Life, link: Link, _form: Form) -> Outcome {
    match link {
        Link::Discord | Link::Slack => {
            // What was written before a first start is not ours: the one that dies is the second.
            life.bench.start();
            push(life, link, WARM);
            wait("answered", || texts(life, link).iter().any(|text| text.contains(WARM)))?;
            life.bench.settle();
            life.bench.kill();
            push(life, link, QUESTION);
            life.launch();
        }
        Link::TelegramWebhook | Link::Relay | Link::Webhook => {
            push(life, link, QUESTION);
            life.launch();
        }
        Link::Api => start_run(life)?,
        Link::Terminal => owner::chat(life)?,
    }
    Ok(())
}

fn push(life: &Life, link: Link, text: &str) {
    match link {
        Link::Discord => drop(life.bench.discord().push_text(DIRECT, 5, text)),
        Link::Slack => drop(life.bench.slack().push_text(SLACK_DIRECT, "U5", text)),
        Link::TelegramWebhook => drop(life.bench.telegram.push_text(CHAT, CHAT, text)),
        Link::Webhook => deliver(life, "ask"),
        Link::Relay => {
            let connector = life.connector.as_ref().expect("a connector");
            drop(connector.push(event("discord", RELAYED, "dm", text, Some("m-1"))));
        }
        Link::Api | Link::Terminal => {}
    }
}

fn texts(life: &Life, link: Link) -> Vec<String> {
    match link {
        Link::Discord => life.bench.discord().texts(DIRECT),
        Link::Slack => life.bench.slack().texts(SLACK_DIRECT),
        Link::TelegramWebhook | Link::Webhook => life.texts(CHAT),
        Link::Relay => life.connector.as_ref().expect("a connector").read(|world| {
            world.chats.get(RELAYED).into_iter().flatten().map(|message| message.text.clone()).collect()
        }),
        Link::Api | Link::Terminal => vec![],
    }
}

/// Its words: what is sent in parts is cut between them.
fn words<'a>(texts: impl Iterator<Item = &'a String>) -> usize {
    texts.map(|text| text.matches("words").count()).sum()
}

pub fn check(life: &mut Life, link: Link, form: Form) -> Outcome {
    match link {
        Link::Api => return check_run(life),
        Link::Terminal => return owner::check_chat(life),
        Link::Discord | Link::Slack | Link::TelegramWebhook | Link::Webhook | Link::Relay => {}
    }
    life.launch();
    let whole = text(link, form);
    let (want, beginning) = (whole.matches("words").count(), whole.chars().take(40).collect::<String>());
    let arrived = wait("answered", || {
        let texts = texts(life, link);
        match form {
            Form::Split => words(texts.iter()) >= want,
            Form::Plain | Form::Streamed => {
                texts.iter().any(|text| text.contains(&beginning) && !text.contains('▉'))
            }
        }
    });
    arrived.map_err(|error| format!("{error}: {:?}", short(&texts(life, link))))?;
    if link == Link::Webhook {
        is_taken(life)?;
    }
    life.bench.settle();
    let texts: Vec<String> = texts(life, link).into_iter().filter(|text| !text.contains(WARM)).collect();
    if form == Form::Split && words(texts.iter().filter(|text| !is_marked(text))) > want {
        return Err(format!("an unmarked copy: {:?}", short(&texts)));
    }
    talk::no_unmarked_copy(form, &texts)?;
    let warm = u64::from(matches!(link, Link::Discord | Link::Slack));
    life.asked_at_most(2 + warm)
}
