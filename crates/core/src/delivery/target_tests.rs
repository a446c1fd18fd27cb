use alloc::string::ToString;
use alloc::vec;

use super::*;

#[derive(Deserialize)]
struct TargetVectors {
    target_parse: Vec<TargetVector>,
}

#[derive(Deserialize)]
struct TargetVector {
    #[serde(rename = "in")]
    text: String,
    platform: String,
    chat_id: Option<String>,
    thread_id: Option<String>,
    roundtrip: String,
}

/// Recorded from a parser that splits Matrix room ids and accepts an empty chat; those two cases differ here.
const OURS: [&str; 2] = ["matrix:!room:server.org", "discord:"];

#[test]
fn parses_the_recorded_targets() {
    let vectors: TargetVectors =
        serde_json::from_str(include_str!("../../../../tests/vectors/platforms.json")).unwrap();
    for vector in vectors.target_parse.into_iter().filter(|it| !OURS.contains(&it.text.as_str())) {
        let target = Target::parse(&vector.text).unwrap();
        let found = match &target {
            Target::Origin | Target::Local | Target::All => ("local", None, None),
            Target::Home(platform) => (platform.as_str(), None, None),
            Target::Chat(place) => {
                (place.platform.as_str(), Some(place.chat_id.clone()), place.thread_id.clone())
            }
        };
        assert_eq!(found, (vector.platform.as_str(), vector.chat_id, vector.thread_id), "{}", vector.text);
        assert_eq!(target.to_string(), vector.roundtrip, "{}", vector.text);
    }
}

fn chat(text: &str) -> ChatAddress {
    match Target::parse(text) {
        Ok(Target::Chat(place)) => place,
        other => panic!("{text}: {other:?}"),
    }
}

#[track_caller]
fn check(text: &str, want: (&str, Option<&str>)) {
    let place = chat(text);
    assert_eq!((place.chat_id.as_str(), place.thread_id.as_deref()), want, "{text}");
    assert_eq!(chat(&place.to_string()), place, "{text}");
}

#[test]
fn keeps_ids_with_colons_whole() {
    check("matrix:!room:server.org", ("!room:server.org", None));
    check("matrix:!room:server.org:$event", ("!room:server.org", Some("$event")));
    check("Signal:group:abc=", ("group:abc=", None));
    check("slack:C0ABC:1712.5", ("C0ABC", Some("1712.5")));
    check("discord:#general", ("#general", None));
}

#[test]
fn rejects_a_missing_chat_or_thread() {
    for (text, want) in [
        ("discord:", TargetError::NoChat),
        ("discord::7", TargetError::NoChat),
        ("telegram:5:", TargetError::NoThread),
        ("matrix:!r:s:$", TargetError::NoThread),
    ] {
        assert_eq!(Target::parse(text), Err(want), "{text}");
    }
}

#[test]
fn distinguishes_names_from_ids() {
    for (platform, ids, names) in [
        ("telegram", ["-100", "7", "@someone"], ["Family", "-", "@x y"]),
        ("discord", ["70", "123456789012345678", "1"], ["#general", "Guild/general", "general"]),
        ("slack", ["C0ABC", "D1", "U5"], ["#general", "C", "Cafe"]),
    ] {
        let platform = Platform::parse(platform).unwrap();
        for id in ids {
            assert!(is_id(platform, id), "{platform} {id}");
        }
        for name in names {
            assert!(!is_id(platform, name), "{platform} {name}");
        }
    }
}

fn expanded(list: &str, origin: Option<&str>, homes: &[&str]) -> Vec<String> {
    let targets: Vec<_> = Target::parse_list(list).into_iter().map(|(_, it)| it.unwrap()).collect();
    let homes: Vec<_> = homes.iter().map(|it| chat(it)).collect();
    let aims = expand(&targets, origin.map(chat).as_ref(), &homes);
    let name = |aim: Destination| match aim {
        Destination::File => "local".to_owned(),
        Destination::Chat(place) => place.to_string(),
        Destination::NoHomeChannel(platform) => alloc::format!("no home on {platform}"),
    };
    aims.into_iter().map(name).collect()
}

#[test]
fn expands_each_address_once() {
    let homes = ["telegram:-1:7", "slack:C1"];
    let found = expanded("telegram:-1:7,all,origin,foo:1,matrix:!r:srv", Some("slack:C1"), &homes);
    assert_eq!(found, ["telegram:-1:7", "slack:C1", "local", "matrix:!r:srv"]);
    assert_eq!(expanded(" , ", None, &homes), ["local"]);
    assert_eq!(expanded("all", None, &[]), Vec::<String>::new());
}

#[test]
fn expands_a_platform_to_its_origin_or_home() {
    let homes = ["telegram:1"];
    assert_eq!(expanded("telegram", Some("telegram:9:2"), &homes), ["telegram:9:2"]);
    assert_eq!(expanded("telegram", Some("discord:9"), &homes), ["telegram:1"]);
    assert_eq!(expanded("slack", Some("discord:9"), &homes), ["no home on slack"]);
}

#[test]
fn falls_back_to_the_first_home_then_to_a_file() {
    assert_eq!(expanded("origin", None, &["slack:C1", "telegram:1"]), ["slack:C1"]);
    assert_eq!(expanded("origin", None, &[]), ["local"]);
    assert_eq!(Target::parse_list("").len(), 1);
    assert_eq!(Target::parse_list("origin").pop().unwrap().1, Ok(Target::Origin));
    assert_eq!(vec![Target::All], [Target::parse("ALL").unwrap()]);
}
