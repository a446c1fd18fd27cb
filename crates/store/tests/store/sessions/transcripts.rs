//! Transcripts: visibility, undo, compaction and search.

use petasos_core::compaction::{Compaction, CompactionThrottle, ReplacedRows};
use petasos_core::ids::RowId;
use petasos_core::journal::Write;
use petasos_core::person::Person;
use petasos_core::transcript::{CLEARED_TOOL_OUTPUT, EffectState, Message, ToolCall, Usage, UsageRecord};
use petasos_core::{Millis, SessionKey};
use petasos_store::RowState;
use proptest::prelude::*;

use crate::fixture::{Home, NOW, key, later, session, source};

fn conversation(home: &mut Home, rows: &[Message]) {
    let name = session("s1");
    home.write(|tx| {
        tx.create_session(&name, &key("7"), Some(&source("7")), None, NOW)?;
        rows.iter().try_for_each(|row| tx.append(&name, row).map(drop))
    });
}

fn texts(rows: &[petasos_store::TranscriptRow]) -> Vec<&str> {
    rows.iter().map(|row| row.message.content.as_str()).collect()
}

#[test]
fn history_hides_notices_and_rows_after_shows_everything() {
    let mut home = Home::new();
    let call = ToolCall { id: "c1".into(), name: "read".into(), arguments: "{}".into() };
    let rows = [
        Message::user("one", NOW),
        Message::notice("queued", NOW),
        Message::tool_request("", vec![call.clone()], NOW),
        Message::tool(&call, "result", EffectState::Unknown, NOW),
        Message::assistant("two", NOW),
    ];
    conversation(&mut home, &rows);
    let seen = home.store.history(&session("s1"), 100).unwrap();
    assert_eq!(texts(&seen), ["one", "", "result", "two"]);
    assert_eq!(seen[1].message, rows[2]);
    assert_eq!(seen[2].message, rows[3]);
    assert_eq!(texts(&home.store.history(&session("s1"), 2).unwrap()), ["result", "two"]);
    let all = home.store.rows_after(&session("s1"), RowId(0), 100).unwrap();
    assert_eq!(all.len(), 5);
    assert_eq!(texts(&home.store.rows_after(&session("s1"), all[3].id, 100).unwrap()), ["two"]);
    assert_eq!(texts(&home.store.rows_last(&session("s1"), 2).unwrap()), ["result", "two"]);
}

#[test]
fn undo_hides_whole_exchanges_from_the_model() {
    let mut home = Home::new();
    let rows =
        ["a", "b", "c"].map(|text| [Message::user(text, NOW), Message::assistant(format!("re {text}"), NOW)]);
    conversation(&mut home, rows.as_flattened());
    let name = session("s1");
    let undone = home.write(|tx| tx.undo(&name, 2)).unwrap();
    assert_eq!((undone.rows, undone.text.as_str()), (4, "b"));
    assert_eq!(texts(&home.store.history(&name, 10).unwrap()), ["a", "re a"]);
    assert_eq!(home.store.rows_after(&name, RowId(0), 10).unwrap().len(), 6);
    let rest = home.write(|tx| tx.undo(&name, 9)).unwrap();
    assert_eq!((rest.exchanges, rest.text.as_str()), (1, "a"), "no more than there is");
    assert_eq!(home.write(|tx| tx.undo(&name, 1)), None);
    assert_eq!(home.store.search("c", None, 10).unwrap(), [], "what was undone is not found");
}

fn relieve(home: &mut Home, relief: Compaction) {
    home.apply(&[Write::Compact { key: key("7"), session: session("s1"), compaction: relief, at: NOW }])
        .unwrap();
}

/// Replaces everything up to `through`, except `keep`.
fn summed_up(ids: &[RowId], through: usize, keep: &[usize], text: &str) -> Compaction {
    let keep = keep.iter().map(|at| ids[*at]).collect();
    let summary = text.to_owned();
    let replaced = Some(ReplacedRows { through: ids[through], keep, position: ids[through], summary });
    Compaction { replaced, ..Compaction::default() }
}

fn ids(home: &Home) -> Vec<RowId> {
    home.store.rows_after(&session("s1"), RowId(0), 100).unwrap().iter().map(|row| row.id).collect()
}

fn seen(home: &Home) -> Vec<String> {
    let rows = home.store.history(&session("s1"), 100).unwrap();
    rows.into_iter().map(|row| row.message.content).collect()
}

#[test]
fn summary_replaces_rows_without_deleting_them() {
    let mut home = Home::new();
    conversation(&mut home, &["a", "b", "c", "d", "e", "f"].map(|text| Message::user(text, NOW)));
    let all = ids(&home);
    relieve(&mut home, summed_up(&all, 3, &[0], "of b to d"));
    assert_eq!(seen(&home), ["a", "of b to d", "e", "f"]);
    home.write(|tx| tx.append(&session("s1"), &Message::user("g", NOW)));
    assert_eq!(seen(&home), ["a", "of b to d", "e", "f", "g"]);
    relieve(&mut home, summed_up(&all, 4, &[0], "of b to e"));
    assert_eq!(seen(&home), ["a", "of b to e", "f", "g"], "one summary, not two");
    let home = home.crash();
    assert_eq!(seen(&home), ["a", "of b to e", "f", "g"]);
    let kept = home.store.rows_after(&session("s1"), RowId(0), 100).unwrap();
    assert_eq!(kept.len(), 9, "every row is still there");
    let hidden = kept.iter().filter(|row| row.state == RowState::Compacted).count();
    assert_eq!(hidden, 5);
    assert_eq!(home.store.search("c", None, 10).unwrap().len(), 1, "and is found");
    assert_eq!(home.store.session(&session("s1")).unwrap().unwrap().message_count, 7);
}

#[test]
fn undo_hides_a_summary_only_with_its_replaced_rows() {
    let mut home = Home::new();
    conversation(&mut home, &["a", "b", "c", "d", "e"].map(|text| Message::user(text, NOW)));
    let all = ids(&home);
    relieve(&mut home, summed_up(&all, 2, &[0], "of b and c"));
    home.write(|tx| tx.undo(&session("s1"), 1));
    assert_eq!(seen(&home), ["a", "of b and c", "d"]);
    home.write(|tx| tx.undo(&session("s1"), 2));
    assert_eq!(seen(&home), Vec::<String>::new());
}

#[test]
fn emptied_tool_result_keeps_its_text_on_disk() {
    let mut home = Home::new();
    let call = ToolCall { id: "c1".into(), name: "read".into(), arguments: "{}".into() };
    let result = Message::tool(&call, "long", EffectState::Known, NOW);
    conversation(&mut home, &[Message::tool_request("", vec![call], NOW), result]);
    let pace = CompactionThrottle { ineffective: 1, ..CompactionThrottle::default() };
    let relief = Compaction { emptied: ids(&home), throttle: pace, ..Compaction::default() };
    relieve(&mut home, relief);
    assert_eq!(seen(&home), ["", CLEARED_TOOL_OUTPUT]);
    assert_eq!(home.store.rows_last(&session("s1"), 1).unwrap()[0].message.content, "long");
    assert_eq!(home.store.pace(&session("s1")).unwrap(), pace);
}

#[test]
fn history_query_uses_its_own_index() {
    let home = Home::new();
    let sql = "EXPLAIN QUERY PLAN SELECT id FROM messages
               WHERE session = ?1 AND state IN ('active', 'emptied') AND role <> 'session_meta'
               ORDER BY coalesce(place, id) DESC LIMIT 10";
    let plan: Vec<String> = home
        .raw()
        .prepare(sql)
        .unwrap()
        .query_map(["s1"], |row| row.get(3))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    assert_eq!(plan, ["SEARCH messages USING INDEX messages_seen (session=?)"]);
}

#[test]
fn session_title_is_the_first_user_line() {
    let mut home = Home::new();
    conversation(
        &mut home,
        &[Message::user("\n  What is a petasos?\nTell me.", later(5)), Message::notice("x", later(9))],
    );
    let usage = Usage { input: 10, output: 4, cache_read: 1, cache_write: 0 };
    home.apply(&[Write::AddUsage {
        key: key("7"),
        session: session("s1"),
        usage: UsageRecord { tokens: usage, ..UsageRecord::default() },
    }])
    .unwrap();
    let row = &home.store.sessions(None, 10).unwrap()[0];
    assert_eq!(row.title.as_deref(), Some("What is a petasos?"));
    assert_eq!((row.message_count, row.last_at, row.usage), (1, later(9), usage));
    assert_eq!(home.store.sessions(Some(&key("8")), 10).unwrap(), []);
}

#[test]
fn search_matches_prefixes_accents_and_unspaced_scripts() {
    let mut home = Home::new();
    conversation(
        &mut home,
        &[
            Message::user("Where does the Café open?", NOW),
            Message::assistant("我们明天在北京见面", NOW),
            Message::notice("the notice says café", NOW),
        ],
    );
    let found = |query: &str, keys: Option<&[petasos_core::SessionKey]>| {
        home.store.search(query, keys, 10).unwrap().len()
    };
    for (query, want) in [
        ("cafe", 1),
        ("CAF", 1),
        ("open where", 1),
        ("afé", 1),
        ("北京", 1),
        ("absent", 0),
        ("", 0),
        ("  ", 0),
    ] {
        assert_eq!(found(query, None), want, "{query:?}");
    }
    assert_eq!(found("cafe", Some(&[key("7")])), 1);
    assert_eq!(found("cafe", Some(&[key("8")])), 0);
    assert_eq!(found("cafe", Some(&[])), 0);
    let hit = &home.store.search("café", None, 1).unwrap()[0];
    assert!(hit.snippet.contains("»Café«"), "{}", hit.snippet);
    assert_eq!(hit.key, Some(key("7")));
}

#[test]
fn deleted_session_is_not_found() {
    let mut home = Home::new();
    conversation(&mut home, &[Message::user("needle", NOW), Message::user("", NOW)]);
    assert!(home.write(|tx| tx.delete_session(&session("s1"))));
    assert_eq!(home.store.search("needle", None, 10).unwrap(), []);
    home.reopen();
}

#[test]
fn search_is_limited_to_the_person() {
    let mut home = Home::new();
    let append = |home: &mut Home, name: &str, user: &str| {
        let id = session(name);
        let mut from = source(user);
        from.user_id = Some(user.into());
        home.write(|tx| {
            tx.create_session(&id, &key(user), Some(&from), None, NOW)?;
            tx.append(&id, &Message::user(format!("the needle of {user}"), NOW))?;
            tx.append(&id, &Message::assistant("北京见面", NOW))
        });
        Person::of(&from, &key(user))
    };
    let a = append(&mut home, "s1", "7");
    let b = append(&mut home, "s2", "8");
    let found = |person: &Person, query: &str| {
        let hits = home.store.search_person(person, query, 10).unwrap();
        hits.into_iter().map(|hit| hit.session.0).collect::<Vec<_>>()
    };
    for query in ["needle", "北京"] {
        assert_eq!(found(&a, query), ["s1"], "{query}");
        assert_eq!(found(&b, query), ["s2"], "{query}");
        assert_eq!(found(&Person::owner(), query), [""; 0], "{query}");
    }
    let stranger = Person::of(&source("9"), &SessionKey("k".into()));
    assert_eq!(found(&stranger, "needle"), [""; 0]);
    assert_eq!(found(&a, "needle of 8"), [""; 0]);
    let row = home.store.search_person(&a, "needle", 1).unwrap()[0].row;
    let (of, rows) = home.store.rows_around(&a, row, 5).unwrap().unwrap();
    assert_eq!((of, rows.len()), (session("s1"), 2));
    assert_eq!(home.store.rows_around(&b, row, 5).unwrap(), None, "not by its number either");
}

#[test]
fn todo_list_belongs_to_its_session() {
    let mut home = Home::new();
    assert_eq!(home.store.todos(&session("s1")).unwrap(), None);
    home.write(|tx| tx.put_todos(&session("s1"), "[1]", NOW));
    home.write(|tx| tx.put_todos(&session("s1"), "[1,2]", Millis(NOW.0 + 1)));
    let home = home.crash();
    assert_eq!(home.store.todos(&session("s1")).unwrap().as_deref(), Some("[1,2]"));
    assert_eq!(home.store.todos(&session("s2")).unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_query_is_accepted(query in "\\PC*|[\"*^(){}:+-]{0,12}|(AND|OR|NOT|NEAR)( [a-z\"(]*)*") {
        thread_local! {
            static HOME: Home = {
                let mut home = Home::new();
                conversation(&mut home, &[Message::user("a b c NOT OR near", NOW)]);
                home
            };
        }
        HOME.with(|home| home.store.search(&query, None, 5)).unwrap();
    }
}
