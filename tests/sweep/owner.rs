//! Things that the owner of the machine does, and things that happen by themselves.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use petasos_core::Platform;
use petasos_core::journal::Write;
use petasos_fakes::telegram::Fault;
use petasos_gateway::{Side, clock};
use petasos_store::Store;
use serde_json::Value;

use crate::life::{Life, Outcome, short, unmarked, wait};
use crate::support::Bench;
use crate::talk::{self, CHAT, Form, QUESTION};

const NEWS: &str = "the news";
const GROUP: i64 = -100;

/// `petasos chat` sends its message again, under the same id, until it is confirmed.
pub fn chat(life: &mut Life) -> Outcome {
    life.launch_ready();
    life.begin(&["chat", QUESTION]);
    Ok(())
}

pub fn check_chat(life: &mut Life) -> Outcome {
    life.launch();
    let asked = life.ended()?;
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    if !asked.status.success() || !said.contains(&format!("echo: {QUESTION}")) {
        return Err(format!("{asked:?}"));
    }
    life.asked_at_most(2)
}

pub fn send(life: &mut Life, to: &str) -> Outcome {
    life.launch_ready();
    life.begin(&["send", to, NEWS]);
    Ok(())
}

/// What is on disk arrives; of what is not, the one who sent it was told that it failed.
pub fn check_sent(life: &mut Life, side: Side) -> Outcome {
    arrived(life, side, CHAT)?;
    life.at_most_one_unmarked(CHAT, NEWS)
}

fn arrived(life: &mut Life, side: Side, chat: i64) -> Outcome {
    let sent = life.ended()?;
    life.launch_ready();
    if side == Side::After || sent.status.success() || !life.texts(chat).is_empty() {
        life.sees(chat, NEWS)?;
    }
    life.bench.settle();
    Ok(())
}

/// A chat that refused us days ago, and takes messages again.
pub fn with_dead_chat() -> Life {
    let life = Life::new(Bench::new());
    let mut store = Store::open(life.bench.database()).expect("a store");
    let platform = Platform::parse("telegram").expect("known");
    let at = clock::now().before(Duration::from_secs(3 * 24 * 3600));
    let dead = Write::ChatDead { platform, chat_id: CHAT.to_string(), reason: "blocked".into(), at };
    store.write(|tx| tx.apply(&[dead], at)).expect("written");
    store.close().expect("closed");
    life
}

pub fn send_to_topic(life: &mut Life) -> Outcome {
    // One that exists, so that the fake knows which do not.
    life.bench.telegram.add_topic(GROUP, 9);
    send(life, "telegram:-100:Deploys")
}

pub fn check_topic(life: &mut Life, side: Side) -> Outcome {
    arrived(life, Side::After, GROUP)?;
    life.at_most_one_unmarked(GROUP, NEWS)?;
    let made = life.bench.telegram.calls_of("createForumTopic").len();
    // One that was made and not stored is made again.
    let most = if side == Side::Before { 2 } else { 1 };
    let beside = life.bench.telegram.visible(GROUP).iter().any(|message| message.thread.is_none());
    if made > most || beside { Err(format!("{made} topics, beside them: {beside}")) } else { Ok(()) }
}

/// Telegram has the home channel; Discord does not answer.
pub fn with_two_platforms() -> Life {
    let bench = Bench::setup().telegram().discord().with("gateway: {outage_notice_seconds: 1}\n").build();
    Life::new(bench).env("TELEGRAM_HOME_CHANNEL", CHAT.to_string())
}

pub fn lose_platform(life: &mut Life) -> Outcome {
    life.bench.discord().down();
    life.launch();
    Ok(())
}

pub fn check_outage(life: &mut Life) -> Outcome {
    life.launch();
    life.sees(CHAT, "discord has been down")
}

/// An answer that was given up.
pub fn retry_dead(life: &mut Life) -> Outcome {
    life.bench.telegram.on("sendMessage").times(1).does(Fault::status(400, "Bad Request: message is odd"));
    life.launch_ready();
    life.bench.telegram.push_text(CHAT, CHAT, QUESTION);
    let id = dead(life)?;
    life.begin(&["outbox", "retry", &id]);
    Ok(())
}

fn dead(life: &Life) -> Result<String, String> {
    let mut id = None;
    wait("listed as given up", || {
        let listed = life.bench.run(&["outbox", "--json", "--state", "dead"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        id = listed["items"][0]["id"].as_i64().map(|id| id.to_string());
        id.is_some()
    })?;
    id.ok_or_else(|| "nothing is listed".into())
}

pub fn check_retried(life: &mut Life, side: Side) -> Outcome {
    let asked = life.ended()?;
    if asked.status.success() {
        return Err(format!("a killed gateway said that it worked: {asked:?}"));
    }
    life.launch_ready();
    if side == Side::Before {
        // As it was: still listed, and the next try works.
        let id = dead(life)?;
        let again = life.bench.run(&["outbox", "retry", &id]);
        if !again.status.success() {
            return Err(format!("{again:?}"));
        }
    }
    let answer = format!("echo: {QUESTION}");
    life.sees(CHAT, &answer)?;
    life.bench.settle();
    life.at_most_one_unmarked(CHAT, &answer)?;
    life.asked_at_most(1)
}

/// A service manager that wants to hear from us twice a second.
pub fn with_watchdog() -> Life {
    let mut life = Life::new(talk::bench(Form::Plain));
    let path = life.bench.home.path().join("notify.sock");
    life.manager = Some(UnixDatagram::bind(&path).expect("a socket"));
    life.env("NOTIFY_SOCKET", path.display().to_string()).env("WATCHDOG_USEC", "1000000")
}

/// Old rows are looked for a minute after the start.
pub fn wait_for_housekeeping(life: &mut Life) -> Outcome {
    life.launch();
    life.bench.telegram.push_text(CHAT, CHAT, QUESTION);
    life.sees(CHAT, &format!("echo: {QUESTION}"))
}

/// The conversation is still there, and goes on.
pub fn check_housekeeping(life: &mut Life) -> Outcome {
    life.launch();
    life.bench.telegram.push_text(CHAT, CHAT, "and again");
    life.sees(CHAT, "echo: and again")?;
    life.bench.settle();
    let texts = life.texts(CHAT);
    let remembered = life.bench.model.look(|desk| {
        desk.requests().last().is_some_and(|request| request.body().to_string().contains(QUESTION))
    });
    match unmarked(&texts, QUESTION) {
        1 if remembered => Ok(()),
        _other => Err(format!("remembered: {remembered}, {:?}", short(&texts))),
    }
}
