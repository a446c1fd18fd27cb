//! Salvage of a connector's database: what a lost row means for messages, requests and access.

use std::path::{Path, PathBuf};

use petasos_store::connector::RequestState;
use petasos_store::{Error, Salvage, Store, finish_connector_copy};
use rusqlite::Connection;
use tempfile::TempDir;

use super::fill::{ROWS, TableRows, fill_tables};
use super::random_damage::{Opened, Subject, check_random_damage};
use super::{copied, dump};
use crate::fixture::{NOW, later, telegram};

/// Rows refer to the first nine instances of seven tenants.
const TABLES: &[TableRows] = &[
    ("tenants", "id, created_at", "'t' || i, i"),
    ("instances", "id, tenant, wake_url, created_at", "'i' || i, 't' || (1 + i % 7), '$long', i"),
    (
        "gateways",
        "id, instance, secret, delivery_key, created_at",
        "'g' || i, 'i' || (1 + i % 9), '$long', '$long', i",
    ),
    ("enrollments", "token_hash, tenant, expires_at", "CAST('a hash of some length ' || i AS BLOB), 't1', i"),
    ("identities", "token_hash, tenant, created_at", "CAST('a hash of some length ' || i AS BLOB), 't2', i"),
    (
        "queue",
        "number, id, instance, platform, carries, payload, size, at",
        "i, 'q' || i, 'i' || (1 + i % 9), 'telegram', 'inbound', '{\"text\":\"$long\"}', 9, i",
    ),
    (
        "dead",
        "id, instance, platform, payload, why, at",
        "'d' || i, 'i1', 'telegram', '{\"$long\":1}', 'full', i",
    ),
    ("seen", "link, dedup, at", "'telegram', 'an event with an id of some length ' || i, i"),
    ("cursors", "link, value", "'telegram/' || i, '$long'"),
    ("unreadable", "id, link, event, why, size, raw, at", "i, 'l', 'e' || i, 'why', 3, '$long', i"),
    (
        "authors",
        "platform, user_id, instance, direct",
        "'telegram', 'a user of some length ' || i, 'i2', 'i3'",
    ),
    (
        "principals",
        "instance, platform, user_id, allowed",
        "'i4', 'telegram', 'a user of some length ' || i, 0",
    ),
    ("scopes", "platform, scope_id, instance", "'telegram', 'a scope of some length ' || i, 'i5'"),
    ("links", "code_hash, instance, expires_at", "CAST('a hash of some length ' || i AS BLOB), 'i6', i"),
    (
        "policies",
        "instance, platform, require_address, free_scopes, other_bots",
        "'i' || i, 'telegram', 1, '[\"$long\"]', 0",
    ),
    (
        "chats",
        "instance, platform, chat_id, session_key, chat_type, at",
        "'i7', 'telegram', 'a chat of some length ' || i, 'k' || i, 'dm', i",
    ),
    (
        "vault",
        "id, instance, platform, chat_id, session_key, kind, value, expires_at",
        "'v' || i, 'i8', 'telegram', 'c', 'k', 'kind', '$long', i",
    ),
    (
        "requests",
        "instance, request, answer, message, at",
        "'i9', 'r' || i, '{\"success\":true}', 'telegram:' || i, i",
    ),
    ("media", "id, instance, reference, size, expires_at", "'m' || i, 'i1', '{\"$long\":1}', 1, i"),
    (
        "rate_limits",
        "platform, scope, name, set_at, until, reason",
        "'telegram', 'chat', 'c' || i, i, i, '$long'",
    ),
    ("meta", "key, value", "'test' || i, '$long'"),
];

fn filled() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("connector.db");
    let store = Store::open_connector(&path).unwrap();
    let db = Connection::open(&path).unwrap();
    fill_tables(&db, TABLES, &[]);
    let crashed = copied(&path);
    drop((db, store));
    crashed
}

fn open(path: &Path) -> Opened {
    Store::open_or_salvage_connector(path, NOW, NOW, &mut |_percent| {})
}

/// Opens a copy after this damage to rows, and with the noted loss of a read.
fn salvaged_after(damage: &str) -> (TempDir, Store, Salvage) {
    let (_crashed, crashed) = filled();
    let (folder, path) = copied(&crashed);
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(&format!("PRAGMA foreign_keys = OFF; {damage}")).unwrap();
    raw.close().unwrap();
    Store::note_damage(&path, "a read failed").unwrap();
    let (store, salvage) = open(&path).unwrap();
    (folder, store, salvage.expect("noted damage is salvaged"))
}

fn dangling(path: &Path) -> i64 {
    let raw = Connection::open(path).unwrap();
    raw.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0)).unwrap()
}

/// Replaces the JSON of some rows, so that a salvage rejects them.
fn undecodable(table: &str, column: &str) -> String {
    format!("UPDATE {table} SET {column} = 'x' WHERE {column} IS NOT NULL")
}

#[test]
fn keeps_every_row_of_a_sound_connector_database() {
    let (_folder, path) = filled();
    let rows = dump(&path);
    assert!(rows.len() > 20 * usize::try_from(ROWS).unwrap(), "every table is filled");
    Store::note_damage(&path, "a read failed").unwrap();
    let salvage = open(&path).unwrap().1.expect("noted damage is salvaged");
    assert!(salvage.losses.is_empty() && salvage.consequences.is_empty(), "{}", salvage.text());
    assert!(dump(&path) == rows);
    assert!(open(&path).unwrap().1.is_none(), "the second start finds a sound database");
}

#[test]
fn salvages_a_connector_damaged_at_random_places() {
    let (_folder, path) = filled();
    let connector = Subject {
        open,
        repair: |path| Store::repair_connector(path, NOW),
        restored: &["tenants", "instances"],
    };
    check_random_damage(&path, &connector, |path, case| {
        assert_eq!(dangling(path), 0, "{case}: a row refers to a lost one");
        let store = Store::open_connector(path).unwrap();
        assert_eq!(store.damage().unwrap(), [], "{case}");
        store.close().unwrap();
    });
}

#[test]
fn requests_from_before_a_loss_are_unknown() {
    for (damage, unknown) in [(String::new(), None), (undecodable("requests", "answer"), Some(NOW))] {
        let (_folder, store, salvage) = salvaged_after(&damage);
        assert_eq!(store.requests_unknown_before().unwrap(), unknown, "{}", salvage.text());
        assert_eq!(store.last_salvage().unwrap().unwrap().consequences, salvage.consequences);
    }
}

#[test]
fn lost_queue_rows_are_listed_by_number() {
    let (_folder, store, salvage) = salvaged_after("UPDATE queue SET payload = '{' WHERE number IN (3, 4)");
    let text = salvage.text();
    assert!(text.contains("queue: rows 3 to 4") && text.contains("must send them again"), "{text}");
    assert_eq!(store.depths().unwrap().iter().map(|depth| depth.entries).sum::<u64>(), ROWS as u64 - 2);
}

#[test]
fn lost_instances_are_restored_without_rights() {
    let lost = "DELETE FROM instances";
    let (folder, mut store, salvage) = salvaged_after(lost);
    assert_eq!(dangling(&folder.path().join("connector.db")), 0);
    // Several tenants remain, so each instance gets its own.
    assert_eq!(store.instance(&"i1".into()).unwrap().unwrap().tenant.as_str(), "recovered:i1");
    let advice = salvage.consequences.concat();
    assert!(
        advice.contains("i1, i10, i100")
            && advice.contains("and 130 more")
            && advice.contains("connector tenant assign"),
        "{advice}"
    );
    store.write(|tx| tx.assign_recovered_instance(&"t3".into(), &"i1".into(), NOW)).unwrap();
    assert_eq!(store.instance(&"i1".into()).unwrap().unwrap().tenant.as_str(), "t3");
    assert!(!store.tenants().unwrap().contains(&"recovered:i1".into()));
    let again = store.write(|tx| tx.assign_recovered_instance(&"t4".into(), &"i1".into(), NOW));
    assert!(matches!(again, Err(Error::Conflict(_))), "{again:?}");

    let one = "DELETE FROM enrollments; DELETE FROM identities; DELETE FROM tenants WHERE id <> 't1'";
    let (_folder, store, salvage) = salvaged_after(&format!("{lost}; {one}"));
    assert_eq!(store.instance(&"i1".into()).unwrap().unwrap().tenant.as_str(), "t1", "the only tenant");
    assert!(salvage.consequences.is_empty(), "{:?}", salvage.consequences);
}

#[test]
fn lost_tenants_are_restored_from_their_instances() {
    let (folder, store, _) = salvaged_after("DELETE FROM tenants");
    assert_eq!(dangling(&folder.path().join("connector.db")), 0);
    assert_eq!(
        store.tenants().unwrap(),
        ["t1", "t2", "t3", "t4", "t5", "t6", "t7"].map(petasos_core::TenantId::from)
    );
}

#[test]
fn lost_denials_deny_people_without_a_rule() {
    let damage = "UPDATE principals SET user_id = CAST(x'ff' AS TEXT) WHERE user_id LIKE '% 1'";
    let (_folder, mut store, salvage) = salvaged_after(damage);
    assert!(salvage.consequences.concat().contains("--accept-lost-denials"), "{}", salvage.text());
    let rule = |store: &Store, user: &str| store.principal(&"i4".into(), telegram(), user).unwrap();
    assert_eq!(rule(&store, "unknown"), Some(false));
    assert!(store.write(|tx| tx.accept_lost_denials()).unwrap());
    assert_eq!(rule(&store, "unknown"), None, "the policy decides");
    assert_eq!(rule(&store, "a user of some length 2"), Some(false));
    assert!(!store.write(|tx| tx.accept_lost_denials()).unwrap());
}

#[test]
fn requests_are_unknown_on_a_restored_copy() {
    let (_folder, path) = filled();
    let copy = path.with_file_name("copy.db");
    Connection::open(&path).unwrap().execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    assert!(finish_connector_copy(&copy).unwrap() > 20 * ROWS as u64);
    let mut original = Store::open_connector(&path).unwrap();
    assert!(!original.write(|tx| tx.note_restored_copy(NOW)).unwrap(), "only the copy is marked");
    original.close().unwrap();
    let mut restored = Store::open_connector(&copy).unwrap();
    assert!(restored.write(|tx| tx.note_restored_copy(later(60))).unwrap());
    assert!(!restored.write(|tx| tx.note_restored_copy(later(90))).unwrap(), "once");
    assert_eq!(restored.requests_unknown_before().unwrap(), Some(later(60)));
    assert_eq!(
        restored.request(&"i9".into(), "r1").unwrap(),
        RequestState::Answered("{\"success\":true}".into())
    );
}
