//! Exchanges on every link except Telegram's long polling, and API and webhook requests.

use std::net::TcpStream;

use petasos_fakes::Connector;
use petasos_fakes::connector::event;
use petasos_fakes::hooks::{Sender, WebhookDelivery};
use petasos_gateway::Commit;
use petasos_platforms::AdapterKind;
use serde_json::{Value, json};

use crate::conversation::{self, AnswerForm, CHAT, QUESTION, answer};
use crate::fixture::{SweepFixture, SweepResult, is_marked, short, wait};
use crate::support::api::KEY;
use crate::support::http::{HttpRequest, HttpResponse};
use crate::support::{ProgramFixture, SOON};
use crate::{Scenario, operator};

const DIRECT: u64 = 50;
const SLACK_DIRECT: &str = "D1";
const RELAYED: &str = "c1";
const WARM: &str = "are you there";

/// How users and programs reach the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    Discord,
    Slack,
    TelegramWebhook,
    /// A program sends deliveries, and the answer goes to a chat.
    Webhook,
    /// Behind a connector.
    Relay,
    Api,
    Terminal,
}

const CHATS: [LinkKind; 4] = [LinkKind::Discord, LinkKind::Slack, LinkKind::TelegramWebhook, LinkKind::Relay];
const PUSHED: [LinkKind; 5] =
    [LinkKind::Discord, LinkKind::Slack, LinkKind::TelegramWebhook, LinkKind::Relay, LinkKind::Webhook];
const ALL: [LinkKind; 7] = [
    LinkKind::Discord,
    LinkKind::Slack,
    LinkKind::TelegramWebhook,
    LinkKind::Relay,
    LinkKind::Webhook,
    LinkKind::Api,
    LinkKind::Terminal,
];

/// No `_` arm: a new adapter needs a link here, and a way to send messages over it (`push`).
fn link_of(kind: AdapterKind) -> LinkKind {
    match kind {
        // `main.rs` sweeps its long polling.
        AdapterKind::Telegram => LinkKind::TelegramWebhook,
        AdapterKind::Discord => LinkKind::Discord,
        AdapterKind::Slack => LinkKind::Slack,
        AdapterKind::Webhook => LinkKind::Webhook,
        AdapterKind::External(_) => LinkKind::Relay,
    }
}

#[test]
fn every_adapter_has_a_sweep_link() {
    for kind in AdapterKind::all() {
        assert!(ALL.contains(&link_of(kind)), "{kind:?}");
    }
}

/// The commits of a message on each link; a new commit needs a row here. `all_forms`: with every form of answer.
pub fn visits(commit: Commit, all_forms: bool) -> Vec<(Scenario, u32)> {
    let (links, forms): (&[LinkKind], &[AnswerForm]) = match commit {
        Commit::TakeOver | Commit::WakeLanes => {
            (&CHATS, &[AnswerForm::Plain, AnswerForm::Streamed, AnswerForm::Split])
        }
        Commit::AcceptBatch | Commit::Claim => {
            (&PUSHED, &[AnswerForm::Plain, AnswerForm::Streamed, AnswerForm::Split])
        }
        Commit::Begin | Commit::Step => (&ALL, &[AnswerForm::Plain, AnswerForm::Streamed, AnswerForm::Split]),
        Commit::StagePreview | Commit::PreviewShown => (&CHATS, &[AnswerForm::Streamed]),
        Commit::Sending | Commit::PartSent => (&CHATS, &[AnswerForm::Split]),
        // Not part of an exchange, or the same code on every link: the table in `main.rs` has them.
        Commit::Submit
        | Commit::Completions
        | Commit::Reply
        | Commit::Rewrite
        | Commit::ResumeTurn
        | Commit::GiveUp
        | Commit::ClearSuspect
        | Commit::Outcome
        | Commit::Postpone
        | Commit::RateLimit
        | Commit::DeadLetter
        | Commit::DropPreview
        | Commit::ChatAlive
        | Commit::MarkInterrupted
        | Commit::AnnounceShutdown
        | Commit::ConfirmInterrupted
        | Commit::DropBanners
        | Commit::Notification
        | Commit::Forward
        | Commit::Outage
        | Commit::CronBegin
        | Commit::CronReport
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
        | Commit::WriteProbe => (&[], &[]),
    };
    let forms = if all_forms { forms } else { forms.get(..1).unwrap_or_default() };
    let each =
        |link: &LinkKind| forms.iter().map(|form| (Scenario::OtherLink(*link, *form), 1)).collect::<Vec<_>>();
    links.iter().flat_map(each).filter(|(scenario, _)| is_possible(*scenario)).collect()
}

/// The API and the terminal get an answer as a whole.
fn is_possible(scenario: Scenario) -> bool {
    match scenario {
        Scenario::OtherLink(LinkKind::Api | LinkKind::Terminal, form) => form == AnswerForm::Plain,
        _other => true,
    }
}

pub fn set_up(link: LinkKind, form: AnswerForm) -> SweepFixture {
    let fixture = match link {
        LinkKind::Discord => SweepFixture::new(
            ProgramFixture::builder().discord().with(conversation::streaming_config(form)).build(),
        ),
        LinkKind::Slack => on_slack(form),
        LinkKind::TelegramWebhook => called_by_telegram(form),
        LinkKind::Webhook => with_webhook_and(conversation::streaming_config(form)),
        LinkKind::Relay => behind_connector(form),
        LinkKind::Api => with_api(),
        LinkKind::Terminal => SweepFixture::new(ProgramFixture::new()),
    };
    conversation::set_answer(&fixture.program, form, text(link, form));
    fixture
}

/// A Slack message is ten times as long as one on Telegram.
fn text(link: LinkKind, form: AnswerForm) -> String {
    let more = if (link, form) == (LinkKind::Slack, AnswerForm::Split) {
        "words and words ".repeat(2_400)
    } else {
        String::new()
    };
    answer(form) + &more
}

fn on_slack(form: AnswerForm) -> SweepFixture {
    let program = ProgramFixture::builder().slack().with(conversation::streaming_config(form)).build();
    // The clock of the fake shows another year.
    let file = program.home.path().join("config.yaml");
    let config = std::fs::read_to_string(&file).expect("a configuration");
    let window = "missed_message_backfill: {window_seconds: 1000000000}\n      api_base: ";
    std::fs::write(&file, config.replace("api_base: ", window)).expect("written");
    SweepFixture::new(program)
}

fn called_by_telegram(form: AnswerForm) -> SweepFixture {
    let port = petasos_fakes::port::free();
    SweepFixture::new(ProgramFixture::with_config(conversation::streaming_config(form)))
        .env("TELEGRAM_WEBHOOK_URL", format!("http://127.0.0.1:{port}/tg"))
        .env("TELEGRAM_WEBHOOK_PORT", port.to_string())
        .env("TELEGRAM_WEBHOOK_SECRET", "s3cret")
}

fn behind_connector(form: AnswerForm) -> SweepFixture {
    let connector = Connector::start().expect("a fake");
    let config = format!(
        "{}gateway:\n  relay_url: {}\n  relay_reconnect_base: 0.05\n  relay_platforms: [discord]\n  \
         relay_bot_ids: '{{\"discord\": {{\"botId\": \"app\"}}}}'\n",
        conversation::streaming_config(form),
        connector.url()
    );
    let mut fixture = SweepFixture::new(ProgramFixture::builder().with(&config).build());
    fixture.connector = Some(connector);
    fixture
}

pub fn with_webhook() -> SweepFixture {
    with_webhook_and("")
}

fn with_webhook_and(more: &str) -> SweepFixture {
    let port = petasos_fakes::port::free();
    let to = "deliver: telegram, deliver_extra: {chat_id: '101'}";
    let config = format!(
        "{more}webhook:\n  enabled: true\n  extra:\n    port: {port}\n    delivery_wait: 1\n    routes:\n      \
         ask: {{secret: s, prompt: '{{text}}', {to}}}\n      \
         say: {{secret: s, prompt: '{{text}}', {to}, deliver_only: true}}\n"
    );
    let mut fixture = SweepFixture::new(ProgramFixture::with_config(&config));
    fixture.port = port;
    fixture.provider = Some(Sender::start(port));
    fixture
}

fn deliver(fixture: &SweepFixture, route: &str) {
    let delivery = WebhookDelivery::json(format!("/webhooks/{route}"), &json!({ "text": QUESTION }));
    let delivery = delivery.header("X-Gitlab-Token", "s").header("X-Request-ID", "d1");
    fixture.provider.as_ref().expect("a provider").send(delivery);
}

pub fn forward(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    deliver(fixture, "say");
    Ok(())
}

pub fn check_forwarded(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    fixture.wait_text(CHAT, QUESTION)?;
    check_accepted(fixture)?;
    fixture.program.wait_idle();
    fixture.check_no_unmarked_copy(CHAT, QUESTION)
}

fn check_accepted(fixture: &SweepFixture) -> SweepResult {
    let provider = fixture.provider.as_ref().ok_or("no provider")?;
    if provider.wait_idle(SOON) { Ok(()) } else { Err(format!("{} were never accepted", provider.pending())) }
}

pub fn with_api() -> SweepFixture {
    let port = petasos_fakes::port::free();
    let mut fixture = SweepFixture::new(ProgramFixture::builder().build()).env("API_SERVER_KEY", KEY);
    fixture.port = port;
    fixture.env("API_SERVER_PORT", port.to_string())
}

fn post_run(fixture: &SweepFixture) -> std::io::Result<HttpResponse> {
    let request = HttpRequest::new("POST", "/v1/runs").header("Authorization", format!("Bearer {KEY}"));
    let request = request.header("Idempotency-Key", "once").json(&json!({ "input": QUESTION }));
    request.send(("127.0.0.1", fixture.port))
}

fn listens(fixture: &SweepFixture) -> SweepResult {
    wait("the port is open", || TcpStream::connect(("127.0.0.1", fixture.port)).is_ok())
}

pub fn start_run(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    listens(fixture)?;
    // The process may be killed before it responds.
    let _answer = post_run(fixture);
    Ok(())
}

/// The same request with the same idempotency key is the same run, and it ends.
pub fn check_run(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    listens(fixture)?;
    let reply = post_run(fixture).map_err(|error| error.to_string())?;
    if reply.status != 202 {
        return Err(format!("{}: {}", reply.status, reply.body));
    }
    let path = format!("/v1/runs/{}", reply.json()["run_id"].as_str().unwrap_or_default());
    let mut found = Value::Null;
    let ended = wait("completed", || {
        let request = HttpRequest::new("GET", &path).header("Authorization", format!("Bearer {KEY}"));
        found = request.send(("127.0.0.1", fixture.port)).map(|reply| reply.json()).unwrap_or_default();
        found["status"] == "completed"
    });
    ended.map_err(|error| format!("{error}: {found}"))?;
    if !found.to_string().contains(&answer(AnswerForm::Plain)) {
        return Err(format!("another answer: {found}"));
    }
    fixture.check_model_calls(2)
}

pub fn provoke(fixture: &mut SweepFixture, link: LinkKind, _form: AnswerForm) -> SweepResult {
    match link {
        LinkKind::Discord | LinkKind::Slack => {
            // Messages before the first start are ignored, so the second process is killed.
            fixture.program.start();
            push(fixture, link, WARM);
            wait("answered", || texts(fixture, link).iter().any(|text| text.contains(WARM)))?;
            fixture.program.wait_idle();
            fixture.program.kill();
            push(fixture, link, QUESTION);
            fixture.launch();
        }
        LinkKind::TelegramWebhook | LinkKind::Relay | LinkKind::Webhook => {
            push(fixture, link, QUESTION);
            fixture.launch();
        }
        LinkKind::Api => start_run(fixture)?,
        LinkKind::Terminal => operator::chat(fixture)?,
    }
    Ok(())
}

fn push(fixture: &SweepFixture, link: LinkKind, text: &str) {
    match link {
        LinkKind::Discord => drop(fixture.program.discord().push_text(DIRECT, 5, text)),
        LinkKind::Slack => drop(fixture.program.slack().push_text(SLACK_DIRECT, "U5", text)),
        LinkKind::TelegramWebhook => drop(fixture.program.telegram.push_text(CHAT, CHAT, text)),
        LinkKind::Webhook => deliver(fixture, "ask"),
        LinkKind::Relay => {
            let connector = fixture.connector.as_ref().expect("a connector");
            drop(connector.push(event("discord", RELAYED, "dm", text, Some("m-1"))));
        }
        LinkKind::Api | LinkKind::Terminal => {}
    }
}

fn texts(fixture: &SweepFixture, link: LinkKind) -> Vec<String> {
    match link {
        LinkKind::Discord => fixture.program.discord().texts(DIRECT),
        LinkKind::Slack => fixture.program.slack().texts(SLACK_DIRECT),
        LinkKind::TelegramWebhook | LinkKind::Webhook => fixture.texts(CHAT),
        LinkKind::Relay => fixture.connector.as_ref().expect("a connector").read(|state| {
            state.chats.get(RELAYED).into_iter().flatten().map(|message| message.text.clone()).collect()
        }),
        LinkKind::Api | LinkKind::Terminal => vec![],
    }
}

/// Counts a word of the answer: a split answer is cut between words.
fn word_count<'a>(texts: impl Iterator<Item = &'a String>) -> usize {
    texts.map(|text| text.matches("words").count()).sum()
}

pub fn check(fixture: &mut SweepFixture, link: LinkKind, form: AnswerForm) -> SweepResult {
    match link {
        LinkKind::Api => return check_run(fixture),
        LinkKind::Terminal => return operator::check_chat(fixture),
        LinkKind::Discord
        | LinkKind::Slack
        | LinkKind::TelegramWebhook
        | LinkKind::Webhook
        | LinkKind::Relay => {}
    }
    fixture.launch();
    let whole = text(link, form);
    let want = whole.matches("words").count();
    let beginning: String = whole.chars().take(40).collect();
    let arrived = wait("answered", || {
        let texts = texts(fixture, link);
        match form {
            AnswerForm::Split => word_count(texts.iter()) >= want,
            AnswerForm::Plain | AnswerForm::Streamed => {
                texts.iter().any(|text| text.contains(&beginning) && !text.contains('▉'))
            }
        }
    });
    arrived.map_err(|error| format!("{error}: {:?}", short(&texts(fixture, link))))?;
    if link == LinkKind::Webhook {
        check_accepted(fixture)?;
    }
    fixture.program.wait_idle();
    let texts: Vec<String> = texts(fixture, link).into_iter().filter(|text| !text.contains(WARM)).collect();
    if form == AnswerForm::Split && word_count(texts.iter().filter(|text| !is_marked(text))) > want {
        return Err(format!("an unmarked copy: {:?}", short(&texts)));
    }
    conversation::no_unmarked_copy(form, &texts)?;
    let warm = u64::from(matches!(link, LinkKind::Discord | LinkKind::Slack));
    fixture.check_model_calls(2 + warm)
}
