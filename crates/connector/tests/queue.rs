//! What is owed to a gateway, and when it gets it.
#![allow(clippy::expect_used, reason = "tests")]

mod support;

use std::collections::HashSet;
use std::time::Duration;

use petasos_fakes::relay::{Acks, Alarm, Peer};
use petasos_fakes::telegram::{Fault, Incoming};
use petasos_relay::session::Terms;
use serde_json::json;
use support::{ANN, Bench, SOON, numbers, until, wait_closed, wait_texts};

fn send(text: &str) -> serde_json::Value {
    json!({"op": "send", "chat_id": ANN.to_string(), "content": text, "reply_to": null, "metadata": {}})
}

/// An answer that only comes when everything that was said before it has been dealt with.
fn settle(peer: &Peer, request: &str) {
    peer.outbound(request, &json!({"op": "nothing"}));
    peer.answer(request, SOON).expect("an answer");
}

#[test]
fn a_message_is_on_disk_before_the_platform_forgets_it_and_gone_once_it_is_acknowledged() {
    let (bench, secret) = Bench::single();
    bench.say("one");
    bench.wait_taken();
    assert_eq!(bench.depth("i1").entries, 1, "nobody was there");
    let peer = bench.greet("gw-1", &secret, Acks::None);
    wait_texts(&peer, &["one"]);
    assert_eq!(peer.look(|heard| heard.frames[0]["type"].clone()), "descriptor");
    let number = &numbers(&peer)[0];
    assert_eq!(number.len(), 26);
    let event = peer.look(|heard| heard.frames[1]["event"].clone());
    assert_eq!(
        (&event["source"]["platform"], &event["source"]["chat_type"]),
        (&json!("telegram"), &json!("dm"))
    );
    assert_eq!((&event["source"]["chat_id"], &event["source"]["user_id"]), (&json!("7"), &json!("7")));
    for nobodys in ["", "0", "nonsense"] {
        peer.ack(nobodys);
    }
    settle(&peer, "s1");
    assert_eq!(bench.depth("i1").entries, 1);
    peer.ack(number);
    peer.ack(number);
    bench.wait_depth("i1", 0);
}

#[test]
fn what_a_gateway_asks_for_is_done_once_and_always_answered() {
    let (bench, secret) = Bench::single();
    let peer = bench.dial("gw-1", &secret, Acks::All);
    peer.outbound("early", &send("too early"));
    assert_eq!(peer.answer("early", SOON).expect("an answer")["success"], false);
    peer.hello("telegram", "");
    peer.outbound("a", &send("hello"));
    let first = peer.answer("a", SOON).expect("an answer");
    assert_eq!((&first["success"], first["message_id"].is_string()), (&json!(true), true), "{first}");
    // The same number on the next socket: the same answer, and no second message.
    let next = bench.greet("gw-1", &secret, Acks::All);
    next.outbound("a", &send("hello"));
    assert_eq!(next.answer("a", SOON), Some(first));
    // Definitely not done: it may be tried again under its number.
    bench.telegram.on("sendMessage").does(Fault::too_many(3));
    next.outbound("b", &send("later"));
    let refused = next.answer("b", SOON).expect("an answer");
    assert_eq!((&refused["success"], &refused["retry_after"]), (&json!(false), &json!(3)), "{refused}");
    // The platform is not asked again before that.
    let deadline = std::time::Instant::now() + SOON;
    for number in 0.. {
        let request = format!("c{number}");
        next.outbound(&request, &send("later"));
        let answer = next.answer(&request, SOON).expect("an answer");
        if answer["success"] == true {
            break;
        }
        assert_eq!(answer["code"], "rate_limited", "{answer}");
        assert!(std::time::Instant::now() < deadline, "{answer}");
    }
    assert_eq!(bench.telegram.calls_of("sendMessage").len(), 3, "nothing was sent in between");
    next.say(&json!({"type": "outbound", "requestId": "d", "action": send("x"), "platform": "discord", "botId": ""}));
    next.say(&json!({"type": "outbound", "requestId": "e", "action": send("x"), "platform": "telegram", "botId": "9"}));
    next.outbound("f", &json!({"op": "send", "chat_id": []}));
    next.outbound(
        "g",
        &json!({"op": "follow_up", "session_key": "k", "kind": "discord.interaction_token", "content": "x"}),
    );
    for request in ["d", "e", "f", "g"] {
        assert_eq!(next.answer(request, SOON).expect("an answer")["success"], false, "{request}");
    }
    assert_eq!(bench.telegram.texts(ANN), ["hello", "later"]);
}

#[test]
fn an_unknown_fate_is_called_that_also_the_second_time() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    bench.telegram.on("sendMessage").does(Fault::ResetAfter);
    peer.outbound("a", &send("hello"));
    let lost = peer.answer("a", SOON).expect("an answer");
    assert_eq!((&lost["success"], &lost["ambiguous"]), (&json!(false), &json!(true)), "{lost}");
    let next = bench.greet("gw-1", &secret, Acks::All);
    next.outbound("a", &send("hello"));
    assert_eq!(next.answer("a", SOON).expect("an answer")["ambiguous"], true);
    assert_eq!(bench.telegram.calls_of("sendMessage").len(), 1);
}

#[test]
fn a_refusal_says_what_it_means_for_whoever_asked() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    for (number, (fault, code)) in [
        (Fault::blocked(), "forbidden"),
        (Fault::status(400, "Bad Request: chat not found"), "chat_not_found"),
        (Fault::status(400, "Bad Request: PEER_ID_INVALID"), "refused"),
        (Fault::status(502, "Bad Gateway"), "transient"),
        (Fault::status(401, "Unauthorized"), "transient"),
        // The last one: nothing is sent to the chat for two seconds.
        (Fault::too_many(2), "rate_limited"),
    ]
    .into_iter()
    .enumerate()
    {
        bench.telegram.on("sendMessage").does(fault);
        let request = format!("r{number}");
        peer.outbound(&request, &send("hello"));
        let answer = peer.answer(&request, SOON).expect("an answer");
        assert_eq!((&answer["success"], &answer["code"]), (&json!(false), &json!(code)), "{answer}");
    }
    let long = json!({"op": "edit", "chat_id": "8", "message_id": "1", "content": "x ".repeat(5000), "metadata": {}});
    peer.outbound("long", &long);
    assert_eq!(peer.answer("long", SOON).expect("an answer")["code"], "too_long");
}

#[test]
fn what_is_no_file_is_said_in_words() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    let at = json!({"text": null, "location": {"latitude": 52.5, "longitude": 13.4}});
    bench.telegram.push_many([Incoming::text(ANN, ANN, "").with(at)]);
    let event = peer.wait_until(SOON, |heard| heard.of_type("inbound").next().map(|it| it["event"].clone()));
    let event = event.expect("an event");
    assert_eq!(event["message_type"], "location");
    let text = event["text"].as_str().expect("words");
    assert!(text.starts_with("[location: ") && text.contains("52.5"), "{text}");
}

#[test]
fn every_event_says_when_it_was_sent() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    let dated = json!({"date": 1_700_000_000});
    let undated = json!({"date": 0});
    let texts = [("dated", dated), ("undated", undated)];
    bench.telegram.push_many(texts.map(|(text, date)| Incoming::text(ANN, ANN, text).with(date)));
    wait_texts(&peer, &["dated", "undated"]);
    let times: Vec<_> =
        peer.look(|heard| heard.of_type("inbound").map(|it| it["event"]["sent_at_ms"].as_u64()).collect());
    assert_eq!(times[0], Some(1_700_000_000_000));
    assert!(times[1] > times[0], "the time at which the connector received it: {times:?}");
}

#[test]
fn behind_the_grant_nothing_comes_and_everything_comes_later() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    bench.say("live");
    wait_texts(&peer, &["live"]);
    peer.going_idle();
    let granted = peer.wait_until(SOON, |heard| heard.of_type("going_idle_ack").next().map(|_| ()));
    assert!(granted.is_some());
    for text in ["a", "b", "c"] {
        bench.say(text);
    }
    bench.wait_taken();
    peer.outbound("o", &send("still here"));
    assert_eq!(
        peer.answer("o", SOON).expect("an answer")["success"],
        true,
        "outbound is served all the same"
    );
    wait_texts(&peer, &["live"]);
    assert_eq!(bench.depth("i1").entries, 3);
    assert!(bench.depth("i1").idle);
    drop(peer);
    let next = bench.greet("gw-1", &secret, Acks::All);
    wait_texts(&next, &["a", "b", "c"]);
    bench.wait_depth("i1", 0);
    assert!(!bench.depth("i1").idle);
    // A hello on an idle socket is as good as a new one.
    next.going_idle();
    next.wait_until(SOON, |heard| heard.of_type("going_idle_ack").next().map(|_| ())).expect("granted");
    bench.say("d");
    bench.wait_taken();
    next.hello("telegram", support::BOT);
    wait_texts(&next, &["a", "b", "c", "d"]);
}

#[test]
fn a_backlog_is_paced_and_what_was_not_acknowledged_comes_again_under_its_number() {
    let (bench, secret) = Bench::single();
    for number in 1..=5 {
        bench.say(number.to_string());
    }
    bench.wait_taken();
    let peer = bench.greet("gw-1", &secret, Acks::None);
    wait_texts(&peer, &["1"]);
    settle(&peer, "s1");
    wait_texts(&peer, &["1"]);
    peer.ack(&numbers(&peer)[0]);
    wait_texts(&peer, &["1", "2"]);
    peer.ack(&numbers(&peer)[1]);
    wait_texts(&peer, &["1", "2", "3"]);
    let third = numbers(&peer)[2].clone();
    peer.cut();
    let next = bench.greet("gw-1", &secret, Acks::All);
    bench.say("6");
    wait_texts(&next, &["3", "4", "5", "6"]);
    assert_eq!(numbers(&next)[0], third);
    bench.wait_depth("i1", 0);
}

#[test]
fn a_newer_socket_takes_over_and_nobody_elses_acknowledgement_counts() {
    let (bench, secret) = Bench::single();
    let other = bench.add_gateway("gw-2", "t1", "i2", None);
    let first = bench.greet("gw-1", &secret, Acks::None);
    bench.say("one");
    wait_texts(&first, &["one"]);
    let stranger = bench.greet("gw-2", &other, Acks::None);
    stranger.ack(&numbers(&first)[0]);
    settle(&stranger, "s1");
    let second = bench.greet("gw-1", &secret, Acks::None);
    wait_texts(&second, &["one"]);
    wait_closed(&first, 4409);
    assert_eq!(numbers(&first), numbers(&second));
    assert!(numbers(&stranger).is_empty());
}

#[test]
fn what_is_never_acknowledged_is_put_aside_and_the_rest_goes_on() {
    let terms = Terms { ack_within: Duration::from_millis(100), strikes: 2, ..Terms::default() };
    let (bench, secret) = Bench::single_with(move |config| config.terms = terms);
    bench.say("poison");
    bench.wait_taken();
    let first = bench.greet("gw-1", &secret, Acks::None);
    wait_closed(&first, 4408);
    bench.say("good");
    bench.wait_taken();
    let second = bench.greet("gw-1", &secret, Acks::None);
    wait_texts(&second, &["poison", "good"]);
    second.ack(&numbers(&second)[1]);
    bench.wait_depth("i1", 0);
    let dead = bench.read(|reader| reader.dead_letters(9));
    assert_eq!((dead.len(), dead[0].why.as_str()), (1, "not_acknowledged"));
}

#[test]
fn whoever_is_frozen_is_given_up_and_what_they_were_sent_comes_again() {
    let (bench, secret) = Bench::single_with(|config| config.silence = Duration::from_millis(300));
    let frozen = bench.greet("gw-1", &secret, Acks::All);
    frozen.freeze();
    bench.say("into the void");
    bench.wait_taken();
    assert_eq!(bench.depth("i1").entries, 1, "written to a socket, and not taken for delivered");
    let gone = || {
        let status = petasos_connector::Status::read(bench.home.path()).map(|status| status.0);
        status.is_some_and(|status| status["instances"][0]["mode"] == "gone")
    };
    until("its silence is noticed", gone);
    let next = bench.greet("gw-1", &secret, Acks::All);
    wait_texts(&next, &["into the void"]);
    bench.wait_depth("i1", 0);
}

#[test]
fn more_requests_than_are_served_at_once_are_turned_away_and_all_are_answered() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    bench.telegram.on("sendMessage").always().does(Fault::Hang);
    for number in 0..70 {
        peer.outbound(&format!("r{number}"), &send(&number.to_string()));
    }
    let refused = |heard: &petasos_fakes::relay::Heard| heard.of_type("outbound_result").count();
    let turned = peer.wait_until(SOON, |heard| (refused(heard) == 6).then_some(()));
    assert!(turned.is_some(), "{}", peer.look(refused));
    peer.look(|heard| {
        for answer in heard.of_type("outbound_result") {
            assert_eq!(
                (&answer["result"]["success"], &answer["result"]["retry_after"]),
                (&json!(false), &json!(1))
            );
        }
    });
    bench.telegram.clear_faults();
    let all = peer.wait_until(SOON, |heard| (refused(heard) == 70).then_some(()));
    assert!(all.is_some(), "{}", peer.look(refused));
    assert_eq!(bench.telegram.texts(ANN).len(), 64);
}

#[test]
fn what_no_line_is_long_enough_for_is_put_aside_and_the_rest_goes_on() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    bench.say("x".repeat(1_100_000));
    bench.say("next");
    wait_texts(&peer, &["next"]);
    let dead = bench.read(|reader| reader.dead_letters(9));
    assert_eq!((dead.len(), dead[0].why.as_str()), (1, "too_long"));
}

#[test]
fn a_full_queue_says_so_once_and_loses_nothing_silently() {
    let terms = Terms { most_entries: 2, ..Terms::default() };
    let (bench, secret) = Bench::single_with(move |config| config.terms = terms);
    for number in 1..=5 {
        bench.say(number.to_string());
    }
    bench.wait_taken();
    assert_eq!((bench.depth("i1").entries, bench.depth("i1").dead), (2, 3));
    let told =
        bench.telegram.wait_until(SOON, |world| (world.texts(ANN).len() == 1).then(|| world.texts(ANN)));
    assert!(told.expect("a notice")[0].contains("not kept"));
    let peer = bench.greet("gw-1", &secret, Acks::All);
    wait_texts(&peer, &["1", "2"]);
    assert_eq!(bench.telegram.texts(ANN).len(), 1);
}

#[test]
fn whoever_sleeps_is_called_once_and_not_led_elsewhere() {
    let target = Alarm::start().expect("a server");
    let alarm = Alarm::leading_to(&target.url()).expect("a server");
    let host = alarm.address().to_string();
    let (bench, secret) = Bench::single_with(move |config| config.wake_hosts = vec![host.clone()]);
    bench.write(|tx| tx.put_wake_url("i1", Some(&alarm.url())));
    bench.say("first");
    assert!(alarm.wait_for(1, SOON));
    for number in 0..100 {
        bench.say(number.to_string());
    }
    bench.wait_taken();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    let all = peer.wait_until(SOON, |heard| (heard.texts().len() == 101).then_some(()));
    assert!(all.is_some());
    let calls = alarm.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!((calls[0].method.as_str(), calls[0].path.as_str()), ("GET", "/wake?of=this"));
    assert!(!calls[0].has_credentials && calls[0].body == 0);
    assert!(target.calls().is_empty(), "no redirect is followed");
}

#[test]
fn whoever_is_not_named_by_the_owner_is_not_called_nearby() {
    let alarm = Alarm::start().expect("a server");
    let named = Alarm::start().expect("a server");
    let host = named.address().to_string();
    let (bench, _) = Bench::single_with(move |config| {
        config.wake_hosts = vec![host.clone()];
        config.terms.poke_every = Duration::from_millis(50);
    });
    bench.write(|tx| tx.put_wake_url("i1", Some(&alarm.url())));
    bench.say("hello");
    bench.wait_depth("i1", 1);
    // Called again and again while somebody waits; by then at a place that may be called.
    bench.write(|tx| tx.put_wake_url("i1", Some(&named.url())));
    assert!(named.wait_for(2, SOON));
    assert!(alarm.calls().is_empty());
}

#[test]
fn nobodys_message_costs_nothing_and_a_code_makes_it_somebodys() {
    let alarm = Alarm::start().expect("a server");
    let mut bench = Bench::idle();
    let secret = bench.add_gateway("gw-1", "t1", "i1", Some(&alarm.url()));
    let host = alarm.address().to_string();
    bench.start(move |config| config.wake_hosts = vec![host.clone()]);
    bench.say("hello?");
    bench.wait_taken();
    assert_eq!(bench.depth("i1").entries, 0);
    let bearer = petasos_fakes::relay::fresh_token("gw-1", &secret);
    let told = support::body(&bench.post("/manage/link", Some(&bearer), &json!({"instanceId": "another"})));
    let code = told["code"].as_str().expect("a code").to_owned();
    bench.say("/link 0123456789abcdef");
    bench.say(format!("/link {code}"));
    let said =
        bench.telegram.wait_until(SOON, |world| (world.texts(ANN).len() == 2).then(|| world.texts(ANN)));
    let said = said.expect("two answers");
    assert!(
        said.iter().any(|text| text.contains("Linked"))
            && said.iter().any(|text| text.contains("does not lead")),
        "{said:?}"
    );
    assert!(alarm.calls().is_empty(), "nothing has waited yet");
    // Somebody else may not use it again, and is still nobody.
    bench.telegram.push_text(8, 8, format!("/link {code}"));
    bench.telegram.push_text(8, 8, "and me?");
    bench.say("hello!");
    assert!(alarm.wait_for(1, SOON));
    let peer = bench.greet("gw-1", &secret, Acks::All);
    wait_texts(&peer, &["hello!"]);
    peer.outbound("a", &json!({"op": "send", "chat_id": "8", "content": "psst", "reply_to": null, "metadata": {"user_id": "7"}}));
    let declined = peer.answer("a", SOON).expect("an answer");
    assert_eq!(declined["code"], "egress_declined");
    peer.outbound("b", &send("hello yourself"));
    assert_eq!(peer.answer("b", SOON).expect("an answer")["success"], true);
}

#[test]
fn an_interrupt_reaches_the_session_of_the_same_tenant_only() {
    let mut bench = Bench::idle();
    let runs = bench.add_gateway("gw-1", "t1", "i1", None);
    let sees = bench.add_gateway("gw-2", "t1", "i2", None);
    let strange = bench.add_gateway("gw-3", "t2", "i3", None);
    let telegram = petasos_core::Platform::parse("telegram").expect("known");
    bench.write(|tx| tx.bind_author(telegram, "7", "i1"));
    bench.start(|_| {});
    let runs = bench.greet("gw-1", &runs, Acks::All);
    bench.say("go");
    wait_texts(&runs, &["go"]);
    let key = "agent:main:telegram:dm:7";
    let interrupt = |key: &str| json!({"type": "interrupt", "session_key": key, "reason": null});
    let strange = bench.greet("gw-3", &strange, Acks::All);
    strange.say(&interrupt(key));
    settle(&strange, "s1");
    runs.say(&interrupt(key));
    settle(&runs, "s2");
    let sees = bench.greet("gw-2", &sees, Acks::All);
    sees.say(&interrupt("agent:main:telegram:dm:99"));
    sees.say(&interrupt(key));
    let heard = runs.wait_until(SOON, |heard| heard.of_type("interrupt_inbound").next().cloned());
    assert_eq!(heard.expect("an interrupt")["chat_id"], "7");
    assert_eq!(runs.look(|heard| heard.of_type("interrupt_inbound").count()), 1);
}

#[test]
fn a_thousand_events_against_going_idle_each_comes_once_and_none_behind_the_grant() {
    let (bench, secret) = Bench::single();
    const EVENTS: usize = 1000;
    let mut got: Vec<String> = vec![];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for batch in 0..EVENTS / 10 {
                let texts = (0..10).map(|at| Incoming::text(ANN, ANN, (batch * 10 + at).to_string()));
                bench.telegram.push_many(texts);
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        for round in 0.. {
            let peer = bench.greet("gw-1", &secret, Acks::All);
            // A different moment of the stream every time.
            let want = 1 + round * 7 % 23;
            peer.wait_until(Duration::from_millis(300), |heard| (heard.texts().len() >= want).then_some(()));
            match round % 3 {
                0 | 1 => {
                    peer.going_idle();
                    let granted = |heard: &petasos_fakes::relay::Heard| {
                        heard.frames.iter().position(|frame| frame["type"] == "going_idle_ack")
                    };
                    let at = peer.wait_until(SOON, granted).expect("granted");
                    settle(&peer, &format!("r{round}"));
                    let behind =
                        peer.look(|heard| heard.frames[at..].iter().any(|it| it["type"] == "inbound"));
                    assert!(!behind, "an event behind the grant in round {round}");
                }
                _killed => peer.cut(),
            }
            let ended = round % 3 == 2;
            if ended {
                peer.wait_until(SOON, |heard| heard.closed.clone()).expect("cut");
            }
            got.extend(peer.look(|heard| heard.texts()));
            let unique: HashSet<_> = got.iter().collect();
            if unique.len() == EVENTS {
                break;
            }
            assert!(round < 2000, "{} of {EVENTS}", unique.len());
        }
    });
    bench.wait_taken();
    // An acknowledgement that died with its socket is made up for by sending again; without a death there is no second.
    let mut seen = HashSet::new();
    let first: Vec<usize> = got
        .iter()
        .filter(|text| seen.insert(text.as_str()))
        .map(|text| text.parse().expect("a number"))
        .collect();
    assert!(first.is_sorted(), "in the order in which they were written");
    let last = bench.greet("gw-1", &secret, Acks::All);
    bench.wait_depth("i1", 0);
    settle(&last, "end");
    until("everything is gone", || bench.depth("i1").entries == 0);
}

#[test]
fn what_was_accepted_survives_a_stop_and_is_called_for_at_the_next_start() {
    let alarm = Alarm::start().expect("a server");
    let host = alarm.address().to_string();
    let (mut bench, secret) = Bench::single_with({
        let host = host.clone();
        move |config| config.wake_hosts = vec![host.clone()]
    });
    bench.write(|tx| tx.put_wake_url("i1", Some(&alarm.url())));
    bench.say("one");
    assert!(alarm.wait_for(1, SOON));
    bench.stop();
    bench.start(move |config| {
        config.single_instance = Some("i1".into());
        config.wake_hosts = vec![host.clone()];
    });
    assert!(alarm.wait_for(2, SOON), "nothing new has come, and somebody is still owed something");
    let peer = bench.greet("gw-1", &secret, Acks::All);
    wait_texts(&peer, &["one"]);
}
