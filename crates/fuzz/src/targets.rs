//! Targets with public parsers.

use std::cell::OnceCell;

use petasos_approval::{Assessment, Context, assess, display};
use petasos_core::Redactor;
use petasos_platforms::{Adapter, Secret, discord, slack, telegram};
use petasos_relay::{FromConnector, FromGateway, Lines};

/// Messages of a socket, in two pieces, read by both ends.
pub(crate) fn relay_frame(bytes: &[u8]) -> bool {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut lines = Lines::default();
    let pieces = [first, second, b"\n"].map(|piece| lines.push(piece).unwrap_or_default());
    let read = |line: &[u8]| {
        let connector = FromConnector::read(line).is_ok_and(|frame| frame.is_some());
        FromGateway::read(line).is_ok_and(|frame| frame.is_some()) || connector
    };
    pieces.concat().iter().filter(|line| read(line)).count() > 0
}

/// Redaction by pattern and by value, whole and in chunks.
pub(crate) fn program_output(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let redactor = Redactor::new(["correct-horse-battery"]);
    let whole = redactor.redact(&text);
    let mut stream = redactor.stream();
    let mut shown: String = text.split_inclusive('r').map(|chunk| stream.push(chunk)).collect();
    shown.push_str(&stream.finish());
    assert_eq!(shown, whole, "chunks differ from the whole");
    !petasos_agent::redact(&text).is_empty()
}

/// Assessment and display of a command.
pub(crate) fn shell_command(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let context = Context {
        home: "/home/ann",
        cwd: "/home/ann/work",
        gateway_home: "/home/ann/.petasos",
        ..Context::default()
    };
    let shown = display(&text, &petasos_agent::secret_ranges(&text));
    let assessment = assess(&text, &context);
    !shown.is_empty() && !matches!(assessment, Assessment::Forbidden(_))
}

thread_local! {
    static ADAPTERS: OnceCell<Vec<Adapter>> = const { OnceCell::new() };
}

/// Rendered for every platform.
pub(crate) fn markdown(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let _tables = petasos_platforms::markdown::without_tables(&text);
    let blocks = petasos_platforms::markdown::parse(&text);
    let _plain = petasos_platforms::markdown::plain(&blocks);
    ADAPTERS.with(|adapters| {
        for adapter in adapters.get_or_init(adapters_of_every_dialect) {
            adapter.render(&text);
        }
    });
    !blocks.is_empty()
}

fn adapters_of_every_dialect() -> Vec<Adapter> {
    let token = || Secret::new("1:a");
    let telegram = telegram::Telegram::new(telegram::Config::new(token())).ok().map(Adapter::Telegram);
    let discord = discord::Discord::new(discord::Config::new(token())).ok().map(Adapter::Discord);
    let slack = slack::Slack::new(slack::Config::new("xapp-1-A1-x", "xoxb-1")).ok().map(Adapter::Slack);
    telegram.into_iter().chain(discord).chain(slack).collect()
}

/// `config.yaml`, a zero byte, and `.env`.
pub(crate) fn configuration(bytes: &[u8]) -> bool {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let yaml = parts.next().unwrap_or_default();
    let dotenv = parts.next().unwrap_or_default();
    let resolved = petasos_config::from_texts(yaml, dotenv, []);
    let _explained = petasos_config::explain_all(&resolved.settings);
    !resolved.has_errors()
}
