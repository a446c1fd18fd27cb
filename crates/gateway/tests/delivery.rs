//! The way out: who sees what while answers grow, what waits for what, and what a refusal leaves behind.

mod support;

use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::outbox::State;
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::Fault;
use petasos_gateway::{Fate, HomeChannel, Job, Mirror, Post, clock};
use support::{SOON, World};

const GROUP: i64 = -100;

fn streaming(gap: Duration) -> World {
    World::new(|settings| {
        settings.streaming.enabled = true;
        settings.streaming.gap = gap;
    })
}

/// Waits until some message of the chat contains this.
#[track_caller]
fn sees(world: &World, chat: i64, want: &str) {
    let found = world.telegram.wait_until(SOON, |telegram| {
        telegram.messages(chat).any(|message| message.text.contains(want)).then_some(())
    });
    assert!(found.is_some(), "chat {chat} shows {:?}, wanted {want:?}", world.telegram.texts(chat));
}

#[test]
fn every_topic_of_a_group_sees_typing_while_the_model_thinks() {
    let world = World::new(|_| {});
    let gate = world.model.gate(Point::Before);
    for topic in [11, 12, 13] {
        world.telegram.push_topic(GROUP, topic, topic, "hello");
    }
    for topic in [11, 12, 13] {
        let typing = world.telegram.wait_until(SOON, |telegram| {
            let mut signs = telegram.calls_of("sendChatAction");
            signs.find(|call| call.params.int("message_thread_id") == Some(topic)).map(drop)
        });
        assert!(typing.is_some(), "topic {topic}");
    }
    gate.open();
}

#[test]
fn what_belongs_into_a_topic_that_is_gone_stands_beside_it_and_asks_for_it_no_more() {
    let world = World::new(|_| {});
    for topic in [11, 12] {
        world.telegram.add_topic(GROUP, topic);
    }
    let gate = world.model.gate(Point::Before);
    world.model.script(Answer::text("long ".repeat(2_000)));
    world.telegram.push_topic(GROUP, 11, 5, "hello");
    assert!(gate.wait(SOON));
    world.telegram.remove_topic(GROUP, 11);
    gate.open();
    let shown = world.telegram.wait_until(SOON, |it| (it.messages(GROUP).count() == 3).then_some(()));
    assert!(shown.is_some(), "{:?}", world.telegram.texts(GROUP));
    let sent = world.telegram.calls_of("sendMessage");
    let threads: Vec<_> = sent.iter().map(|call| call.params.int("message_thread_id")).collect();
    assert_eq!(threads, [Some(11), Some(11), None, None, None], "two refusals, then three parts");
}

#[test]
fn typing_goes_on_while_the_model_talks_when_its_text_is_not_shown() {
    let world = World::new(|_| {});
    let gate = world.model.gate(Point::AfterDelta(2));
    world.model.script(Answer::text("A text that is long enough to be shown.").chunks(4));
    world.telegram.push_text(7, 7, "talk");
    assert!(gate.wait(SOON));
    let before = world.telegram.calls_of("sendChatAction").len();
    let typing = world.telegram.wait_until(SOON, |telegram| {
        (telegram.calls_of("sendChatAction").count() > before + 1).then_some(())
    });
    assert!(typing.is_some());
    gate.open();
    world.shows(7, &["A text that is long enough to be shown."]);
}

#[test]
fn late_refusal_of_a_typing_indicator_is_recorded() {
    let world = World::new(|_| {});
    let gate = world.model.gate(Point::Before);
    // Longer than a lane waits for a typing indicator.
    world.telegram.on("sendChatAction").does(Fault::Delay(Duration::from_secs(2)));
    world.telegram.on("sendChatAction").does(Fault::too_many(50));
    world.telegram.push_text(7, 7, "hello");
    support::eventually("recorded", || {
        let limits = world.read(|reader| reader.penalties());
        limits.iter().any(|it| it.to_string() == "telegram:7").then_some(())
    });
    assert_eq!(world.telegram.calls_of("sendChatAction").len(), 1);
    gate.open();
}

#[test]
fn two_members_of_a_group_watch_their_own_answers_grow() {
    let world = streaming(Duration::from_millis(200));
    let gate = world.model.gate(Point::AfterDelta(2));
    world.model.respond(|request| {
        let name = if request.last_user.contains("Ada") { "Ada" } else { "Bob" };
        Answer::text(format!("{name} shall have a long answer that ends with {name}")).chunks(4)
    });
    world.telegram.push_text(GROUP, 1, "I am Ada");
    world.telegram.push_text(GROUP, 2, "I am Bob");
    assert!(gate.wait_for(2, SOON));
    sees(&world, GROUP, "Ada shall");
    sees(&world, GROUP, "Bob shall");
    gate.open();
    sees(&world, GROUP, "ends with Ada");
    sees(&world, GROUP, "ends with Bob");
    let visible = world.telegram.visible(GROUP);
    assert_eq!(visible.len(), 2, "{visible:?}");
    assert!(visible.iter().all(|message| !message.text.contains("Recovered")));
    assert_ne!(visible[0].reply_to, visible[1].reply_to, "each answers its own question");
}

#[test]
fn a_preview_does_not_overtake_a_message_that_was_postponed() {
    let world = streaming(Duration::from_millis(100));
    let gate = petasos_fakes::Gate::new();
    world.model.script(Answer::text("the first answer"));
    let second = "the second answer, which takes its time";
    world.model.script(Answer::text(second).chunks(4).gate(Point::AfterDelta(2), &gate));
    world.telegram.on("sendMessage").does(Fault::status(500, "Internal Server Error"));
    world.telegram.push_text(7, 7, "one");
    let refused = world
        .telegram
        .wait_until(SOON, |telegram| (telegram.calls_of("sendMessage").count() == 1).then_some(()));
    assert!(refused.is_some());
    world.telegram.push_text(7, 7, "two");
    assert!(gate.wait(SOON));
    sees(&world, 7, "the second");
    assert_eq!(world.telegram.texts(7)[0], "the first answer");
    gate.open();
    world.shows(7, &["the first answer", second]);
}

#[test]
fn a_gap_of_zero_starves_nobody() {
    let world = streaming(Duration::ZERO);
    let gate = world.model.gate(Point::AfterDelta(30));
    let text = "word ".repeat(40);
    world.model.script(Answer::text(text.clone()).chunks(40).every(Duration::from_millis(20)));
    world.telegram.push_text(GROUP, 1, "talk");
    assert!(gate.wait(SOON));
    sees(&world, GROUP, "word");
    world.telegram.push_text(GROUP, 2, "/help");
    sees(&world, GROUP, "/resume");
    gate.open();
    sees(&world, GROUP, text.trim());
    assert_eq!(world.telegram.texts(GROUP).len(), 2);
}

#[test]
fn a_preview_that_cannot_be_replaced_gives_way_to_the_answer() {
    let world = streaming(Duration::from_millis(100));
    let gate = world.model.gate(Point::AfterDelta(2));
    let text = "an answer that is said in full only once";
    world.model.script(Answer::text(text).chunks(4));
    world.telegram.push_text(7, 7, "talk");
    assert!(gate.wait(SOON));
    sees(&world, 7, "an answer");
    let gone = Fault::status(400, "Bad Request: message to edit not found");
    world.telegram.on("editMessageText").always().does(gone);
    gate.open();
    world.shows(7, &[text]);
    // The lane keeps its order: once this is answered, nothing more comes of the first.
    world.telegram.push_text(7, 7, "/help");
    world.ends_with(7, "/resume");
    assert_eq!(world.telegram.texts(7)[0], text);
    assert_eq!(world.telegram.texts(7).len(), 2);
}

#[test]
fn a_preview_that_can_be_neither_changed_nor_taken_away_stays_beside_a_marked_answer() {
    let world = streaming(Duration::from_millis(100));
    let gate = world.model.gate(Point::AfterDelta(2));
    let text = "an answer that may look like a copy";
    world.model.script(Answer::text(text).chunks(4));
    world.telegram.push_text(7, 7, "talk");
    assert!(gate.wait(SOON));
    sees(&world, 7, "an answer");
    world.telegram.on("editMessageText").always().does(Fault::status(400, "message can't be edited"));
    world.telegram.on("deleteMessage").always().does(Fault::status(400, "message can't be deleted"));
    gate.open();
    sees(&world, 7, text);
    world.telegram.push_text(7, 7, "/help");
    world.ends_with(7, "/resume");
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[1].starts_with("♻️ Recovered reply") && texts[1].ends_with(text), "{texts:?}");
    assert_eq!(world.telegram.calls_of("deleteMessage").len(), 1, "it is asked once");
}

#[test]
fn nothing_is_written_into_a_preview_whose_deletion_may_still_come() {
    for (lost, before) in [(Fault::ResetBefore, 1), (Fault::ResetAfter, 0)] {
        let world = streaming(Duration::from_millis(100));
        let gate = world.model.gate(Point::AfterDelta(2));
        let text = "an answer that a late deletion must not take away";
        world.model.script(Answer::text(text).chunks(4));
        world.telegram.push_text(7, 7, "talk");
        assert!(gate.wait(SOON));
        sees(&world, 7, "an answer");
        world.telegram.on("editMessageText").always().does(Fault::status(400, "message can't be edited"));
        world.telegram.on("deleteMessage").nth(1).does(lost);
        gate.open();
        sees(&world, 7, text);
        world.telegram.push_text(7, 7, "/help");
        world.ends_with(7, "/resume");
        let texts = world.telegram.texts(7);
        assert_eq!(texts.len(), before + 2, "{texts:?}");
        let answer = &texts[before];
        assert!(answer.starts_with("♻️ Recovered reply") && answer.ends_with(text), "{texts:?}");
        assert_eq!(world.telegram.calls_of("deleteMessage").len(), 1, "it is asked once");
    }
}

#[test]
fn a_lost_acknowledgement_of_the_final_edit_leaves_one_unmarked_answer() {
    let world = streaming(Duration::from_millis(100));
    let gate = world.model.gate(Point::AfterDelta(2));
    let text = "an answer whose end is said twice but seen once";
    world.model.script(Answer::text(text).chunks(4));
    world.telegram.push_text(7, 7, "talk");
    assert!(gate.wait(SOON));
    sees(&world, 7, "an answer");
    // Twice: a last preview may come before the final edit.
    world.telegram.on("editMessageText").times(2).does(Fault::ResetAfter);
    gate.open();
    let repeated = world.telegram.wait_until(SOON, |telegram| {
        let full = telegram.calls_of("editMessageText").filter(|call| call.text() == Some(text));
        (full.count() >= 2).then_some(())
    });
    assert!(repeated.is_some(), "the final edit was repeated");
    world.telegram.push_text(7, 7, "/help");
    world.ends_with(7, "/resume");
    assert_eq!(world.telegram.texts(7)[0], text);
    assert_eq!(world.telegram.texts(7).len(), 2);
    for state in [State::Due, State::Sending, State::Dead] {
        let left = world.runtime.block_on(world.handle().outbox(state, 10)).expect("the outbox");
        assert!(left.iter().all(|item| item.draft.text != text), "{state:?}");
    }
}

#[test]
fn a_stop_does_not_wait_for_idle_lanes() {
    let mut world = World::new(|_| {});
    world.telegram.push_text(7, 7, "hello");
    world.shows(7, &["echo: hello"]);
    let started = std::time::Instant::now();
    world.stop();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

fn drafting() -> World {
    World::new(|settings| {
        settings.streaming.enabled = true;
        settings.streaming.gap = Duration::from_millis(100);
        settings.streaming.transport = petasos_gateway::Transport::Draft;
    })
}

const GROWING: &str = "A text that is long enough to be shown while it grows.";

#[test]
fn in_private_an_answer_grows_as_a_draft_and_becomes_one_message() {
    let world = drafting();
    let gate = world.model.gate(Point::AfterDelta(3));
    world.model.script(Answer::text(GROWING).chunks(4));
    world.telegram.push_text(7, 7, "talk");
    assert!(gate.wait(SOON));
    let drawn = world.telegram.wait_until(SOON, |telegram| telegram.draft(7).map(|draft| draft.text.clone()));
    assert!(drawn.as_deref().is_some_and(|text| GROWING.starts_with(text) && text.len() > 10), "{drawn:?}");
    assert!(world.telegram.texts(7).is_empty(), "a draft is no message");
    gate.open();
    world.shows(7, &[GROWING]);
    assert_eq!(world.telegram.calls_of("editMessageText").len(), 0);
    let drafts = world.telegram.calls_of("sendMessageDraft");
    let numbers: std::collections::HashSet<_> =
        drafts.iter().map(|call| call.params.int("draft_id")).collect();
    assert!(numbers.len() == 1 && !numbers.contains(&Some(0)), "{numbers:?}");
}

#[test]
fn a_draft_that_is_refused_is_the_last_of_its_turn_and_edits_go_on() {
    let world = drafting();
    world
        .telegram
        .on("sendMessageDraft")
        .nth(1)
        .does(Fault::status(400, "Bad Request: drafts are not for you"));
    let gate = world.model.gate(Point::AfterDelta(3));
    world.model.script(Answer::text(GROWING).chunks(4));
    world.telegram.push_text(7, 7, "talk");
    sees(&world, 7, "A text");
    gate.open();
    world.shows(7, &[GROWING]);
    assert_eq!(world.telegram.calls_of("sendMessageDraft").len(), 1);
    assert_eq!(world.telegram.calls_of("sendMessage").len(), 1, "the preview became the answer");
    // The next turn may try again.
    let gate = world.model.gate(Point::AfterDelta(3));
    world.model.script(Answer::text(GROWING).chunks(4));
    world.telegram.push_text(7, 7, "again");
    let tried =
        world.telegram.wait_until(SOON, |telegram| telegram.calls_of("sendMessageDraft").nth(1).map(drop));
    assert!(tried.is_some(), "drafts are off for good");
    gate.open();
    world.shows(7, &[GROWING, GROWING]);
}

#[test]
fn in_a_group_nobody_draws() {
    let world = drafting();
    let gate = world.model.gate(Point::AfterDelta(3));
    world.model.script(Answer::text(GROWING).chunks(4));
    world.telegram.push_text(GROUP, 7, "talk");
    sees(&world, GROUP, "A text");
    gate.open();
    world.shows(GROUP, &[GROWING]);
    assert_eq!(world.telegram.calls_of("sendMessageDraft").len(), 0);
}

#[test]
fn edits_that_are_held_back_end_and_the_answer_is_there_once_without_a_cursor() {
    let world = streaming(Duration::from_millis(100));
    world.telegram.on("editMessageText").nth(2).times(3).does(Fault::too_many(1));
    let text = "word ".repeat(40);
    world.model.script(Answer::text(text.clone()).chunks(40).every(Duration::from_millis(50)));
    world.telegram.push_text(7, 7, "talk");
    world.shows(7, &[text.trim()]);
    assert_eq!(world.telegram.calls_of("sendMessage").len(), 1, "the preview became the answer");
    assert!(world.telegram.calls_of("editMessageText").len() >= 3, "an edit was refused");
}

#[test]
fn a_final_edit_that_is_held_back_is_made_later() {
    let world = streaming(Duration::from_millis(100));
    let gate = world.model.gate(Point::AfterDelta(3));
    world.model.script(Answer::text(GROWING).chunks(4));
    world.telegram.push_text(7, 7, "talk");
    sees(&world, 7, "A text");
    world.telegram.on("editMessageText").times(1).does(Fault::too_many(1));
    gate.open();
    world.shows(7, &[GROWING]);
    assert_eq!(world.telegram.calls_of("sendMessage").len(), 1);
}

#[test]
fn an_answer_that_outgrows_its_preview_is_whole_in_the_end() {
    let world = streaming(Duration::from_millis(100));
    let words: Vec<String> = (0..1500).map(|n| format!("w{n}")).collect();
    let answer = words.join(" ");
    world.model.script(Answer::text(answer).chunks(20).every(Duration::from_millis(30)));
    world.telegram.push_text(7, 7, "talk");
    sees(&world, 7, "w1499");
    let shown = world.telegram.texts(7).join(" ");
    let told: Vec<&str> = shown.split_whitespace().filter(|word| word.starts_with('w')).collect();
    assert_eq!(told, words.iter().map(String::as_str).collect::<Vec<_>>(), "every word once, in order");
    assert!(world.telegram.calls_of("editMessageText").len() > 1, "it was shown while it grew");
}

/// Says something where nobody asked, and waits until it is there.
fn post(world: &World, to: &str, text: &str, job: Option<&str>) {
    let post = Post {
        to: to.into(),
        text: text.into(),
        job: Job { id: job.map(str::to_owned), ..Job::default() },
        origin: None,
        mirror: Mirror::No,
        wait: SOON,
    };
    let posted = world.runtime.block_on(world.handle().post(post));
    assert!(matches!(posted[0].fate, Fate::Delivered { .. }), "{posted:?}");
}

/// The topic in which each text stands.
fn topics(world: &World) -> Vec<(String, Option<i64>)> {
    world.telegram.visible(GROUP).into_iter().map(|message| (message.text, message.thread)).collect()
}

#[test]
fn a_topic_that_is_asked_for_by_name_is_made_once_whoever_asks_and_again_when_it_is_gone() {
    let mut world = World::new(|_| {});
    // One that exists, so that the fake knows which do not; topic 1 is the chat itself.
    world.telegram.add_topic(GROUP, 9);
    let to = "telegram:-100:Deploys";
    post(&world, to, "one", None);
    world.restart();
    post(&world, to, "two", None);
    let made = || world.telegram.calls_of("createForumTopic").len();
    assert_eq!(made(), 1);
    let seen = topics(&world);
    let first = seen[0].1.expect("in a topic");
    assert_eq!(seen[1], ("two".to_owned(), Some(first)));
    world.telegram.remove_topic(GROUP, first);
    post(&world, to, "three", None);
    post(&world, to, "four", None);
    let seen = topics(&world);
    assert_eq!(seen[2], ("three".to_owned(), None), "what cannot be said there is said in the chat");
    assert!(seen[3].1.is_some_and(|thread| thread != first), "{seen:?}");
    assert_eq!(made(), 2);
}

#[test]
fn using_a_topic_keeps_it_from_being_forgotten() {
    let mut world = World::new(|_| {});
    world.telegram.add_topic(GROUP, 9);
    world.stop();
    let then = clock::now().before(Duration::from_secs(400 * 24 * 3600));
    let (platform, chat_id) = (support::telegram(), GROUP.to_string());
    let made = Write::TopicMade { platform, chat_id, name: "Deploys".into(), thread: "9".into(), at: then };
    world.write(|tx| tx.apply(&[made], then));
    world.start();
    post(&world, "telegram:-100:Deploys", "one", None);
    let topic =
        || world.read(|reader| reader.topic(platform, &GROUP.to_string(), "Deploys")).expect("a topic");
    let (thread, used) = topic();
    assert_eq!((thread.as_str(), used > then), ("9", true));
    post(&world, "telegram:-100:Deploys", "two", None);
    assert_eq!(topic().1, used, "a use is noted once a day");
}

#[test]
fn a_topic_that_may_not_be_made_keeps_nobody_quiet_and_one_that_cannot_be_now_is_waited_for() {
    let world = World::new(|_| {});
    world.telegram.on("createForumTopic").does(Fault::status(400, "Bad Request: the chat is not a forum"));
    post(&world, "telegram:-100:Deploys", "one", None);
    assert_eq!(topics(&world), [("one".to_owned(), None)]);
    world.telegram.on("createForumTopic").does(Fault::status(500, "Internal Server Error"));
    post(&world, "telegram:-100:Deploys", "two", None);
    assert!(topics(&world)[1].1.is_some());
    assert_eq!(world.telegram.calls_of("createForumTopic").len(), 3);
}

#[test]
fn scheduled_work_speaks_in_its_own_topic_of_the_home() {
    let world = World::with(|setup| {
        let (platform, chat_id) = (support::telegram(), GROUP.to_string());
        setup.lifetime.home_channels =
            vec![HomeChannel { platform, chat_id, thread_id: Some("7".into()), name: "Home".into() }];
        setup.lifetime.scheduled_threads = vec![(platform, "8".into())];
    });
    post(&world, "telegram", "by hand", None);
    post(&world, "telegram", "by the clock", Some("job1"));
    post(&world, "telegram:-100:7", "named", Some("job1"));
    let want = [("by hand", 7), ("by the clock", 8), ("named", 7)];
    assert_eq!(topics(&world), want.map(|(text, thread)| (text.to_owned(), Some(thread))));
}
