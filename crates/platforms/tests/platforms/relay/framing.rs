//! The link survives any input.

use serde_json::{Value, json};

use super::rig::{rig, said};

fn frame(text: &str) -> String {
    json!({"type": "inbound", "event": said(text)}).to_string()
}

#[tokio::test]
async fn reads_lines_split_across_socket_messages() {
    let rig = rig();
    let mut line = rig.up().await;
    rig.fake.send(&format!("{}\n{}\n", frame("one"), frame("two")));
    assert_eq!(line.texts(2).await, ["one", "two"]);
    let long = format!("{}\n", frame("three"));
    let (head, rest) = long.split_at(20);
    let (middle, tail) = rest.split_at(30);
    [head, middle, tail].iter().for_each(|piece| rig.fake.send(piece));
    assert_eq!(line.texts(1).await, ["three"]);
    rig.fake.send(&frame("four"));
    rig.fake.send("\n");
    rig.fake.send_bytes(format!("{}\n", frame("five")).as_bytes());
    assert_eq!(line.texts(2).await, ["four", "five"]);
}

#[tokio::test]
async fn survives_malformed_frames() {
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
        rig.fake.send_bytes(odd);
        let text = format!("after {at}");
        rig.fake.push_live(said(&text));
        assert_eq!(line.texts(1).await, [text]);
    }
    assert_eq!(rig.fake.read(|world| world.connections()), 1);
}

#[tokio::test]
async fn closes_connection_on_endless_line() {
    let rig = rig();
    let mut line = rig.up().await;
    let piece = vec![b'x'; 512 * 1024];
    (0..3).for_each(|_| rig.fake.send_bytes(&piece));
    rig.until("a second connection", |world| (world.frames("hello").len() == 2).then_some(())).await;
    rig.fake.push(said("after"));
    assert_eq!(line.texts(1).await, ["after"]);
}

#[tokio::test]
async fn stops_reading_oversized_messages() {
    let rig = rig();
    let mut line = rig.up().await;
    rig.fake.send_bytes(&vec![b'x'; 2 << 20]);
    rig.until("a second connection", |world| (world.frames("hello").len() == 2).then_some(())).await;
    let told = line.told.lock().expect("whole").clone();
    let why = petasos_platforms::LinkHealth::Degraded { reason: "relay_line_too_long" };
    assert!(told.contains(&why), "{told:?}");
    rig.fake.push(said("after"));
    assert_eq!(line.texts(1).await, ["after"]);
}

#[tokio::test]
async fn acknowledges_lone_surrogates_and_missing_events() {
    let rig = rig();
    let mut line = rig.up().await;
    let source = json!({"platform": "discord", "chat_id": "c1", "chat_type": "dm"});
    let half = json!({"type": "inbound", "event": {"text": "a@", "source": source}, "bufferId": "b1"});
    rig.fake.send(&format!("{half}\n").replace('@', "\\ud83d"));
    assert_eq!(line.texts(1).await, ["a\u{fffd}"]);
    rig.fake.send("{\"type\":\"inbound\",\"bufferId\":\"b2\"}\n");
    let aside = line.next().await;
    assert_eq!((aside.events.len(), aside.unreadable.len()), (0, 1));
    aside.done.send(petasos_platforms::CommitResult::Committed).expect("it waits");
    rig.until("both", |world| (world.acks == ["b1", "b2"]).then_some(())).await;
}

#[tokio::test]
async fn acknowledges_numeric_buffer_ids_as_text() {
    let rig = rig();
    let mut line = rig.up().await;
    let numbers: [Value; 5] = [json!("b1"), json!(7), json!(0), json!(""), Value::Null];
    for (at, number) in numbers.iter().enumerate() {
        let frame = json!({"type": "inbound", "event": said(&at.to_string()), "bufferId": number});
        rig.fake.send(&format!("{frame}\n"));
    }
    line.texts(5).await;
    rig.fake.push(said("last"));
    line.texts(1).await;
    let acks = rig.until("all acknowledgements", |world| (world.acks.len() == 3).then(|| world.acks.clone()));
    assert_eq!(acks.await[..2], ["b1", "7"]);
}
