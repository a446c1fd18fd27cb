//! Actions of the operator, outages, the watchdog and housekeeping.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use petasos_core::Platform;
use petasos_core::journal::Write;
use petasos_fakes::telegram::Fault;
use petasos_gateway::{Side, clock};
use petasos_store::Store;
use serde_json::Value;

use crate::conversation::{self, AnswerForm, CHAT, QUESTION};
use crate::fixture::{SweepFixture, SweepResult, short, unmarked, wait};
use crate::support::ProgramFixture;

const TEXT: &str = "the news";
const GROUP: i64 = -100;

/// `petasos chat` repeats its message with the same id until it is confirmed.
pub fn chat(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch_ready();
    fixture.spawn_command(&["chat", QUESTION]);
    Ok(())
}

pub fn check_chat(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    let asked = fixture.wait_command()?;
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    if !asked.status.success() || !said.contains(&format!("echo: {QUESTION}")) {
        return Err(format!("{asked:?}"));
    }
    fixture.check_model_calls(2)
}

pub fn send(fixture: &mut SweepFixture, to: &str) -> SweepResult {
    fixture.launch_ready();
    fixture.spawn_command(&["send", to, TEXT]);
    Ok(())
}

/// A stored message arrives; the sender of any other gets an error.
pub fn check_sent(fixture: &mut SweepFixture, side: Side) -> SweepResult {
    wait_delivery(fixture, side, CHAT)?;
    fixture.check_no_unmarked_copy(CHAT, TEXT)
}

fn wait_delivery(fixture: &mut SweepFixture, side: Side, chat: i64) -> SweepResult {
    let sent = fixture.wait_command()?;
    fixture.launch_ready();
    if side == Side::After || sent.status.success() || !fixture.texts(chat).is_empty() {
        fixture.wait_text(chat, TEXT)?;
    }
    fixture.program.wait_idle();
    Ok(())
}

/// A chat that was dead for days and accepts messages again.
pub fn with_dead_chat() -> SweepFixture {
    let fixture = SweepFixture::new(ProgramFixture::new());
    let mut store = Store::open(fixture.program.database()).expect("a store");
    let platform = Platform::parse("telegram").expect("known");
    let at = clock::now().before(Duration::from_secs(3 * 24 * 3600));
    let dead = Write::MarkChatDead { platform, chat_id: CHAT.to_string(), reason: "blocked".into(), at };
    store.write(|tx| tx.apply(&[dead], at)).expect("written");
    store.close().expect("closed");
    fixture
}

pub fn send_to_topic(fixture: &mut SweepFixture) -> SweepResult {
    // With one existing topic the fake can tell unknown ones.
    fixture.program.telegram.add_topic(GROUP, 9);
    send(fixture, "telegram:-100:Deploys")
}

pub fn check_topic(fixture: &mut SweepFixture, side: Side) -> SweepResult {
    wait_delivery(fixture, Side::After, GROUP)?;
    fixture.check_no_unmarked_copy(GROUP, TEXT)?;
    let made = fixture.program.telegram.calls_of("createForumTopic").len();
    // A topic that was created but not stored is created again.
    let most = if side == Side::Before { 2 } else { 1 };
    let outside = fixture.program.telegram.visible(GROUP).iter().any(|message| message.thread.is_none());
    if made > most || outside { Err(format!("{made} topics, outside of them: {outside}")) } else { Ok(()) }
}

/// Telegram has the home channel; Discord fails.
pub fn with_two_platforms() -> SweepFixture {
    let program =
        ProgramFixture::builder().telegram().discord().with("gateway: {outage_notice_seconds: 1}\n").build();
    SweepFixture::new(program).env("TELEGRAM_HOME_CHANNEL", CHAT.to_string())
}

pub fn lose_platform(fixture: &mut SweepFixture) -> SweepResult {
    fixture.program.discord().down();
    fixture.launch();
    Ok(())
}

pub fn check_outage(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    fixture.wait_text(CHAT, "discord has been down")
}

pub fn retry_dead(fixture: &mut SweepFixture) -> SweepResult {
    fixture
        .program
        .telegram
        .on("sendMessage")
        .times(1)
        .does(Fault::status(400, "Bad Request: message is odd"));
    fixture.launch_ready();
    fixture.program.telegram.push_text(CHAT, CHAT, QUESTION);
    let id = wait_dead_letter(fixture)?;
    fixture.spawn_command(&["outbox", "retry", &id]);
    Ok(())
}

fn wait_dead_letter(fixture: &SweepFixture) -> Result<String, String> {
    let mut id = None;
    wait("listed as a dead letter", || {
        let listed = fixture.program.run(&["outbox", "--json", "--state", "dead"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        id = listed["items"][0]["id"].as_i64().map(|id| id.to_string());
        id.is_some()
    })?;
    id.ok_or_else(|| "nothing is listed".into())
}

pub fn check_retried(fixture: &mut SweepFixture, side: Side) -> SweepResult {
    let asked = fixture.wait_command()?;
    if asked.status.success() {
        return Err(format!("the command succeeded despite the kill: {asked:?}"));
    }
    fixture.launch_ready();
    if side == Side::Before {
        // The item is still listed, and the next retry works.
        let id = wait_dead_letter(fixture)?;
        let again = fixture.program.run(&["outbox", "retry", &id]);
        if !again.status.success() {
            return Err(format!("{again:?}"));
        }
    }
    let answer = format!("echo: {QUESTION}");
    fixture.wait_text(CHAT, &answer)?;
    fixture.program.wait_idle();
    fixture.check_no_unmarked_copy(CHAT, &answer)?;
    fixture.check_model_calls(1)
}

pub fn with_watchdog() -> SweepFixture {
    let mut fixture = SweepFixture::new(conversation::program(AnswerForm::Plain));
    let path = fixture.program.home.path().join("notify.sock");
    fixture.manager = Some(UnixDatagram::bind(&path).expect("a socket"));
    fixture.env("NOTIFY_SOCKET", path.display().to_string()).env("WATCHDOG_USEC", "1000000")
}

/// Housekeeping starts a minute after the process.
pub fn wait_for_housekeeping(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    fixture.program.telegram.push_text(CHAT, CHAT, QUESTION);
    fixture.wait_text(CHAT, &format!("echo: {QUESTION}"))
}

/// The session still exists and continues.
pub fn check_housekeeping(fixture: &mut SweepFixture) -> SweepResult {
    fixture.launch();
    fixture.program.telegram.push_text(CHAT, CHAT, "and again");
    fixture.wait_text(CHAT, "echo: and again")?;
    fixture.program.wait_idle();
    let texts = fixture.texts(CHAT);
    let remembered = fixture.program.model.read(|state| {
        state.requests().last().is_some_and(|request| request.body().to_string().contains(QUESTION))
    });
    match unmarked(&texts, QUESTION) {
        1 if remembered => Ok(()),
        _other => Err(format!("remembered: {remembered}, {:?}", short(&texts))),
    }
}
