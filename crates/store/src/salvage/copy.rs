//! Copies rows from damaged pages into a new database.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Transaction, params_from_iter};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::salvage::btree::{Gap, Record, Trees, WalkStep};
use crate::salvage::decode;
use crate::salvage::pages::Pages;
use crate::salvage::report::{LostRange, TableLoss};
use crate::schema::Schema;

/// Maintaining the search index row by row takes three times as long as the rest, so it is filled at the end.
const INDEX_TRIGGER: &str = "messages_index";
/// Message ids indexed per statement.
const INDEX_BATCH: i64 = 20_000;

/// Ids skipped after the highest known one if a table's counter is lost, so that no id is reused.
const SEQUENCE_GAP: i64 = 1_000_000;

/// Root pages of the tables, stored beside the database in case its own table list becomes unreadable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RootMap {
    pub(crate) schema: u32,
    pub(crate) roots: BTreeMap<String, u32>,
}

#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(crate) rows: u64,
    pub(crate) losses: Vec<TableLoss>,
}

pub(crate) fn copy(
    pages: &Pages,
    map: &RootMap,
    schema: &Schema,
    target: &Path,
    progress: &mut dyn FnMut(u8),
) -> Result<Copied> {
    let mut db = Connection::open(target)?;
    db.execute_batch(
        "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         PRAGMA foreign_keys = OFF; PRAGMA cache_size = -32768;",
    )?;
    schema.migrate_to(&mut db, version(pages, map, schema))?;
    let mut trees = Trees::new(pages);
    let found = roots(&mut trees);
    let tx = db.transaction()?;
    let trigger = drop_index_trigger(&tx)?;
    let mut copied = Copied::default();
    for table in tables(&tx)? {
        let candidates = [found.get(&table.name), map.roots.get(&table.name)];
        let root = candidates.into_iter().flatten().copied().find(|root| is_root(pages, *root, &table));
        let mut losses = LossRecorder::new(&table);
        match root {
            Some(root) => {
                let mut on_page = |used: usize| progress(percent(used, pages.count() as usize));
                copied.rows += copy_rows(&tx, &table, &mut trees, root, &mut losses, &mut on_page)?;
            }
            None => losses.all("the beginning of the table cannot be found"),
        }
        copied.losses.extend(losses.into_loss());
    }
    restore_sequences(&tx, &mut trees, found.get("sqlite_sequence").copied(), !copied.losses.is_empty())?;
    if let Some(trigger) = trigger {
        index_messages(&tx, percent(trees.used(), pages.count() as usize), progress)?;
        tx.execute_batch(&trigger)?;
    }
    tx.commit()?;
    schema.migrate_to(&mut db, schema.known())?;
    db.close().map_err(|(_, error)| error)?;
    Ok(copied)
}

/// Never 100, because the file must still be synced.
fn percent(done: usize, all: usize) -> u8 {
    u8::try_from(done.saturating_mul(100) / all.max(1)).unwrap_or(99).min(99)
}

/// Drops the trigger that maintains the search index, and returns its definition. `None`: this schema has none.
fn drop_index_trigger(tx: &Transaction<'_>) -> Result<Option<String>> {
    let read = "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?1";
    let definition: Option<String> = tx.query_row(read, [INDEX_TRIGGER], |row| row.get(0)).optional()?;
    if definition.is_some() {
        tx.execute_batch(&format!("DROP TRIGGER {INDEX_TRIGGER}"))?;
    }
    Ok(definition)
}

/// Fills the search index as the trigger would have. `from`: percentage reached so far.
fn index_messages(tx: &Transaction<'_>, from: u8, progress: &mut dyn FnMut(u8)) -> Result<()> {
    let mut add = tx.prepare(
        "INSERT INTO words (rowid, content) SELECT id, content FROM messages
         WHERE id > ?1 AND id <= ?2 AND role IN ('user', 'assistant') AND content <> '' ORDER BY id",
    )?;
    let mut next = tx.prepare("SELECT min(id), max(id) FROM messages WHERE id > ?1")?;
    let mut done = i64::MIN;
    let mut first = None;
    loop {
        let (least, last): (Option<i64>, Option<i64>) =
            next.query_row([done], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (Some(least), Some(last)) = (least, last) else { return Ok(()) };
        let start = *first.get_or_insert(least);
        done = least.saturating_add(INDEX_BATCH);
        add.execute((least.saturating_sub(1), done))?;
        let share = u64::from(percent(done.abs_diff(start) as usize, last.abs_diff(start) as usize));
        let more = u64::from(99_u8.saturating_sub(from)) * share / 100;
        progress(from.saturating_add(u8::try_from(more).unwrap_or(0)));
    }
}

pub(crate) fn version(pages: &Pages, map: &RootMap, schema: &Schema) -> u32 {
    let stored = pages.page(1).and_then(|page| Some(u32::from_be_bytes(page.get(60..64)?.try_into().ok()?)));
    let known = |version: &u32| (1..=schema.known()).contains(version);
    Some(map.schema).filter(known).max(stored.filter(known)).unwrap_or(schema.known())
}

/// Root pages by table name, as listed in the damaged file.
pub(crate) fn roots(trees: &mut Trees<'_>) -> HashMap<String, u32> {
    let mut roots = HashMap::new();
    trees.walk(1, &mut |walked| {
        for record in walked.records {
            if let [Value::Text(kind), Value::Text(name), _, Value::Integer(root), ..] =
                record.values.as_slice()
                && kind == "table"
                && let Ok(root) = u32::try_from(*root)
            {
                roots.insert(name.clone(), root);
            }
        }
    });
    roots
}

fn is_root(pages: &Pages, root: u32, table: &Table) -> bool {
    let kind = pages.page(root).and_then(|page| page.get(if root == 1 { 100 } else { 0 }).copied());
    matches!((kind, table.rowids), (Some(5 | 13), true) | (Some(2 | 10), false))
}

#[derive(Debug)]
struct Table {
    name: String,
    /// In record order.
    columns: Vec<String>,
    rowids: bool,
    /// Column that aliases the row id.
    alias: Option<usize>,
}

fn tables(db: &Connection) -> Result<Vec<Table>> {
    let mut list = db.prepare(
        "SELECT s.name, l.wr FROM sqlite_schema s JOIN pragma_table_list l ON l.name = s.name AND l.schema = 'main'
         WHERE s.type = 'table' AND l.type = 'table' AND s.name NOT LIKE 'sqlite_%' ORDER BY s.rowid",
    )?;
    let named = list.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?)))?;
    let mut tables = Vec::new();
    for named in named {
        let (name, without_rowid) = named?;
        tables.push(table(db, name, !without_rowid)?);
    }
    Ok(tables)
}

fn table(db: &Connection, name: String, rowids: bool) -> Result<Table> {
    let mut list = db.prepare("SELECT name, pk, type FROM pragma_table_info(?1) ORDER BY cid")?;
    let columns = list.query_map([&name], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
    })?;
    let mut columns = columns.collect::<rusqlite::Result<Vec<_>>>()?;
    if !rowids {
        // Key columns come first.
        columns.sort_by_key(|(_, key, _)| if *key > 0 { *key } else { i64::MAX });
    }
    let alias = columns.iter().position(|(_, key, kind)| rowids && *key == 1 && kind == "INTEGER");
    let columns = columns.into_iter().map(|(name, ..)| name).collect();
    Ok(Table { name, columns, rowids, alias })
}

fn copy_rows(
    tx: &Transaction<'_>,
    table: &Table,
    trees: &mut Trees<'_>,
    root: u32,
    lost: &mut LossRecorder<'_>,
    on_page: &mut dyn FnMut(usize),
) -> Result<u64> {
    let mut rows = 0;
    let mut failure = None;
    trees.walk(root, &mut |walked: WalkStep| {
        on_page(walked.used);
        walked.gaps.into_iter().for_each(|gap| lost.gap(gap));
        for record in walked.records {
            let placed = match reject_reason(table, &record) {
                Some(why) => Err(why),
                None => insert(tx, table, &record),
            };
            match placed {
                Ok(()) => rows += 1,
                Err(why) if tx.is_autocommit() => failure = Some(why),
                Err(why) => lost.row(&record, why),
            }
        }
    });
    match failure {
        Some(why) => Err(crate::error::Error::Sql(why)),
        None => Ok(rows),
    }
}

/// Why the program could not read this row.
fn reject_reason(table: &Table, record: &Record) -> Option<String> {
    if record.values.is_empty() || record.values.len() > table.columns.len() {
        return Some("it has another number of columns".into());
    }
    let text_of = |column: &str| {
        let at = table.columns.iter().position(|name| name == column)?;
        match record.values.get(at)? {
            Value::Text(text) => Some(text.as_str()),
            Value::Null | Value::Integer(_) | Value::Real(_) | Value::Blob(_) => None,
        }
    };
    decode::unreadable(&table.name, text_of).map(|column| format!("its {column} cannot be decoded"))
}

fn insert(tx: &Transaction<'_>, table: &Table, record: &Record) -> Result<(), String> {
    let mut names = table.columns[..record.values.len()].join(", ");
    let mut values = record.values.clone();
    match (table.alias.and_then(|alias| values.get_mut(alias)), record.rowid) {
        (Some(value), Some(rowid)) => *value = Value::Integer(rowid),
        (None, Some(rowid)) => {
            names.push_str(", rowid");
            values.push(Value::Integer(rowid));
        }
        (_, None) => {}
    }
    let marks = vec!["?"; values.len()].join(", ");
    let put = |text: &str| tx.prepare_cached(text)?.execute(params_from_iter(&values));
    put(&format!("INSERT INTO {} ({names}) VALUES ({marks})", table.name))
        .map(drop)
        .map_err(|error| format!("it contradicts other rows or the schema ({})", code(&error)))
}

/// Never the error text, which could quote a value.
fn code(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(code, _) => format!("SQLite code {}", code.extended_code),
        _ => "wrong type".into(),
    }
}

struct LossRecorder<'a> {
    table: &'a Table,
    ranges: Vec<LostRange>,
}

impl<'a> LossRecorder<'a> {
    const fn new(table: &'a Table) -> Self {
        Self { table, ranges: Vec::new() }
    }

    fn all(&mut self, why: &str) {
        self.ranges.push(LostRange { from: None, to: None, key: None, why: why.into() });
    }

    fn gap(&mut self, gap: Gap) {
        let from = gap.after.map(|after| after.saturating_add(1));
        self.ranges.push(LostRange { from, to: gap.upto, key: None, why: gap.why });
    }

    fn row(&mut self, record: &Record, why: String) {
        let last = self.ranges.last_mut();
        if let (Some(last), Some(rowid)) = (last, record.rowid)
            && last.why == why
            && last.to == Some(rowid - 1)
        {
            last.to = Some(rowid);
            return;
        }
        let key = record.rowid.is_none().then(|| key(&record.values));
        self.ranges.push(LostRange { from: record.rowid, to: record.rowid, key, why });
    }

    fn into_loss(self) -> Option<TableLoss> {
        let table = self.table.name.clone();
        (!self.ranges.is_empty()).then_some(TableLoss { table, ranges: self.ranges, more: 0 })
    }
}

fn key(values: &[Value]) -> String {
    match values.first() {
        Some(Value::Text(text)) => text.chars().take(80).collect(),
        Some(Value::Integer(number)) => number.to_string(),
        Some(Value::Null | Value::Real(_) | Value::Blob(_)) | None => "(unnamed)".into(),
    }
}

/// Restores the AUTOINCREMENT counters.
fn restore_sequences(
    tx: &Transaction<'_>,
    trees: &mut Trees<'_>,
    root: Option<u32>,
    lossy: bool,
) -> Result<()> {
    let mut counters: HashMap<String, i64> = HashMap::new();
    if let Some(root) = root {
        trees.walk(root, &mut |walked| {
            for record in walked.records {
                if let [Value::Text(name), Value::Integer(last)] = record.values.as_slice() {
                    counters.insert(name.clone(), *last);
                }
            }
        });
    }
    let mut list =
        tx.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'")?;
    let names = list.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    for name in names {
        let highest: i64 =
            tx.query_row(&format!("SELECT coalesce(max(rowid), 0) FROM {name}"), [], |row| row.get(0))?;
        let known = counters.get(&name).copied().filter(|last| *last >= highest);
        let next = match known {
            Some(last) => last,
            None if lossy => highest.saturating_add(SEQUENCE_GAP),
            None => highest,
        };
        let changed = tx.execute("UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1", (&name, next))?;
        if changed == 0 {
            tx.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)", (&name, next))?;
        }
    }
    Ok(())
}

pub(crate) fn root_map_of(db: &Connection) -> Result<RootMap> {
    let schema = crate::schema::version(db)?;
    let mut list =
        db.prepare("SELECT name, rootpage FROM sqlite_schema WHERE type = 'table' AND rootpage > 0")?;
    let roots = list.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    Ok(RootMap { schema, roots })
}
