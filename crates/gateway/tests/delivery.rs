//! Delivery: previews, ordering, rate limits, drafts, topics.

mod support;

use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::outbox::State;
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::Fault;
use petasos_gateway::{HomeChannel, MirrorMode, Notification, NotificationOutcome, OutputJob, clock};
use support::{GatewayFixture, SOON};

const GROUP: i64 = -100;

fn streaming_fixture(gap: Duration) -> GatewayFixture {
    GatewayFixture::new(|settings| {
        settings.streaming.enabled = true;
        settings.streaming.gap = gap;
    })
}

/// Waits until some message of the chat contains the text.
#[track_caller]
fn expect_text(fixture: &GatewayFixture, chat: i64, want: &str) {
    let found = fixture.telegram.wait_until(SOON, |telegram| {
        telegram.messages(chat).any(|message| message.text.contains(want)).then_some(())
    });
    assert!(found.is_some(), "chat {chat} shows {:?}, wanted {want:?}", fixture.telegram.texts(chat));
}

#[test]
fn shows_typing_in_every_topic_of_a_group() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.model.gate(Point::Before);
    for topic in [11, 12, 13] {
        fixture.telegram.push_topic(GROUP, topic, topic, "hello");
    }
    for topic in [11, 12, 13] {
        let typing = fixture.telegram.wait_until(SOON, |telegram| {
            let mut signs = telegram.calls_of("sendChatAction");
            signs.find(|call| call.params.int("message_thread_id") == Some(topic)).map(drop)
        });
        assert!(typing.is_some(), "topic {topic}");
    }
    gate.open();
}

#[test]
fn sends_to_the_chat_when_the_topic_is_gone() {
    let fixture = GatewayFixture::new(|_| {});
    for topic in [11, 12] {
        fixture.telegram.add_topic(GROUP, topic);
    }
    let gate = fixture.model.gate(Point::Before);
    fixture.model.script(Answer::text("long ".repeat(2_000)));
    fixture.telegram.push_topic(GROUP, 11, 5, "hello");
    assert!(gate.wait(SOON));
    fixture.telegram.remove_topic(GROUP, 11);
    gate.open();
    let shown = fixture.telegram.wait_until(SOON, |it| (it.messages(GROUP).count() == 3).then_some(()));
    assert!(shown.is_some(), "{:?}", fixture.telegram.texts(GROUP));
    let sent = fixture.telegram.calls_of("sendMessage");
    let threads: Vec<_> = sent.iter().map(|call| call.params.int("message_thread_id")).collect();
    assert_eq!(threads, [Some(11), Some(11), None, None, None], "two refusals, then three parts");
}

#[test]
fn typing_continues_while_text_is_not_shown() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.model.gate(Point::AfterDelta(2));
    fixture.model.script(Answer::text("A text that is long enough to be shown.").chunks(4));
    fixture.telegram.push_text(7, 7, "talk");
    assert!(gate.wait(SOON));
    let before = fixture.telegram.calls_of("sendChatAction").len();
    let typing = fixture.telegram.wait_until(SOON, |telegram| {
        (telegram.calls_of("sendChatAction").count() > before + 1).then_some(())
    });
    assert!(typing.is_some());
    gate.open();
    fixture.expect_messages(7, &["A text that is long enough to be shown."]);
}

#[test]
fn late_refusal_of_a_typing_indicator_is_recorded() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.model.gate(Point::Before);
    // Longer than a lane waits for a typing indicator.
    fixture.telegram.on("sendChatAction").does(Fault::Delay(Duration::from_secs(2)));
    fixture.telegram.on("sendChatAction").does(Fault::too_many(50));
    fixture.telegram.push_text(7, 7, "hello");
    support::eventually("recorded", || {
        let limits = fixture.read(|reader| reader.penalties());
        limits.iter().any(|it| it.to_string() == "telegram:7").then_some(())
    });
    assert_eq!(fixture.telegram.calls_of("sendChatAction").len(), 1);
    gate.open();
}

#[test]
fn shows_separate_previews_to_two_group_members() {
    let fixture = streaming_fixture(Duration::from_millis(200));
    let gate = fixture.model.gate(Point::AfterDelta(2));
    fixture.model.respond(|request| {
        let name = if request.last_user.contains("Ada") { "Ada" } else { "Bob" };
        Answer::text(format!("{name} shall have a long answer that ends with {name}")).chunks(4)
    });
    fixture.telegram.push_text(GROUP, 1, "I am Ada");
    fixture.telegram.push_text(GROUP, 2, "I am Bob");
    assert!(gate.wait_for(2, SOON));
    expect_text(&fixture, GROUP, "Ada shall");
    expect_text(&fixture, GROUP, "Bob shall");
    gate.open();
    expect_text(&fixture, GROUP, "ends with Ada");
    expect_text(&fixture, GROUP, "ends with Bob");
    let visible = fixture.telegram.visible(GROUP);
    assert_eq!(visible.len(), 2, "{visible:?}");
    assert!(visible.iter().all(|message| !message.text.contains("Recovered")));
    assert_ne!(visible[0].reply_to, visible[1].reply_to, "each answers its own question");
}

#[test]
fn preview_does_not_overtake_a_postponed_message() {
    let fixture = streaming_fixture(Duration::from_millis(100));
    let gate = petasos_fakes::Gate::new();
    fixture.model.script(Answer::text("the first answer"));
    let second = "the second answer, which takes its time";
    fixture.model.script(Answer::text(second).chunks(4).gate(Point::AfterDelta(2), &gate));
    fixture.telegram.on("sendMessage").does(Fault::status(500, "Internal Server Error"));
    fixture.telegram.push_text(7, 7, "one");
    let refused = fixture
        .telegram
        .wait_until(SOON, |telegram| (telegram.calls_of("sendMessage").count() == 1).then_some(()));
    assert!(refused.is_some());
    fixture.telegram.push_text(7, 7, "two");
    assert!(gate.wait(SOON));
    expect_text(&fixture, 7, "the second");
    assert_eq!(fixture.telegram.texts(7)[0], "the first answer");
    gate.open();
    fixture.expect_messages(7, &["the first answer", second]);
}

#[test]
fn zero_preview_gap_starves_no_message() {
    let fixture = streaming_fixture(Duration::ZERO);
    let gate = fixture.model.gate(Point::AfterDelta(30));
    let text = "word ".repeat(40);
    fixture.model.script(Answer::text(text.clone()).chunks(40).every(Duration::from_millis(20)));
    fixture.telegram.push_text(GROUP, 1, "talk");
    assert!(gate.wait(SOON));
    expect_text(&fixture, GROUP, "word");
    fixture.telegram.push_text(GROUP, 2, "/help");
    expect_text(&fixture, GROUP, "/resume");
    gate.open();
    expect_text(&fixture, GROUP, text.trim());
    assert_eq!(fixture.telegram.texts(GROUP).len(), 2);
}

#[test]
fn deletes_a_preview_that_cannot_be_edited() {
    let fixture = streaming_fixture(Duration::from_millis(100));
    let gate = fixture.model.gate(Point::AfterDelta(2));
    let text = "an answer that is said in full only once";
    fixture.model.script(Answer::text(text).chunks(4));
    fixture.telegram.push_text(7, 7, "talk");
    assert!(gate.wait(SOON));
    expect_text(&fixture, 7, "an answer");
    let gone = Fault::status(400, "Bad Request: message to edit not found");
    fixture.telegram.on("editMessageText").always().does(gone);
    gate.open();
    fixture.expect_messages(7, &[text]);
    // The lane is ordered: once this is answered, nothing more follows from the first.
    fixture.telegram.push_text(7, 7, "/help");
    fixture.expect_last_message(7, "/resume");
    assert_eq!(fixture.telegram.texts(7)[0], text);
    assert_eq!(fixture.telegram.texts(7).len(), 2);
}

#[test]
fn marks_the_answer_beside_an_undeletable_preview() {
    let fixture = streaming_fixture(Duration::from_millis(100));
    let gate = fixture.model.gate(Point::AfterDelta(2));
    let text = "an answer that may look like a copy";
    fixture.model.script(Answer::text(text).chunks(4));
    fixture.telegram.push_text(7, 7, "talk");
    assert!(gate.wait(SOON));
    expect_text(&fixture, 7, "an answer");
    fixture.telegram.on("editMessageText").always().does(Fault::status(400, "message can't be edited"));
    fixture.telegram.on("deleteMessage").always().does(Fault::status(400, "message can't be deleted"));
    gate.open();
    expect_text(&fixture, 7, text);
    fixture.telegram.push_text(7, 7, "/help");
    fixture.expect_last_message(7, "/resume");
    let texts = fixture.telegram.texts(7);
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[1].starts_with("♻️ Recovered reply") && texts[1].ends_with(text), "{texts:?}");
    assert_eq!(fixture.telegram.calls_of("deleteMessage").len(), 1, "it is asked once");
}

#[test]
fn never_edits_a_preview_with_unknown_deletion() {
    for (lost, before) in [(Fault::ResetBefore, 1), (Fault::ResetAfter, 0)] {
        let fixture = streaming_fixture(Duration::from_millis(100));
        let gate = fixture.model.gate(Point::AfterDelta(2));
        let text = "an answer that a late deletion must not take away";
        fixture.model.script(Answer::text(text).chunks(4));
        fixture.telegram.push_text(7, 7, "talk");
        assert!(gate.wait(SOON));
        expect_text(&fixture, 7, "an answer");
        fixture.telegram.on("editMessageText").always().does(Fault::status(400, "message can't be edited"));
        fixture.telegram.on("deleteMessage").nth(1).does(lost);
        gate.open();
        expect_text(&fixture, 7, text);
        fixture.telegram.push_text(7, 7, "/help");
        fixture.expect_last_message(7, "/resume");
        let texts = fixture.telegram.texts(7);
        assert_eq!(texts.len(), before + 2, "{texts:?}");
        let answer = &texts[before];
        assert!(answer.starts_with("♻️ Recovered reply") && answer.ends_with(text), "{texts:?}");
        assert_eq!(fixture.telegram.calls_of("deleteMessage").len(), 1, "it is asked once");
    }
}

#[test]
fn repeated_final_edit_leaves_one_unmarked_answer() {
    let fixture = streaming_fixture(Duration::from_millis(100));
    let gate = fixture.model.gate(Point::AfterDelta(2));
    let text = "an answer whose end is said twice but seen once";
    fixture.model.script(Answer::text(text).chunks(4));
    fixture.telegram.push_text(7, 7, "talk");
    assert!(gate.wait(SOON));
    expect_text(&fixture, 7, "an answer");
    // Twice: a last preview may come before the final edit.
    fixture.telegram.on("editMessageText").times(2).does(Fault::ResetAfter);
    gate.open();
    let repeated = fixture.telegram.wait_until(SOON, |telegram| {
        let full = telegram.calls_of("editMessageText").filter(|call| call.text() == Some(text));
        (full.count() >= 2).then_some(())
    });
    assert!(repeated.is_some(), "the final edit was repeated");
    fixture.telegram.push_text(7, 7, "/help");
    fixture.expect_last_message(7, "/resume");
    assert_eq!(fixture.telegram.texts(7)[0], text);
    assert_eq!(fixture.telegram.texts(7).len(), 2);
    for state in [State::Due, State::Sending, State::Dead] {
        let left = fixture.runtime.block_on(fixture.handle().outbox(state, 10)).expect("the outbox");
        assert!(left.iter().all(|item| item.draft.text != text), "{state:?}");
    }
}

#[test]
fn shutdown_does_not_wait_for_idle_lanes() {
    let mut fixture = GatewayFixture::new(|_| {});
    fixture.telegram.push_text(7, 7, "hello");
    fixture.expect_messages(7, &["echo: hello"]);
    let started = clock::monotonic();
    fixture.stop();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

fn fixture_with_drafts() -> GatewayFixture {
    GatewayFixture::new(|settings| {
        settings.streaming.enabled = true;
        settings.streaming.gap = Duration::from_millis(100);
        settings.streaming.transport = petasos_gateway::Transport::Draft;
    })
}

const GROWING: &str = "A text that is long enough to be shown while it grows.";

#[test]
fn private_chat_streams_as_draft_then_one_message() {
    let fixture = fixture_with_drafts();
    let gate = fixture.model.gate(Point::AfterDelta(3));
    fixture.model.script(Answer::text(GROWING).chunks(4));
    fixture.telegram.push_text(7, 7, "talk");
    assert!(gate.wait(SOON));
    let drawn =
        fixture.telegram.wait_until(SOON, |telegram| telegram.draft(7).map(|draft| draft.text.clone()));
    assert!(drawn.as_deref().is_some_and(|text| GROWING.starts_with(text) && text.len() > 10), "{drawn:?}");
    assert!(fixture.telegram.texts(7).is_empty(), "a draft is no message");
    gate.open();
    fixture.expect_messages(7, &[GROWING]);
    assert_eq!(fixture.telegram.calls_of("editMessageText").len(), 0);
    let drafts = fixture.telegram.calls_of("sendMessageDraft");
    let numbers: std::collections::HashSet<_> =
        drafts.iter().map(|call| call.params.int("draft_id")).collect();
    assert!(numbers.len() == 1 && !numbers.contains(&Some(0)), "{numbers:?}");
}

#[test]
fn falls_back_to_edits_after_a_refused_draft() {
    let fixture = fixture_with_drafts();
    fixture
        .telegram
        .on("sendMessageDraft")
        .nth(1)
        .does(Fault::status(400, "Bad Request: drafts are not for you"));
    let gate = fixture.model.gate(Point::AfterDelta(3));
    fixture.model.script(Answer::text(GROWING).chunks(4));
    fixture.telegram.push_text(7, 7, "talk");
    expect_text(&fixture, 7, "A text");
    gate.open();
    fixture.expect_messages(7, &[GROWING]);
    assert_eq!(fixture.telegram.calls_of("sendMessageDraft").len(), 1);
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 1, "the preview became the answer");
    // The next turn tries drafts again.
    let gate = fixture.model.gate(Point::AfterDelta(3));
    fixture.model.script(Answer::text(GROWING).chunks(4));
    fixture.telegram.push_text(7, 7, "again");
    let tried =
        fixture.telegram.wait_until(SOON, |telegram| telegram.calls_of("sendMessageDraft").nth(1).map(drop));
    assert!(tried.is_some(), "drafts are off for good");
    gate.open();
    fixture.expect_messages(7, &[GROWING, GROWING]);
}

#[test]
fn groups_do_not_use_drafts() {
    let fixture = fixture_with_drafts();
    let gate = fixture.model.gate(Point::AfterDelta(3));
    fixture.model.script(Answer::text(GROWING).chunks(4));
    fixture.telegram.push_text(GROUP, 7, "talk");
    expect_text(&fixture, GROUP, "A text");
    gate.open();
    fixture.expect_messages(GROUP, &[GROWING]);
    assert_eq!(fixture.telegram.calls_of("sendMessageDraft").len(), 0);
}

#[test]
fn rate_limited_edits_leave_one_final_answer() {
    let fixture = streaming_fixture(Duration::from_millis(100));
    fixture.telegram.on("editMessageText").nth(2).times(3).does(Fault::too_many(1));
    let text = "word ".repeat(40);
    fixture.model.script(Answer::text(text.clone()).chunks(40).every(Duration::from_millis(50)));
    fixture.telegram.push_text(7, 7, "talk");
    fixture.expect_messages(7, &[text.trim()]);
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 1, "the preview became the answer");
    assert!(fixture.telegram.calls_of("editMessageText").len() >= 3, "an edit was refused");
}

#[test]
fn retries_a_rate_limited_final_edit() {
    let fixture = streaming_fixture(Duration::from_millis(100));
    let gate = fixture.model.gate(Point::AfterDelta(3));
    fixture.model.script(Answer::text(GROWING).chunks(4));
    fixture.telegram.push_text(7, 7, "talk");
    expect_text(&fixture, 7, "A text");
    fixture.telegram.on("editMessageText").times(1).does(Fault::too_many(1));
    gate.open();
    fixture.expect_messages(7, &[GROWING]);
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 1);
}

#[test]
fn completes_an_answer_that_outgrows_its_preview() {
    let fixture = streaming_fixture(Duration::from_millis(100));
    let words: Vec<String> = (0..1500).map(|n| format!("w{n}")).collect();
    let answer = words.join(" ");
    fixture.model.script(Answer::text(answer).chunks(20).every(Duration::from_millis(30)));
    fixture.telegram.push_text(7, 7, "talk");
    expect_text(&fixture, 7, "w1499");
    let shown = fixture.telegram.texts(7).join(" ");
    let told: Vec<&str> = shown.split_whitespace().filter(|word| word.starts_with('w')).collect();
    assert_eq!(told, words.iter().map(String::as_str).collect::<Vec<_>>(), "every word once, in order");
    assert!(fixture.telegram.calls_of("editMessageText").len() > 1, "it was shown while it grew");
}

/// Sends a notification and waits for its delivery.
fn send_notification(fixture: &GatewayFixture, to: &str, text: &str, job: Option<&str>) {
    let post = Notification {
        to: to.into(),
        text: text.into(),
        job: OutputJob { id: job.map(str::to_owned), ..OutputJob::default() },
        origin: None,
        mirror: MirrorMode::No,
        wait: SOON,
    };
    let posted = fixture.runtime.block_on(fixture.handle().post(post));
    assert!(matches!(posted[0].outcome, NotificationOutcome::Delivered { .. }), "{posted:?}");
}

/// Each text with its topic.
fn topics(fixture: &GatewayFixture) -> Vec<(String, Option<i64>)> {
    fixture.telegram.visible(GROUP).into_iter().map(|message| (message.text, message.thread)).collect()
}

#[test]
fn creates_a_named_topic_once_and_again_when_deleted() {
    let mut fixture = GatewayFixture::new(|_| {});
    // An existing topic makes the fake check topics; topic 1 is the chat itself.
    fixture.telegram.add_topic(GROUP, 9);
    let to = "telegram:-100:Deploys";
    send_notification(&fixture, to, "one", None);
    fixture.restart();
    send_notification(&fixture, to, "two", None);
    let made = || fixture.telegram.calls_of("createForumTopic").len();
    assert_eq!(made(), 1);
    let seen = topics(&fixture);
    let first = seen[0].1.expect("in a topic");
    assert_eq!(seen[1], ("two".to_owned(), Some(first)));
    fixture.telegram.remove_topic(GROUP, first);
    send_notification(&fixture, to, "three", None);
    send_notification(&fixture, to, "four", None);
    let seen = topics(&fixture);
    assert_eq!(seen[2], ("three".to_owned(), None), "what cannot be said there is said in the chat");
    assert!(seen[3].1.is_some_and(|thread| thread != first), "{seen:?}");
    assert_eq!(made(), 2);
}

#[test]
fn records_topic_use_once_a_day() {
    let mut fixture = GatewayFixture::new(|_| {});
    fixture.telegram.add_topic(GROUP, 9);
    fixture.stop();
    let then = clock::now().before(Duration::from_secs(400 * 24 * 3600));
    let platform = support::telegram();
    let chat_id = GROUP.to_string();
    let made =
        Write::TopicCreated { platform, chat_id, name: "Deploys".into(), thread: "9".into(), at: then };
    fixture.write(|tx| tx.apply(&[made], then));
    fixture.start();
    send_notification(&fixture, "telegram:-100:Deploys", "one", None);
    let topic =
        || fixture.read(|reader| reader.topic(platform, &GROUP.to_string(), "Deploys")).expect("a topic");
    let (thread, used) = topic();
    assert_eq!((thread.as_str(), used > then), ("9", true));
    send_notification(&fixture, "telegram:-100:Deploys", "two", None);
    assert_eq!(topic().1, used, "a use is noted once a day");
}

#[test]
fn falls_back_to_the_chat_when_a_topic_is_refused() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.on("createForumTopic").does(Fault::status(400, "Bad Request: the chat is not a forum"));
    send_notification(&fixture, "telegram:-100:Deploys", "one", None);
    assert_eq!(topics(&fixture), [("one".to_owned(), None)]);
    fixture.telegram.on("createForumTopic").does(Fault::status(500, "Internal Server Error"));
    send_notification(&fixture, "telegram:-100:Deploys", "two", None);
    assert!(topics(&fixture)[1].1.is_some());
    assert_eq!(fixture.telegram.calls_of("createForumTopic").len(), 3);
}

#[test]
fn scheduled_jobs_use_their_own_home_topic() {
    let fixture = GatewayFixture::with(|setup| {
        let platform = support::telegram();
        let chat_id = GROUP.to_string();
        setup.lifetime.home_channels =
            vec![HomeChannel { platform, chat_id, thread_id: Some("7".into()), name: "Home".into() }];
        setup.lifetime.scheduled_threads = vec![(platform, "8".into())];
    });
    send_notification(&fixture, "telegram", "by hand", None);
    send_notification(&fixture, "telegram", "by the clock", Some("job1"));
    send_notification(&fixture, "telegram:-100:7", "named", Some("job1"));
    let want = [("by hand", 7), ("by the clock", 8), ("named", 7)];
    assert_eq!(topics(&fixture), want.map(|(text, thread)| (text.to_owned(), Some(thread))));
}
