//! Whatever comes over the line, the link survives it.

use serde_json::{Value, json};

use crate::rig::{rig, said};

fn frame(text: &str) -> String {
    json!({"type": "inbound", "event": said(text)}).to_string()
}

#[tokio::test]
async fn frames_and_messages_of_the_socket_are_two_things() {
    let rig = rig();
    let mut line = rig.up().await;
    rig.fake.say(&format!("{}\n{}\n", frame("one"), frame("two")));
    assert_eq!(line.texts(2).await, ["one", "two"]);
    let long = format!("{}\n", frame("three"));
    let (head, rest) = long.split_at(20);
    let (middle, tail) = rest.split_at(30);
    [head, middle, tail].iter().for_each(|piece| rig.fake.say(piece));
    assert_eq!(line.texts(1).await, ["three"]);
    rig.fake.say(&frame("four"));
    rig.fake.say("\n");
    rig.fake.say_bytes(format!("{}\n", frame("five")).as_bytes());
    assert_eq!(line.texts(2).await, ["four", "five"]);
}

#[tokio::test]
async fn nothing_that_is_said_ends_the_connection() {
    let rig = rig();
    let mut line = rig.up().await;
    let odd: [&[u8]; 12] = [
        b"not json\n",
        b"\n  \n\r\n",
        b"{\"type\":\"wat\"}\n",
        b"[]\n5\n\"x\"\nnull\n",
        b"\xff\xfe{\"type\n",
        b"{\"type\":\"inbound\",\"event\":null}\n",
        b"{\"type\":\"inbound\",\"event\":\"x\"}\n",
        b"{\"type\":\"inbound\",\"event\":{\"source\":\"x\"}}\n",
        b"{\"type\":\"passthrough_forward\",\"forward\":null}\n",
        b"{\"type\":\"descriptor\",\"descriptor\":{}}\n",
        b"{\"type\":\"outbound_result\",\"requestId\":5}\n",
        b"{\"type\":7}\n",
    ];
    for (at, odd) in odd.iter().enumerate() {
        rig.fake.say_bytes(odd);
        let text = format!("after {at}");
        rig.fake.pass(said(&text));
        assert_eq!(line.texts(1).await, [text]);
    }
    assert_eq!(rig.fake.read(|world| world.connections()), 1);
}

#[tokio::test]
async fn a_line_that_never_ends_is_cut_off() {
    let rig = rig();
    let mut line = rig.up().await;
    let piece = vec![b'x'; 512 * 1024];
    (0..3).for_each(|_| rig.fake.say_bytes(&piece));
    rig.until("a second connection", |world| (world.frames("hello").len() == 2).then_some(())).await;
    rig.fake.push(said("after"));
    assert_eq!(line.texts(1).await, ["after"]);
}

#[tokio::test]
async fn a_message_that_is_too_long_is_not_read_to_its_end() {
    let rig = rig();
    let mut line = rig.up().await;
    rig.fake.say_bytes(&vec![b'x'; 2 << 20]);
    rig.until("a second connection", |world| (world.frames("hello").len() == 2).then_some(())).await;
    let told = line.told.lock().expect("whole").clone();
    let why = petasos_platforms::Health::Degraded { reason: "relay_line_too_long" };
    assert!(told.contains(&why), "{told:?}");
    rig.fake.push(said("after"));
    assert_eq!(line.texts(1).await, ["after"]);
}

#[tokio::test]
async fn half_a_character_and_a_missing_event_are_acknowledged_like_others() {
    let rig = rig();
    let mut line = rig.up().await;
    let source = json!({"platform": "discord", "chat_id": "c1", "chat_type": "dm"});
    let half = json!({"type": "inbound", "event": {"text": "a@", "source": source}, "bufferId": "b1"});
    rig.fake.say(&format!("{half}\n").replace('@', "\\ud83d"));
    assert_eq!(line.texts(1).await, ["a\u{fffd}"]);
    rig.fake.say("{\"type\":\"inbound\",\"bufferId\":\"b2\"}\n");
    let aside = line.next().await;
    assert_eq!((aside.events.len(), aside.unreadable.len()), (0, 1));
    aside.done.send(petasos_platforms::Taken::Committed).expect("it waits");
    rig.until("both", |world| (world.acks == ["b1", "b2"]).then_some(())).await;
}

#[tokio::test]
async fn numbers_are_acknowledged_as_texts_and_nothing_is_not() {
    let rig = rig();
    let mut line = rig.up().await;
    let numbers: [Value; 5] = [json!("b1"), json!(7), json!(0), json!(""), Value::Null];
    for (at, number) in numbers.iter().enumerate() {
        let frame = json!({"type": "inbound", "event": said(&at.to_string()), "bufferId": number});
        rig.fake.say(&format!("{frame}\n"));
    }
    line.texts(5).await;
    rig.fake.push(said("last"));
    line.texts(1).await;
    let acks = rig.until("all acknowledgements", |world| (world.acks.len() == 3).then(|| world.acks.clone()));
    assert_eq!(acks.await[..2], ["b1", "7"]);
}
