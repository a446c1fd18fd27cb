//! Queueing, delivery and acknowledgement.

use std::collections::HashSet;
use std::time::Duration;

use crate::support::{ANN, Bench, SOON, numbers, until, wait_closed, wait_texts};
use petasos_fakes::relay::{Acks, Peer, WakeServer};
use petasos_fakes::telegram::{Fault, Incoming};
use petasos_relay::session::SessionPolicy;
use petasos_runtime::clock;
use serde_json::json;

fn send(text: &str) -> serde_json::Value {
    json!({"op": "send", "chat_id": ANN.to_string(), "content": text, "reply_to": null, "metadata": {}})
}

/// Returns when every earlier frame has been processed.
fn settle(peer: &Peer, request: &str) {
    peer.outbound(request, &json!({"op": "nothing"}));
    peer.wait_result(request, SOON).expect("an answer");
}

#[test]
fn stores_messages_until_acknowledged() {
    let (bench, secret) = Bench::single();
    bench.write_message("one");
    bench.wait_taken();
    assert_eq!(bench.depth("i1").entries, 1, "while the gateway was away");
    let peer = bench.greet("gw-1", &secret, Acks::None);
    wait_texts(&peer, &["one"]);
    assert_eq!(peer.read(|heard| heard.frames[0]["type"].clone()), "descriptor");
    let number = &numbers(&peer)[0];
    assert_eq!(number.len(), 26);
    let event = peer.read(|heard| heard.frames[1]["event"].clone());
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
fn performs_requests_once_and_always_answers() {
    let (bench, secret) = Bench::single();
    let peer = bench.dial("gw-1", &secret, Acks::All);
    peer.outbound("early", &send("too early"));
    assert_eq!(peer.wait_result("early", SOON).expect("an answer")["success"], false);
    peer.hello("telegram", "");
    peer.outbound("a", &send("hello"));
    let first = peer.wait_result("a", SOON).expect("an answer");
    assert_eq!((&first["success"], first["message_id"].is_string()), (&json!(true), true), "{first}");
    // The same request id on the next socket: the same answer, no second message.
    let next = bench.greet("gw-1", &secret, Acks::All);
    next.outbound("a", &send("hello"));
    assert_eq!(next.wait_result("a", SOON), Some(first));
    // Certainly without effect: the same request id may be retried.
    bench.telegram.on("sendMessage").does(Fault::too_many(3));
    next.outbound("b", &send("later"));
    let refused = next.wait_result("b", SOON).expect("an answer");
    assert_eq!((&refused["success"], &refused["retry_after"]), (&json!(false), &json!(3)), "{refused}");
    // The platform is not called before that.
    let deadline = clock::monotonic() + SOON;
    for number in 0.. {
        let request = format!("c{number}");
        next.outbound(&request, &send("later"));
        let answer = next.wait_result(&request, SOON).expect("an answer");
        if answer["success"] == true {
            break;
        }
        assert_eq!(answer["code"], "rate_limited", "{answer}");
        assert!(clock::monotonic() < deadline, "{answer}");
    }
    assert_eq!(bench.telegram.calls_of("sendMessage").len(), 3, "nothing was sent in between");
    next.send(&json!({"type": "outbound", "requestId": "d", "action": send("x"), "platform": "discord", "botId": ""}));
    next.send(&json!({"type": "outbound", "requestId": "e", "action": send("x"), "platform": "telegram", "botId": "9"}));
    next.outbound("f", &json!({"op": "send", "chat_id": []}));
    next.outbound(
        "g",
        &json!({"op": "follow_up", "session_key": "k", "kind": "discord.interaction_token", "content": "x"}),
    );
    for request in ["d", "e", "f", "g"] {
        assert_eq!(next.wait_result(request, SOON).expect("an answer")["success"], false, "{request}");
    }
    assert_eq!(bench.telegram.texts(ANN), ["hello", "later"]);
}

#[test]
fn repeats_unknown_outcomes() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    bench.telegram.on("sendMessage").does(Fault::ResetAfter);
    peer.outbound("a", &send("hello"));
    let lost = peer.wait_result("a", SOON).expect("an answer");
    assert_eq!((&lost["success"], &lost["ambiguous"]), (&json!(false), &json!(true)), "{lost}");
    let next = bench.greet("gw-1", &secret, Acks::All);
    next.outbound("a", &send("hello"));
    assert_eq!(next.wait_result("a", SOON).expect("an answer")["ambiguous"], true);
    assert_eq!(bench.telegram.calls_of("sendMessage").len(), 1);
}

#[test]
fn maps_platform_refusals_to_relay_errors() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    for (number, (fault, code)) in [
        (Fault::blocked(), "forbidden"),
        (Fault::status(400, "Bad Request: chat not found"), "chat_not_found"),
        (Fault::status(400, "Bad Request: PEER_ID_INVALID"), "refused"),
        (Fault::status(502, "Bad Gateway"), "transient"),
        (Fault::status(401, "Unauthorized"), "transient"),
        // The last one blocks the chat for two seconds.
        (Fault::too_many(2), "rate_limited"),
    ]
    .into_iter()
    .enumerate()
    {
        bench.telegram.on("sendMessage").does(fault);
        let request = format!("r{number}");
        peer.outbound(&request, &send("hello"));
        let answer = peer.wait_result(&request, SOON).expect("an answer");
        assert_eq!((&answer["success"], &answer["code"]), (&json!(false), &json!(code)), "{answer}");
    }
    let long = json!({"op": "edit", "chat_id": "8", "message_id": "1", "content": "x ".repeat(5000), "metadata": {}});
    peer.outbound("long", &long);
    assert_eq!(peer.wait_result("long", SOON).expect("an answer")["code"], "too_long");
}

#[test]
fn refuses_unknown_files_with_a_reason() {
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
fn events_carry_their_send_time() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    let dated = json!({"date": 1_700_000_000});
    let undated = json!({"date": 0});
    let texts = [("dated", dated), ("undated", undated)];
    bench.telegram.push_many(texts.map(|(text, date)| Incoming::text(ANN, ANN, text).with(date)));
    wait_texts(&peer, &["dated", "undated"]);
    let times: Vec<_> =
        peer.read(|heard| heard.of_type("inbound").map(|it| it["event"]["sent_at_ms"].as_u64()).collect());
    assert_eq!(times[0], Some(1_700_000_000_000));
    assert!(times[1] > times[0], "the time at which the connector received it: {times:?}");
}

#[test]
fn holds_events_behind_the_idle_grant() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    bench.write_message("live");
    wait_texts(&peer, &["live"]);
    peer.going_idle();
    let granted = peer.wait_until(SOON, |heard| heard.of_type("going_idle_ack").next().map(|_| ()));
    assert!(granted.is_some());
    for text in ["a", "b", "c"] {
        bench.write_message(text);
    }
    bench.wait_taken();
    peer.outbound("o", &send("still here"));
    assert_eq!(
        peer.wait_result("o", SOON).expect("an answer")["success"],
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
    // A hello on an idle socket counts as a new socket.
    next.going_idle();
    next.wait_until(SOON, |heard| heard.of_type("going_idle_ack").next().map(|_| ())).expect("granted");
    bench.write_message("d");
    bench.wait_taken();
    next.hello("telegram", crate::support::BOT);
    wait_texts(&next, &["a", "b", "c", "d"]);
}

#[test]
fn paces_backlog_and_redelivers_unacknowledged() {
    let (bench, secret) = Bench::single();
    for number in 1..=5 {
        bench.write_message(number.to_string());
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
    bench.write_message("6");
    wait_texts(&next, &["3", "4", "5", "6"]);
    assert_eq!(numbers(&next)[0], third);
    bench.wait_depth("i1", 0);
}

#[test]
fn newer_socket_takes_over_its_instance() {
    let (bench, secret) = Bench::single();
    let other = bench.add_gateway("gw-2", "t1", "i2", None);
    let first = bench.greet("gw-1", &secret, Acks::None);
    bench.write_message("one");
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
fn dead_letters_unacknowledged_entries() {
    let terms =
        SessionPolicy { ack_within: Duration::from_millis(100), strikes: 2, ..SessionPolicy::default() };
    let (bench, secret) = Bench::single_with(move |config| config.terms = terms);
    bench.write_message("poison");
    bench.wait_taken();
    let first = bench.greet("gw-1", &secret, Acks::None);
    wait_closed(&first, 4408);
    bench.write_message("good");
    bench.wait_taken();
    let second = bench.greet("gw-1", &secret, Acks::None);
    wait_texts(&second, &["poison", "good"]);
    second.ack(&numbers(&second)[1]);
    bench.wait_depth("i1", 0);
    let dead = bench.read(|reader| reader.dead_letters(9));
    assert_eq!((dead.len(), dead[0].why.as_str()), (1, "not_acknowledged"));
}

#[test]
fn redelivers_after_frozen_gateway_times_out() {
    let (bench, secret) = Bench::single_with(|config| config.silence = Duration::from_millis(300));
    let frozen = bench.greet("gw-1", &secret, Acks::All);
    frozen.freeze();
    bench.write_message("into the void");
    bench.wait_taken();
    assert_eq!(bench.depth("i1").entries, 1, "written to a socket, and not taken for delivered");
    let gone = || {
        let status = petasos_connector::ConnectorStatus::read(bench.home.path()).map(|status| status.0);
        status.is_some_and(|status| status["instances"][0]["mode"] == "gone")
    };
    until("its silence is noticed", gone);
    let next = bench.greet("gw-1", &secret, Acks::All);
    wait_texts(&next, &["into the void"]);
    bench.wait_depth("i1", 0);
}

#[test]
fn answers_requests_beyond_the_concurrency_limit() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    bench.telegram.on("sendMessage").always().does(Fault::Hang);
    for number in 0..70 {
        peer.outbound(&format!("r{number}"), &send(&number.to_string()));
    }
    let refused = |heard: &petasos_fakes::relay::Received| heard.of_type("outbound_result").count();
    let turned = peer.wait_until(SOON, |heard| (refused(heard) == 6).then_some(()));
    assert!(turned.is_some(), "{}", peer.read(refused));
    peer.read(|heard| {
        for answer in heard.of_type("outbound_result") {
            assert_eq!(
                (&answer["result"]["success"], &answer["result"]["retry_after"]),
                (&json!(false), &json!(1))
            );
        }
    });
    bench.telegram.clear_faults();
    let all = peer.wait_until(SOON, |heard| (refused(heard) == 70).then_some(()));
    assert!(all.is_some(), "{}", peer.read(refused));
    assert_eq!(bench.telegram.texts(ANN).len(), 64);
}

#[test]
fn dead_letters_events_longer_than_a_line() {
    let (bench, secret) = Bench::single();
    let peer = bench.greet("gw-1", &secret, Acks::All);
    bench.write_message("x".repeat(1_100_000));
    bench.write_message("next");
    wait_texts(&peer, &["next"]);
    let dead = bench.read(|reader| reader.dead_letters(9));
    assert_eq!((dead.len(), dead[0].why.as_str()), (1, "too_long"));
}

#[test]
fn full_queue_notifies_once_and_dead_letters() {
    let terms = SessionPolicy { most_entries: 2, ..SessionPolicy::default() };
    let (bench, secret) = Bench::single_with(move |config| config.terms = terms);
    for number in 1..=5 {
        bench.write_message(number.to_string());
    }
    bench.wait_taken();
    assert_eq!((bench.depth("i1").entries, bench.depth("i1").dead), (2, 3));
    let told =
        bench.telegram.wait_until(SOON, |world| (world.texts(ANN).len() == 1).then(|| world.texts(ANN)));
    assert!(told.expect("a notice")[0].contains("not stored"));
    let peer = bench.greet("gw-1", &secret, Acks::All);
    wait_texts(&peer, &["1", "2"]);
    assert_eq!(bench.telegram.texts(ANN).len(), 1);
}

#[test]
fn wakes_sleepers_once_without_following_redirects() {
    let target = WakeServer::start().expect("a server");
    let alarm = WakeServer::redirecting_to(&target.url()).expect("a server");
    let host = alarm.address().to_string();
    let (bench, secret) = Bench::single_with(move |config| config.wake_hosts = vec![host.clone()]);
    bench.write(|tx| tx.put_wake_url(&"i1".into(), Some(&alarm.url())));
    bench.write_message("first");
    assert!(alarm.wait_for(1, SOON));
    for number in 0..100 {
        bench.write_message(number.to_string());
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
fn refuses_local_wake_urls_without_exemption() {
    let alarm = WakeServer::start().expect("a server");
    let named = WakeServer::start().expect("a server");
    let host = named.address().to_string();
    let (bench, _) = Bench::single_with(move |config| {
        config.wake_hosts = vec![host.clone()];
        config.terms.poke_every = Duration::from_millis(50);
    });
    bench.write(|tx| tx.put_wake_url(&"i1".into(), Some(&alarm.url())));
    bench.write_message("hello");
    bench.wait_depth("i1", 1);
    // Repeated while entries wait; the address is allowed by then.
    bench.write(|tx| tx.put_wake_url(&"i1".into(), Some(&named.url())));
    assert!(named.wait_for(2, SOON));
    assert!(alarm.calls().is_empty());
}

#[test]
fn drops_unrouted_messages_until_author_is_linked() {
    let alarm = WakeServer::start().expect("a server");
    let mut bench = Bench::idle();
    let secret = bench.add_gateway("gw-1", "t1", "i1", Some(&alarm.url()));
    let host = alarm.address().to_string();
    bench.start(move |config| config.wake_hosts = vec![host.clone()]);
    bench.write_message("hello?");
    bench.wait_taken();
    assert_eq!(bench.depth("i1").entries, 0);
    let bearer = petasos_fakes::relay::fresh_token("gw-1", &secret);
    let told =
        crate::support::body(&bench.post("/manage/link", Some(&bearer), &json!({"instanceId": "another"})));
    let code = told["code"].as_str().expect("a code").to_owned();
    bench.write_message("/link 0123456789abcdef");
    bench.write_message(format!("/link {code}"));
    let said =
        bench.telegram.wait_until(SOON, |world| (world.texts(ANN).len() == 2).then(|| world.texts(ANN)));
    let said = said.expect("two answers");
    assert!(
        said.iter().any(|text| text.contains("Linked"))
            && said.iter().any(|text| text.contains("invalid or has expired")),
        "{said:?}"
    );
    assert!(alarm.calls().is_empty(), "nothing has waited yet");
    // The code is used up; another author stays unbound.
    bench.telegram.push_text(8, 8, format!("/link {code}"));
    bench.telegram.push_text(8, 8, "and me?");
    bench.write_message("hello!");
    assert!(alarm.wait_for(1, SOON));
    let peer = bench.greet("gw-1", &secret, Acks::All);
    wait_texts(&peer, &["hello!"]);
    peer.outbound("a", &json!({"op": "send", "chat_id": "8", "content": "psst", "reply_to": null, "metadata": {"user_id": "7"}}));
    let declined = peer.wait_result("a", SOON).expect("an answer");
    assert_eq!(declined["code"], "egress_declined");
    peer.outbound("b", &send("hello yourself"));
    assert_eq!(peer.wait_result("b", SOON).expect("an answer")["success"], true);
}

#[test]
fn interrupts_only_sessions_of_the_same_tenant() {
    let mut bench = Bench::idle();
    let runs = bench.add_gateway("gw-1", "t1", "i1", None);
    let sees = bench.add_gateway("gw-2", "t1", "i2", None);
    let strange = bench.add_gateway("gw-3", "t2", "i3", None);
    let telegram = petasos_core::Platform::parse("telegram").expect("known");
    bench.write(|tx| tx.bind_author(telegram, "7", &"i1".into()));
    bench.start(|_| {});
    let runs = bench.greet("gw-1", &runs, Acks::All);
    bench.write_message("go");
    wait_texts(&runs, &["go"]);
    let key = "agent:main:telegram:dm:7";
    let interrupt = |key: &str| json!({"type": "interrupt", "session_key": key, "reason": null});
    let strange = bench.greet("gw-3", &strange, Acks::All);
    strange.send(&interrupt(key));
    settle(&strange, "s1");
    runs.send(&interrupt(key));
    settle(&runs, "s2");
    let sees = bench.greet("gw-2", &sees, Acks::All);
    sees.send(&interrupt("agent:main:telegram:dm:99"));
    sees.send(&interrupt(key));
    let heard = runs.wait_until(SOON, |heard| heard.of_type("interrupt_inbound").next().cloned());
    assert_eq!(heard.expect("an interrupt")["chat_id"], "7");
    assert_eq!(runs.read(|heard| heard.of_type("interrupt_inbound").count()), 1);
}

#[test]
fn delivers_thousand_events_once_despite_idling() {
    let (bench, secret) = Bench::single();
    const EVENTS: usize = 1000;
    let mut got: Vec<String> = vec![];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for batch in 0..EVENTS / 10 {
                let texts = (0..10).map(|at| Incoming::text(ANN, ANN, (batch * 10 + at).to_string()));
                bench.telegram.push_many(texts);
                until("the batch is fetched", || bench.telegram.pending_updates() == 0);
            }
        });
        for round in 0.. {
            let peer = bench.greet("gw-1", &secret, Acks::All);
            // A different point of the stream each time.
            let want = 1 + round * 7 % 23;
            peer.wait_until(Duration::from_millis(300), |heard| (heard.texts().len() >= want).then_some(()));
            match round % 3 {
                0 | 1 => {
                    peer.going_idle();
                    let granted = |heard: &petasos_fakes::relay::Received| {
                        heard.frames.iter().position(|frame| frame["type"] == "going_idle_ack")
                    };
                    let at = peer.wait_until(SOON, granted).expect("granted");
                    settle(&peer, &format!("r{round}"));
                    let behind =
                        peer.read(|heard| heard.frames[at..].iter().any(|it| it["type"] == "inbound"));
                    assert!(!behind, "an event behind the grant in round {round}");
                }
                _killed => peer.cut(),
            }
            let ended = round % 3 == 2;
            if ended {
                peer.wait_until(SOON, |heard| heard.closed.clone()).expect("cut");
            }
            got.extend(peer.read(|heard| heard.texts()));
            let unique: HashSet<_> = got.iter().collect();
            if unique.len() == EVENTS {
                break;
            }
            assert!(round < 2000, "{} of {EVENTS}", unique.len());
        }
    });
    bench.wait_taken();
    // A lost acknowledgement causes a redelivery; without a crash there is none.
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
fn restart_keeps_queue_and_wakes_its_gateway() {
    let alarm = WakeServer::start().expect("a server");
    let host = alarm.address().to_string();
    let (mut bench, secret) = Bench::single_with({
        let host = host.clone();
        move |config| config.wake_hosts = vec![host.clone()]
    });
    bench.write(|tx| tx.put_wake_url(&"i1".into(), Some(&alarm.url())));
    bench.write_message("one");
    assert!(alarm.wait_for(1, SOON));
    bench.stop();
    bench.start(move |config| {
        config.single_instance = Some("i1".into());
        config.wake_hosts = vec![host.clone()];
    });
    assert!(alarm.wait_for(2, SOON), "no new event, and an entry is still undelivered");
    let peer = bench.greet("gw-1", &secret, Acks::All);
    wait_texts(&peer, &["one"]);
}
